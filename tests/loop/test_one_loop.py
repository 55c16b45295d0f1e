"""One loop, however it is run (C4); what agrees everywhere (C5, C8), and the end (C7, C15)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from tests.loop.support import (
    TOOLS,
    ModelTrouble,
    Puppet,
    Run,
    inline,
    mark,
    marks,
    ran,
    records_of,
    script,
    told_by,
    wait,
)
from tests.runtime.support import collected, eventually, within
from tulip_actors import (
    Agent,
    AgentResult,
    AgentState,
    EventBus,
    InterruptEvent,
    ModelChunkEvent,
    TerminateEvent,
    Tool,
    ToolCompleteEvent,
    TulipEvent,
    interrupt,
    tool,
)
from tulip_actors.core.runs import RunEnded
from tulip_actors.core.termination import STOP_REASONS, MaxIterations, ToolCalled
from tulip_actors.loop.result import Metrics

ADD: Any = ["add", {"a": 1, "b": 2}]
FAIL: Any = ["fails", {"message": "dropped"}]


async def grant(amount: int) -> str:
    """Grant a sum."""
    return "yes"


async def grant_when_told(amount: int) -> str:
    """Grant a sum if a human says so."""
    return str(interrupt(f"grant {amount}?"))


GRANT = {False: Tool(grant), True: Tool(grant_when_told, name="grant")}
"""The same tool to a model, without and with a question."""


@tool(idempotent=True)
async def pay(path: str) -> str:
    """Pay once, if a human says so."""
    interrupt("pay?")
    return f"paid {mark(path)}"


def told(event: TulipEvent) -> tuple[str, str]:
    """What an event says, without times and ids."""
    kept = {
        *("iteration", "reasoning", "tool_name", "arguments", "result", "error", "assessment"),
        *("new_confidence", "reason", "final_message", "iterations_used", "total_tool_calls"),
        *("node_id", "label", "usage"),
    }
    return event.event_type, event.model_dump_json(include=kept)


def summary(result: AgentResult) -> tuple[object, ...]:
    """What a result says, without times and ids."""
    return (
        *(result.text, result.stop_reason, result.iterations, result.confidence),
        [(one.tool_name, one.result, one.error) for one in result.tool_executions],
        [(message.role, message.content) for message in result.messages],
    )


PROMPT = script(
    {"text": "Let me see.", "calls": [ADD, FAIL], "usage": [5, 1]},
    [["say", {"text": "x"}]],
    "Done.",
)


async def iterated(agent: Agent, **options: Any) -> list[TulipEvent]:
    return await collected(agent.run(PROMPT, **options))


async def started(agent: Agent, **options: Any) -> list[TulipEvent]:
    return await collected(agent.start(PROMPT, **options).events())


async def attached(agent: Agent, **options: Any) -> list[TulipEvent]:
    handle = agent.start(PROMPT, **options)
    await within(handle.result())
    return await collected(agent.attach(handle.run_id).events())


@pytest.mark.parametrize("way", [iterated, started, attached])
@pytest.mark.parametrize("stream_tokens", [False, True])
async def test_c4_every_way_to_follow_a_run_tells_the_same(
    way: Any, stream_tokens: bool, agent: Agent
) -> None:
    """Calls of one turn may end in any order, so that completes are compared sorted."""
    expected = [told(event) for event in (await ran(agent, PROMPT)).events]
    events = await way(agent, stream_tokens=stream_tokens)
    assert any(isinstance(event, ModelChunkEvent) for event in events) is stream_tokens
    seen = [told(event) for event in events if not isinstance(event, ModelChunkEvent)]
    assert sorted(seen) == sorted(expected)
    assert [one for one in seen if "tool" not in one[1]] == [
        one for one in expected if "tool" not in one[1]
    ]


async def test_c4_every_way_to_await_a_run_gives_the_same_result(agent: Agent) -> None:
    awaited = await within(agent.arun(PROMPT))
    handle = await within(agent.start(PROMPT).result())
    streamed = await within(agent.arun(PROMPT, stream_tokens=True))
    sync = await within(asyncio.to_thread(agent.run_sync, PROMPT))
    assert summary(awaited) == summary(handle) == summary(streamed) == summary(sync)


def straightened(events: list[TulipEvent]) -> list[tuple[str, str]]:
    """What a run says that was paused, or could have been, without the pause.

    The pause is an InterruptEvent, the end of the segment and the begin of the next one.
    """
    said = [told(event) for event in events]
    kinds = [event.event_type for event in events]
    if "interrupt" in kinds:
        pause = kinds.index("interrupt")
        begin = next(n for n, (_, text) in enumerate(said) if n > pause and BEGIN in text)
        assert set(kinds[pause:begin]) == {"interrupt", "causal_node", "terminate"}
        said = said[:pause] + said[begin + 1 :]
    return said


BEGIN = "on_before_invocation"


async def both_segments(agent: Agent) -> tuple[list[TulipEvent], AgentResult]:
    """A run, answered with yes if it asks."""
    handle = agent.start("x")
    events, result = await collected(handle.events()), await within(handle.result())
    if result.stop_reason == "interrupted":
        events += await collected(agent.resume("yes"))
        result = await within(agent.attach(handle.run_id).result())
    return events, result


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"termination": ToolCalled("grant")},
        {"termination": MaxIterations(2)},
        {"max_iterations": 2},
        {"tool_loop_threshold": 2},
        {"terminal_tools": ["grant"]},
        {"completion_mode": "explicit", "max_iterations": 4},
        {"token_budget": 30},
    ],
    ids=lambda options: ", ".join(options) or "plain",
)
async def test_c4_nothing_is_missing_in_a_run_that_was_resumed(options: dict[str, Any]) -> None:
    """Reflexion, hooks, events, conditions, caps and counts: as if nobody had been asked."""

    def agent(asks: bool) -> Agent:
        grants: Any = {"calls": [["grant", {"amount": 1}]], "usage": [10, 5]}
        turns: Any = [grants, {"calls": [ADD], "usage": [10, 5]}, [ADD], "Done."]
        tools = [*TOOLS, GRANT[asks]]
        return inline(*turns, tools=tools, reflexion=True, hooks=[Puppet()], **options)

    events, result = await both_segments(agent(asks=True))
    expected, straight = await both_segments(agent(asks=False))
    assert straightened(events) == straightened(expected)
    assert summary(result) == summary(straight)


@pytest.mark.parametrize("duplicates", [1, 2])
async def test_c20_an_idempotent_call_that_asked_runs_once_however_often_it_is_called(
    duplicates: int, path: str
) -> None:
    """Its duplicates in the turn share the question; a later call is served the answered one."""
    call: Any = ["pay", {"path": path}]
    agent = inline([call] * duplicates, [call], "Done.", tools=[pay])
    events, result = await both_segments(agent)
    assert sum(isinstance(event, InterruptEvent) for event in events) == 1
    assert marks(path) == 1
    assert [one.result for one in result.tool_executions] == ["paid 1"] * (duplicates + 1)


async def test_c20_what_was_done_before_a_pause_is_served_after_it(agent: Agent, path: str) -> None:
    """Inline and on Ray: the sibling of the question, called again in the resumed segment."""
    refund: Any = ["refund", {"path": path}]
    handle = agent.start(script([refund, ["ask", {"question": "go on?"}]], [refund], "Done."))
    assert (await within(handle.result())).stop_reason == "interrupted"
    result = await within(agent.aresume("yes"))
    assert [one.idempotent_cache_hit for one in result.tool_executions] == [False, False, True]
    assert marks(path) == 1


# C5


async def test_c5_all_that_name_a_turn_name_the_same_one() -> None:
    turns: Any = [[ADD], [FAIL], [ADD, FAIL], "Done."]
    run = await ran(inline(*turns, reflexion=True, hooks=[Puppet()]), "x")
    assert [event.iteration for event in run.thinks] == [0, 1, 2, 3]
    assert [event.iteration for event in run.reflections] == [0, 1, 2]
    numbers: dict[str, list[int]] = {}
    for callback, label in told_by(run.events):
        if "invocation" not in callback:
            numbers.setdefault(callback, []).append(int(label.split()[0]))
    assert numbers == {
        "on_iteration_start": [0, 1, 2, 3],
        "on_before_model_call": [0, 1, 2, 3],
        "on_after_model_call": [0, 1, 2, 3],
        "on_before_tool_call": [0, 1, 2, 2],
        "on_after_tool_call": [0, 1, 2, 2],
        "on_iteration_end": [0, 1, 2, 3],
    }
    assert run.end.iterations_used == run.ok.iterations == 4


# C7, C15: the end


async def test_c7_the_end_reaches_bus_and_store_when_the_caller_is_gone(
    agent: Agent, thread: str
) -> None:
    """The reader leaves at the first thought; the record is looked at where it can be, inline."""
    bus = EventBus.connect(runtime=agent.runtime)
    run_id = ""
    async with agent.run(script([["wait", {}]], "never"), thread_id=thread) as stream:
        async for event in stream:
            assert event.source
            run_id = event.source.run_id
            if event.event_type == "tool_start":
                break

    async def ends() -> list[TerminateEvent]:
        held = bus.subscribe(run_id=run_id, follow=False)
        return [one.event async for one in held if isinstance(one.event, TerminateEvent)]

    async def has_ended() -> bool:
        return bool(await ends())

    await eventually(has_ended, "the run's end is on the bus")
    assert [event.stop_reason for event in await ends()] == ["cancelled"]
    if agent.runtime == "inline":
        last = (await records_of(thread))[-1]
        assert isinstance(last, RunEnded)
        assert last.stop_reason == "cancelled"


async def test_c7_a_result_that_comes_after_the_end_is_discarded(thread: str) -> None:
    """A plain body cannot be stopped; what it returns after the run's end is nobody's."""
    go_on, returned = threading.Event(), threading.Event()

    @tool
    def stubborn() -> str:
        """Goes on whatever happens."""
        go_on.wait(60)
        returned.set()
        return "too late"

    agent = inline([["stubborn", {}]], tools=[stubborn])
    handle = agent.start("x", thread_id=thread)
    events = []
    async for event in handle.events():
        events.append(event)
        if event.event_type == "tool_start":
            handle.cancel()
    recorded = await records_of(thread)
    go_on.set()
    await asyncio.to_thread(returned.wait, 60)
    assert await records_of(thread) == recorded
    assert isinstance(events[-1], TerminateEvent)
    (complete,) = [event for event in events if isinstance(event, ToolCompleteEvent)]
    assert complete.result is None
    assert "too late" not in str(await records_of(thread))


@pytest.mark.parametrize("way", ["an answer", "a cancel", "an error"])
async def test_c15_the_last_record_is_stored_before_the_last_event_is_told(
    way: str, thread: str
) -> None:
    turns: Any = {"an answer": ["hi"], "a cancel": [[["wait", {}]]], "an error": [ModelTrouble()]}
    agent = inline(*turns[way], tools=[wait], hooks=[Puppet()])
    handle = agent.start("x", thread_id=thread)
    seen: list[TulipEvent] = []
    with contextlib.suppress(ModelTrouble):
        async for event in handle.events():
            seen.append(event)
            if event.event_type == "tool_start":
                handle.cancel()
            if isinstance(event, TerminateEvent):
                assert isinstance((await records_of(thread))[-1], RunEnded)
    assert getattr(seen[-2], "node_id", None) == "on_after_invocation"


async def test_c15_a_resumed_segment_calls_the_invocation_hooks_too() -> None:
    agent = inline([["grant", {"amount": 1}]], "Done.", tools=[GRANT[True]], hooks=[Puppet()])
    events, _ = await both_segments(agent)
    told = [name for name, _ in told_by(events) if "invocation" in name]
    assert told == ["on_before_invocation", "on_after_invocation"] * 2


# C8


@pytest.mark.parametrize("stop_reason", sorted(STOP_REASONS))
def test_c8_success_is_true_for_three_stop_reasons_alone(stop_reason: Any) -> None:
    result = AgentResult("", AgentState("run", "thread", "agent"), stop_reason, Metrics())
    assert result.success is (stop_reason in {"complete", "terminal_tool", "confidence_met"})


async def test_c8_the_metrics_count_the_evaluations_of_reflexion() -> None:
    run: Run = await ran(inline([ADD], [FAIL], "Done.", reflexion=True), "x")
    assert run.ok.metrics.reflexion_evaluations == len(run.reflections) == 2
    assert run.ok.confidence == run.end.final_confidence
