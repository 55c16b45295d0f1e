"""langchain: `create_agent`, the successor of langgraph's prebuilt agent."""

from __future__ import annotations

from functools import cache
from typing import Any

from langchain.agents import create_agent

from benchmarks.peers.langgraph import Scripted, add_one


@cache
def _made(turns: int) -> tuple[Scripted, Any]:
    model = Scripted(turns=turns)
    return model, create_agent(model, [add_one])


async def run(turns: int) -> None:
    """A conversation of that many model calls."""
    model, agent = _made(turns)
    model.asked = 0
    given = {"messages": [("user", "Count.")]}
    answer = await agent.ainvoke(given, {"recursion_limit": 2 * turns + 5})
    assert len(answer["messages"]) == 2 * turns, answer["messages"][-1]
