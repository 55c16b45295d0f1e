"""What a running job shows, counted from events alone."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from tulip_actors.cli.progress import LineView, LiveView, Tally
from tulip_actors.core.events import (
    EventSource,
    OrchestratorDecisionEvent,
    SpecialistCompleteEvent,
    SpecialistStartEvent,
    TerminateEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
)

TEAM = EventSource(run_id="r", thread_id="r", agent="team", seq=0, node_id="n", pid=1)
MEMBER = replace(TEAM, run_id="m", parent_run_id="r", agent="docs", specialist_id="docs")


def call(number: int, parent: str | None = "c") -> ToolStartEvent:
    return ToolStartEvent(
        tool_name="scan", tool_call_id=f"c.{number}", parent_call_id=parent, source=MEMBER
    )


def ended(number: int, error: str | None = None) -> ToolCompleteEvent:
    return ToolCompleteEvent(
        tool_name="scan", tool_call_id=f"c.{number}", parent_call_id="c", error=error, source=MEMBER
    )


SO_FAR: list[TulipEvent] = [
    OrchestratorDecisionEvent(decision="invoke_specialist", source=TEAM),
    SpecialistStartEvent(specialist_id="docs", task="t", member_run_id="m", source=TEAM),
    call(0, parent=None),
    *(call(number) for number in range(4)),
    ended(0),
    ended(1, error="no"),
]


def test_calls_planned_are_those_a_tool_started_and_done_those_that_ended():
    tally = Tally()
    for event in SO_FAR:
        tally.take(event)
    member = tally.members["docs"]
    assert (member.planned, member.done, member.failed) == (4, 2, 1)
    assert (member.state, tally.planned, tally.done) == ("runs scan", 4, 2)
    assert tally.phase == "invoke specialist"


def test_the_end_of_a_member_and_of_the_team_are_told_apart():
    tally = Tally()
    for event in SO_FAR:
        tally.take(event)
    tally.take(
        SpecialistCompleteEvent(
            specialist_id="docs", member_run_id="m", error="x", duration_ms=2000, source=TEAM
        )
    )
    tally.take(TerminateEvent(reason="complete", source=TEAM))
    assert tally.members["docs"].state == "failed"
    assert list(tally.members) == ["docs"]
    assert tally.phase == "complete"


def test_the_live_view_shows_calls_done_of_planned_and_the_time():
    out = io.StringIO()
    now_s = iter([0.0, 3.0, 3.0])
    view = LiveView(Console(file=out, width=80), clock_s=lambda: next(now_s))
    for event in SO_FAR:
        view.take(event)
    Console(file=out, width=80).print(view.render())
    assert "2 of 4 calls · 3.0 s" in out.getvalue()
    assert "docs  runs scan" in out.getvalue()
    assert "2/4 1 failed" in out.getvalue()


def test_without_a_terminal_there_is_a_line_now_and_then():
    out = io.StringIO()
    now_s = iter([0.0, *(float(second) for second in range(len(SO_FAR) + 1))])
    view = LineView(Console(file=out, width=80), clock_s=lambda: next(now_s))
    for event in SO_FAR:
        view.take(event)
    view.stop()
    lines = out.getvalue().splitlines()
    assert [line for line in lines if " calls; " in line] == [
        "5.0 s: 0 of 3 calls; docs: runs scan 0/3",
        "9.0 s: 2 of 4 calls; docs: runs scan 2/4 1 failed",
    ]
