"""openai-agents: its Runner over a Model of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from benchmarks.peers import Run


class Scripted(Model):
    """Asks for the tool until its turns are used up."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.asked = 0

    async def get_response(self, *_: object, **__: object) -> ModelResponse:
        """One turn."""
        self.asked += 1
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelResponse(output=[self._said()], usage=usage, response_id=None)

    def stream_response(self, *_: object, **__: object) -> AsyncIterator[Any]:
        """Not asked for."""
        raise NotImplementedError("it is only asked for whole answers")

    def _said(self) -> Any:
        if self.asked < self.turns:
            return ResponseFunctionToolCall(
                type="function_call",
                name="add_one",
                arguments=f'{{"n": {self.asked}}}',
                call_id=f"call_{self.asked}",
            )
        return ResponseOutputMessage(
            id="message",
            type="message",
            role="assistant",
            status="completed",
            content=[ResponseOutputText(type="output_text", text="Done.", annotations=[])],
        )


@function_tool
async def add_one(n: int) -> int:
    """Add one."""
    return n + 1


@cache
def _agent(turns: int) -> Any:
    set_tracing_disabled(True)
    return Agent(name="counter", model=Scripted(turns), tools=[add_one])


async def run(turns: int) -> None:
    """A conversation of that many model calls."""
    await _converse(turns, None)


@asynccontextmanager
async def durable(folder: Path) -> AsyncIterator[Run]:
    """Its SQLite session: the items of each turn."""
    file = folder / "openai_agents.db"
    yield lambda turns: _converse(turns, SQLiteSession(uuid4().hex, file))


async def _converse(turns: int, session: SQLiteSession | None) -> None:
    agent = _agent(turns)
    agent.model.asked = 0
    quiet = RunConfig(tracing_disabled=True)
    result = await Runner.run(
        agent, "Count.", max_turns=turns + 1, run_config=quiet, session=session
    )
    assert len(result.raw_responses) == turns, result.final_output
