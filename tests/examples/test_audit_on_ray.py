"""The whole job as a user starts it: a process, a local Ray, the small real model."""

from __future__ import annotations

import json
import os
import signal
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.cli.process import processes_below, still_there
from tulip_actors import (
    AllEvents,
    SpecialistCompleteEvent,
    SpecialistStartEvent,
    TerminateEvent,
    ToolCompleteEvent,
    TulipEvent,
)

# They start a Ray and a model of their own, on cores that others may be using.
pytestmark = [pytest.mark.local_model, pytest.mark.slow, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
AUDIT = ROOT / "examples" / "audit_team.py"
EVENT: TypeAdapter[TulipEvent] = TypeAdapter(AllEvents)
SOURCE = '"""One."""\n\n\ndef f(x):\n    return eval(x) if x else None\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "Über uns" / "web shop"
    folder.mkdir(parents=True)
    for number in range(12):
        (folder / f"m{number}.py").write_text(SOURCE)
    (folder / "broken.py").write_text("def f(:\n")
    return folder


def test_the_job_ends_with_a_report_and_its_parts_ran_in_processes_of_their_own(cli, project):
    process = cli.start("run", AUDIT, project, "--json", "--out", "made")
    events: list[TulipEvent] = []
    below: dict[int, str] = {}
    for line in process.stdout:
        events.append(EVENT.validate_json(line))
        if isinstance(events[-1], SpecialistCompleteEvent):
            below |= processes_below(process.pid)
    err = process.stderr.read()
    assert process.wait(20) == 0, err
    assert "wrote made/report.md" in err
    assert any("tulip_actors.models.local_server" in command for command in below.values())
    assert still_there(below, within_s=15) == []

    agents = {e.source.specialist_id: e.source.pid for e in events if e.source}
    workers = {e.worker_pid for e in events if isinstance(e, ToolCompleteEvent)}
    assert set(agents) == {None, "complexity", "documentation", "risk"}
    assert len(set(agents.values())) == 4
    assert not workers & {process.pid, *agents.values(), None}

    spans = {
        e.specialist_id: (start.timestamp, e.timestamp)
        for e in events
        if isinstance(e, SpecialistCompleteEvent)
        for start in events
        if isinstance(start, SpecialistStartEvent) and start.member_run_id == e.member_run_id
    }
    assert len(spans) == 3
    assert all(a[0] < b[1] and b[0] < a[1] for a, b in combinations(spans.values(), 2))

    report = (cli.folder / "made" / "report.md").read_text()
    assert "| 13 | 1 | 60 | 12 |" in report
    assert "| `eval` | 12 |" in report
    assert report.count("`broken.py`") == 1
    scans = [e for e in events if isinstance(e, ToolCompleteEvent) and e.parent_call_id is None]
    assert [json.loads(scan.result or "")["files"] for scan in scans] == [13, 13, 13]
    assert (cli.folder / "made" / "timeline.svg").is_file()


def test_ctrl_c_leaves_a_partial_report_and_no_process(cli, project):
    for number in range(400):
        (project / f"n{number}.py").write_text(SOURCE)
    process = cli.start("run", AUDIT, project, "--json")
    below: dict[int, str] = {}
    last: dict[str, Any] = {}
    for line in process.stdout:
        last = json.loads(line)
        if not below and last["event_type"] == "tool_complete" and last["parent_call_id"]:
            below = processes_below(process.pid)
            os.killpg(process.pid, signal.SIGINT)  # as the terminal does, to the whole group
    err = process.stderr.read()
    assert process.wait(20) == 130, err
    assert "wrote report.md (partial)" in err
    assert "Traceback" not in err
    assert any("tulip_actors.models.local_server" in command for command in below.values())
    assert still_there(below, within_s=15) == []
    assert TerminateEvent.model_validate(last).reason == "cancelled"
    report = (cli.folder / "report.md").read_text()
    assert "**This report is partial:**" in report
    assert "- ended: cancelled" in report
    assert (cli.folder / "timeline.svg").is_file()
