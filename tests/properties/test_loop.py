"""What holds for every run, whatever the model asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tulip_actors import (
    Agent,
    AgentResult,
    Message,
    RunHandle,
    TerminateEvent,
    ThinkEvent,
    ToolCall,
    ToolCompleteEvent,
    ToolContext,
    ToolStartEvent,
    TulipEvent,
    tool,
)
from tulip_actors.testing import ScriptedModel


@tool
def double(x: int) -> int:
    """Twice."""
    return 2 * x


@tool
async def fails(x: int) -> int:
    """Raise."""
    await asyncio.sleep(0)
    raise ValueError(x)


@tool
async def nested(n: int, ctx: ToolContext) -> list[object]:
    """Make calls; some fail."""
    await ctx.map(double, range(max(0, n) % 4))
    return await ctx.map(fails if n % 2 else double, range(max(0, n) % 3), return_exceptions=True)


@tool
async def gives_up(n: int, ctx: ToolContext) -> None:
    """Raise while children may still run."""
    await asyncio.gather(ctx.call(double, n), ctx.call(fails, n), ctx.call(nested, n % 4))


NAMES = ["double", "fails", "nested", "gives_up", "unknown"]
arguments: st.SearchStrategy[Any] = st.sampled_from(
    [{}, {"x": 1}, {"x": "1"}, {"x": "no"}, {"n": 5}, {"n": 2}, {"x": 1, "n": 1}]
)
calls = st.builds(
    ToolCall,
    st.sampled_from(["c", "c1", "c2"]),
    st.sampled_from(NAMES),
    arguments,
    st.none() | st.just("{"),
)
turns: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        lambda content, made: Message.assistant(content, tuple(made)),
        st.text(max_size=5),
        st.lists(calls, min_size=1, max_size=4),
    ),
    st.text(min_size=1, max_size=5),
    st.just(LookupError("the model fails")),
)


async def conducted(
    script: list[Any], stream_tokens: bool, cap: int
) -> tuple[list[TulipEvent], AgentResult | BaseException]:
    """All events of a run of a script, and its outcome."""
    agent = Agent(
        ScriptedModel(script, repeat_last=True),
        [double, fails, nested, gives_up],
        runtime="inline",
        max_iterations=cap,
    )
    handle = agent.start("x", stream_tokens=stream_tokens)
    events, failure = await followed(handle)
    outcome = failure or await handle.result()
    await agent.stop()
    return events, outcome


async def followed(
    handle: RunHandle[AgentResult],
) -> tuple[list[TulipEvent], BaseException | None]:
    """A run's events to their end, and what its model raised."""
    events: list[TulipEvent] = []
    stream = handle.events()
    while True:
        try:
            events.append(await anext(stream))
        except StopAsyncIteration:
            return events, None
        except LookupError as error:
            return events, error


def assert_each_start_has_one_complete(events: Sequence[TulipEvent]) -> None:
    starts = [event.tool_call_id for event in events if isinstance(event, ToolStartEvent)]
    completes = [event.tool_call_id for event in events if isinstance(event, ToolCompleteEvent)]
    assert sorted(starts) == sorted(completes)
    open_: list[str] = []
    for event in events:
        if isinstance(event, ToolStartEvent):
            open_.append(event.tool_call_id)
        elif isinstance(event, ToolCompleteEvent):
            open_.remove(event.tool_call_id)
            assert (event.result is None) != (event.error is None)


@settings(max_examples=120, deadline=None)
@given(st.lists(turns, min_size=1, max_size=5), st.booleans(), st.integers(1, 4))
def test_whatever_the_model_does_the_stream_is_whole(
    script: list[Any], stream_tokens: bool, cap: int
) -> None:
    events, outcome = asyncio.run(asyncio.wait_for(conducted(script, stream_tokens, cap), 20))

    assert [event.source.seq for event in events if event.source] == list(range(len(events)))
    assert [type(event) for event in events].count(TerminateEvent) == 1
    end = events[-1]
    assert isinstance(end, TerminateEvent)
    assert_each_start_has_one_complete(events)

    thinks = [event for event in events if isinstance(event, ThinkEvent)]
    assert [think.iteration for think in thinks] == list(range(len(thinks)))
    if isinstance(outcome, BaseException):
        assert end.stop_reason == "error"
        return
    assert end.stop_reason == outcome.stop_reason
    assert end.iterations_used == outcome.iterations == len(thinks) <= cap
    assert end.total_tool_calls == len(outcome.tool_executions)
    assert end.final_message == outcome.final_message
    assert_history_is_valid(outcome.messages)


def assert_history_is_valid(messages: Sequence[Message]) -> None:
    """Every call is answered, once, right after its message, in call order."""
    waiting: list[str] = []
    for message in messages:
        if message.tool_call_id is not None:
            assert waiting
            assert message.tool_call_id == waiting.pop(0)
        else:
            assert not waiting
            waiting = [call.id for call in message.tool_calls]
    assert not waiting


@settings(max_examples=40, deadline=None)
@given(st.lists(turns, min_size=1, max_size=4), st.integers(0, 12))
def test_a_run_cancelled_anywhere_has_a_whole_stream_too(script: list[Any], at: int) -> None:
    async def cancelled() -> list[TulipEvent]:
        agent = Agent(
            ScriptedModel(script, repeat_last=True),
            [double, fails, nested, gives_up],
            runtime="inline",
            max_iterations=3,
        )
        handle = agent.start("x")
        for _ in range(at):
            await asyncio.sleep(0)
        handle.cancel()
        events, _ = await followed(handle)
        await agent.stop()
        return events

    events = asyncio.run(asyncio.wait_for(cancelled(), 20))
    assert [event.source.seq for event in events if event.source] == list(range(len(events)))
    assert isinstance(events[-1], TerminateEvent)
    assert [type(event) for event in events].count(TerminateEvent) == 1
    assert_each_start_has_one_complete(events)
