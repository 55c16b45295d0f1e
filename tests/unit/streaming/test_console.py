"""The console handler: every event class as a line that a person can read."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from rich.console import Console

from tulip_actors.core.events import (
    AgentRestartedEvent,
    AllEvents,
    CausalEdgeEvent,
    CausalNodeEvent,
    EventSource,
    GroundingEvent,
    InterruptEvent,
    ModelChunkEvent,
    ModelCompleteEvent,
    OrchestratorDecisionEvent,
    ReflectEvent,
    RunRecoveredEvent,
    SpecialistCompleteEvent,
    SpecialistStartEvent,
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolProgressEvent,
    ToolStartEvent,
    TulipEvent,
)
from tulip_actors.core.messages import ToolCall
from tulip_actors.streaming import ConsoleHandler
from tulip_actors.streaming.console import duration

SHOWN: list[tuple[TulipEvent, list[str]]] = [
    (
        ThinkEvent(iteration=2, reasoning="hm", tool_calls=(ToolCall("c", "add", {"a": 1}),)),
        ["turn 2", "hm", "add(a=1)"],
    ),
    (ToolStartEvent(tool_name="add", tool_call_id="c", arguments={"a": 1}), ["add(a=1)"]),
    (
        ToolCompleteEvent(tool_name="add", tool_call_id="c", result="3", duration_ms=1500.0),
        ["✓ add", "1.5 s", "3"],
    ),
    (
        ToolProgressEvent(tool_name="copy", tool_call_id="c", fraction=0.25, message="disk 1"),
        ["copy 25%", "disk 1"],
    ),
    (ModelChunkEvent(content="Once upon"), ["Once upon"]),
    (ModelCompleteEvent(content="the end"), ["the end"]),
    (
        ReflectEvent(
            iteration=1,
            assessment="on_track",
            confidence_delta=0.1,
            new_confidence=0.6,
            guidance="go on",
        ),
        ["turn 1", "on track", "0.60", "+0.10", "go on"],
    ),
    (
        GroundingEvent(
            score=0.4, claims_evaluated=3, ungrounded_claims=("It rains.",), requires_replan=True
        ),
        ["0.40", "3 claims", "1 without support", "plans again", "It rains."],
    ),
    (
        InterruptEvent(question="Refund?", options=("yes", "no"), interrupt_id="i1"),
        ["Refund?", "yes / no", "i1"],
    ),
    (
        TerminateEvent(
            reason="MaxIterations", iterations_used=3, total_tool_calls=2, final_message="All done."
        ),
        ["MaxIterations", "3 turns", "2 tool calls", "All done."],
    ),
    (
        SpecialistStartEvent(specialist_id="docs", task="look", member_run_id="r"),
        ["→ docs", "look"],
    ),
    (
        SpecialistCompleteEvent(specialist_id="docs", member_run_id="r", error="lost"),
        ["docs failed", "lost"],
    ),
    (
        OrchestratorDecisionEvent(
            decision="invoke_specialist", specialists_selected=("a", "b"), reasoning="why"
        ),
        ["invoke specialist", "a, b", "why"],
    ),
    (CausalNodeEvent(node_id="n1", label="disk full"), ["disk full", "n1"]),
    (CausalEdgeEvent(source_id="n1", target_id="n2"), ["n1 causes n2", "1.00"]),
    (
        RunRecoveredEvent(iteration=3, chunks_discarded=2),
        ["goes on in another process", "turn 3", "2 pieces", "void"],
    ),
    (AgentRestartedEvent(restarts=2, runs=("r1", "r2")), ["restart 2", "takes up 2 runs"]),
]


def source(agent: str = "team", **fields: Any) -> EventSource:
    given: dict[str, Any] = {
        "run_id": "r",
        "thread_id": "t",
        "seq": 0,
        "node_id": "n",
        "pid": 1,
        **fields,
    }
    return EventSource(agent=agent, **given)


def printed(*events: TulipEvent, **console: Any) -> str:
    out = io.StringIO()
    handler = ConsoleHandler(console=Console(file=out, highlight=False, **console))
    for event in events:
        handler.handle(event)
    return out.getvalue()


def test_every_class_of_event_is_tried_here():
    assert {type(event) for event, _ in SHOWN} == set(get_args(get_args(AllEvents)[0]))


@pytest.mark.parametrize(("event", "words"), SHOWN, ids=lambda value: type(value).__name__)
def test_an_event_shows_what_it_says(event, words):
    text = printed(event)
    assert [word for word in words if word not in text] == []
    assert "\x1b" not in text


def test_a_class_of_tomorrow_is_shown_as_data():
    class RunMoved(TulipEvent):
        event_type: str = "run_moved"
        node: str = "n2"

    assert "run_moved(node='n2')" in printed(RunMoved())


def test_members_and_the_calls_of_their_tools_are_indented():
    member = source("docs", parent_run_id="r0", specialist_id="docs")
    text = printed(
        OrchestratorDecisionEvent(decision="finalize", source=source()),
        ToolStartEvent(tool_name="scan", tool_call_id="1", source=member),
        ToolStartEvent(tool_name="one", tool_call_id="2", parent_call_id="1", source=member),
    )
    columns = [line.index(mark) for line, mark in zip(text.splitlines(), "d▸▸", strict=True)]
    assert columns[1] - columns[0] == 2
    assert columns[2] - columns[1] == 2
    assert [line.split()[1] for line in text.splitlines()] == ["team", "docs", "docs"]


def test_a_line_is_cut_to_the_terminal_and_whole_without_one():
    event = ThinkEvent(iteration=0, reasoning="word " * 40)
    narrow = printed(event, force_terminal=True, width=50, color_system=None)
    assert [len(line) for line in narrow.splitlines()] == [50]
    assert narrow.rstrip().endswith("…")
    assert printed(event).count("word") == 40


def test_there_are_no_colours_with_no_color(monkeypatch):
    event = TerminateEvent(reason="error", stop_reason="error")
    assert "\x1b[1;31m" in printed(event, force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in printed(event, force_terminal=True, color_system="standard")


def test_nothing_in_an_event_reaches_the_terminal_as_a_command():
    text = printed(
        ToolCompleteEvent(tool_name="t", tool_call_id="c", result="\x1b[2Jgone\r\n[red]x"),
        force_terminal=True,
        color_system=None,
    )
    assert "\x1b[2J" not in text
    assert "[red]x" in text
    assert len(text.splitlines()) == 1


def test_the_pieces_of_one_answer_share_a_line_until_somebody_else_speaks():
    one, other = source(run_id="r1"), source("other", run_id="r2")
    text = printed(
        ModelChunkEvent(content="Once ", source=one),
        ModelChunkEvent(content="upon", source=one),
        ThinkEvent(iteration=0, reasoning="hm", source=other),
        ModelChunkEvent(content=" a time", source=one),
        ModelChunkEvent(done=True, source=one),
        ThinkEvent(iteration=0, reasoning="Once upon a time", source=one),
    )
    lines = text.splitlines()
    assert len(lines) == 4
    assert lines[0].endswith("Once upon")
    assert lines[2].endswith(" a time")


def test_a_handler_can_be_called_like_a_function(capsys):
    ConsoleHandler()(ThinkEvent(iteration=0, reasoning="hello"))
    assert "hello" in capsys.readouterr().out


def test_a_long_argument_is_cut_before_it_is_copied():
    text = printed(ToolStartEvent(tool_name="t", tool_call_id="c", arguments={"s": "x" * 10**6}))
    assert len(text) < 200


def test_the_time_is_the_events_own():
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert f"{at.astimezone():%H:%M:%S}" in printed(ThinkEvent(iteration=0, timestamp=at))


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(0, "0 ms"), (999, "999 ms"), (3400, "3.4 s"), (125000, "2 min 05 s")],
)
def test_a_duration_is_said_as_a_person_does(milliseconds, said):
    assert duration(milliseconds) == said
