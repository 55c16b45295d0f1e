"""pydantic-ai: its Agent over its own FunctionModel."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits


async def add_one(n: int) -> int:
    """Add one."""
    return n + 1


class Script:
    """Asks for the tool until its turns are used up."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.asked = 0

    async def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """One turn."""
        self.asked += 1
        if self.asked < self.turns:
            call_id = f"call_{self.asked}"
            return ModelResponse(parts=[ToolCallPart("add_one", {"n": self.asked}, call_id)])
        return ModelResponse(parts=[TextPart("Done.")])


@cache
def _made(turns: int) -> tuple[Script, Any]:
    script = Script(turns)
    return script, Agent(FunctionModel(script.answer), tools=[add_one])


async def run(turns: int) -> None:
    """A conversation of that many model calls."""
    script, agent = _made(turns)
    script.asked = 0
    result = await agent.run("Count.", usage_limits=UsageLimits(request_limit=None))
    assert len(result.all_messages()) == 2 * turns, result.output
