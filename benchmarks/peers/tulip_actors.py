"""This project, measured in the same way as the others."""

from __future__ import annotations

from functools import cache

from benchmarks._doubles import AddingModel, add_one
from tulip_actors import Agent, tool


@cache
def _agent(turns: int) -> Agent:
    return Agent(AddingModel(turns), [tool(add_one)], runtime="inline", max_iterations=turns + 1)


async def run(turns: int) -> None:
    """A conversation of that many model calls."""
    result = await _agent(turns).arun("Count.")
    assert result.iterations == turns, result
