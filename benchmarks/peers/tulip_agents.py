"""tulip-agents (the package is named `tulip`): its Agent over a model of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from tulip.agent import Agent
from tulip.core.messages import Message, ToolCall
from tulip.models.base import ModelResponse
from tulip.tools import tool

from benchmarks.peers import Run


class Scripted:
    """Asks for the tool until its turns are used up. Its own double keeps every conversation."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.asked = 0

    async def complete(
        self, messages: list[Any], tools: list[dict[str, Any]] | None = None, **_: object
    ) -> ModelResponse:
        """One turn."""
        self.asked += 1
        message = Message.assistant(content="Done.")
        if self.asked < self.turns:
            arguments = {"n": self.asked}
            call = ToolCall(id=f"call_{self.asked}", name="add_one", arguments=arguments)
            message = Message.assistant(content=None, tool_calls=[call])
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        return ModelResponse(message=message, usage=usage)

    def stream(
        self, messages: list[Any], tools: list[dict[str, Any]] | None = None, **_: object
    ) -> AsyncIterator[Any]:
        """Not asked for."""
        raise NotImplementedError("it is only asked for whole answers")


@tool
async def add_one(n: int) -> int:
    """Add one."""
    return n + 1


@cache
def _made(turns: int, checkpointer: Any = None) -> tuple[Scripted, Any]:
    model = Scripted(turns)
    limits = {"max_iterations": turns + 1, "checkpoint_every_n_iterations": 1}
    return model, Agent(model=model, tools=[add_one], checkpointer=checkpointer, **limits)


@asynccontextmanager
async def durable(folder: Path) -> AsyncIterator[Run]:
    """Its FileCheckpointer (it has none for SQLite): the whole state after each turn, a file each;
    a turn's file is deleted when the run has ended."""
    from tulip.memory.backends import FileCheckpointer

    yield partial(_converse, FileCheckpointer(folder, pretty=False))


async def run(turns: int) -> None:
    """A conversation of that many model calls."""
    await _converse(None, turns)


async def _converse(checkpointer: Any, turns: int) -> None:
    model, agent = _made(turns, checkpointer)
    model.asked = 0
    result = await agent.arun("Count.", thread_id=uuid4().hex if checkpointer else None)
    assert model.asked == turns, result
