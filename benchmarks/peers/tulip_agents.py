"""tulip-agents (the package is named `tulip`): its Agent over a model of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import cache
from typing import Any

from tulip.agent import Agent
from tulip.core.messages import Message, ToolCall
from tulip.models.base import ModelResponse
from tulip.tools import tool


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
def _made(turns: int) -> tuple[Scripted, Any]:
    model = Scripted(turns)
    return model, Agent(model=model, tools=[add_one], max_iterations=turns + 1)


async def run(turns: int) -> None:
    """A conversation of that many model calls."""
    model, agent = _made(turns)
    model.asked = 0
    result = await agent.arun("Count.")
    assert model.asked == turns, result
