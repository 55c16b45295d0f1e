"""`as_tool` and `callback_handler` (C35, C16), in both runtimes."""

from __future__ import annotations

import os

import pytest

from tulip_actors import Agent, ThinkEvent, TulipEvent
from tulip_actors.errors import ConfigError
from tulip_actors.testing import ScriptedModel, text, tool_call


async def test_c35_an_agent_is_a_tool_of_another(runtime: str) -> None:
    """C16: an agent that is handed over is a handle."""
    inner = Agent(ScriptedModel([text("42")]), name="oracle", runtime=runtime)
    outer = Agent(
        ScriptedModel([tool_call("oracle", prompt="what?"), text("it says 42")]),
        [inner.as_tool()],
        runtime=runtime,
    )
    async with inner, outer:
        result = await outer.arun("ask it")
    assert [one.result for one in result.tool_executions] == ["42"]


async def test_c35_an_agent_that_fails_as_a_tool_is_that_tools_error() -> None:
    inner = Agent(ScriptedModel([]), name="oracle", runtime="inline")
    outer = Agent(
        ScriptedModel([tool_call("oracle", prompt="what?"), text("it is silent")]),
        [inner.as_tool()],
        runtime="inline",
    )
    async with inner, outer:
        result = await outer.arun("ask it")
    assert result.text == "it is silent"
    assert "the script has 0 turns" in str(result.tool_executions[0].error)


async def test_c16_a_callback_handler_sees_every_event_in_the_callers_process(
    runtime: str,
) -> None:
    seen: list[tuple[int, TulipEvent]] = []

    def handler(event: TulipEvent) -> None:
        seen.append((os.getpid(), event))

    agent = Agent(ScriptedModel([text("hi")]), runtime=runtime, callback_handler=handler)
    async with agent:
        await agent.arun("x")
        assert [event.event_type for _, event in seen] == ["think", "terminate"]
        iterated = [event async for event in agent.run("x")]
    assert [event for _, event in seen[2:]] == iterated
    assert {pid for pid, _ in seen} == {os.getpid()}


async def test_an_async_callback_handler_is_awaited() -> None:
    seen: list[TulipEvent] = []

    async def handler(event: TulipEvent) -> None:
        seen.append(event)

    agent = Agent(ScriptedModel([text("hi")]), runtime="inline", callback_handler=handler)
    await agent.arun("x")
    assert isinstance(seen[0], ThinkEvent)


def test_a_callback_handler_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(ConfigError, match="callback_handler"):
        Agent(ScriptedModel([]), callback_handler=3)  # type: ignore[arg-type]
