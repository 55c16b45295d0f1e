"""This project, measured in the same way as the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path

from benchmarks._doubles import AddingModel, add_one
from benchmarks.peers import Run
from tulip_actors import Agent, tool


@cache
def _agent(turns: int, checkpointer: str | None = None) -> Agent:
    return Agent(
        AddingModel(turns),
        [tool(add_one)],
        runtime="inline",
        max_iterations=turns + 1,
        checkpointer=checkpointer,
    )


async def run(turns: int) -> None:
    """A conversation of that many model calls."""
    await _converse(None, turns)


@asynccontextmanager
async def durable(folder: Path) -> AsyncIterator[Run]:
    """SQLite: every step's records and events, before the step that depends on them."""
    yield partial(_converse, f"sqlite:///{folder}/runs.db")


async def _converse(checkpointer: str | None, turns: int) -> None:
    result = await _agent(turns, checkpointer).arun("Count.")
    assert result.iterations == turns, result
