"""What the audit leaves: report.md and timeline.svg, made of the run's events alone.

It works on the events of a whole run and of one that was cut short. The numbers are the results of
the child calls; what a model wrote is quoted, and marked as such.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from audit_measures import Facts, summarise_complexity, summarise_documentation, summarise_risk
from audit_timeline import timeline

from tulip_actors import (
    OrchestratorDecisionEvent,
    SpecialistCompleteEvent,
    SpecialistStartEvent,
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
)

WORST_SHOWN = 10
FAILURES_SHOWN = 50


@dataclass(slots=True)
class Member:
    """One specialist's run, as its events tell it."""

    id: str
    state: str = "cut short"
    duration_ms: float | None = None
    process: int | None = None
    turns: int = 0
    said: str = ""
    planned: int = 0
    measured: list[Facts] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    scan: Facts | None = None

    @property
    def found(self) -> Facts:
        """The measured files, as the summaries take them."""
        return {
            "files": self.planned,
            "unreadable": len(self.failures),
            "measured": sorted(self.measured, key=lambda facts: str(facts["path"])),
        }


def members_of(events: Iterable[TulipEvent]) -> list[Member]:
    """The specialists that were started, in that order."""
    members: dict[str, Member] = {}
    paths: dict[tuple[str, str], str] = {}
    for event in events:
        if isinstance(event, SpecialistStartEvent):
            members[event.specialist_id] = Member(event.specialist_id)
        elif isinstance(event, SpecialistCompleteEvent):
            member = members[event.specialist_id]
            member.state = "done" if event.error is None else f"failed: {event.error}"
            member.duration_ms = event.duration_ms
        elif event.source and event.source.specialist_id in members:
            _take(members[event.source.specialist_id], event, paths)
    return list(members.values())


def _take(member: Member, event: TulipEvent, paths: dict[tuple[str, str], str]) -> None:
    """An event of the member's own run."""
    assert event.source is not None, "the caller looked"
    member.process = event.source.pid
    if isinstance(event, ThinkEvent):
        member.turns += 1
        member.said = event.reasoning or member.said
    elif isinstance(event, ToolStartEvent) and event.parent_call_id is not None:
        member.planned += 1
        paths[member.id, event.tool_call_id] = str(event.arguments["path"])
    elif isinstance(event, ToolCompleteEvent) and event.parent_call_id is not None:
        path = paths[member.id, event.tool_call_id]
        if event.result is not None:
            member.measured.append(json.loads(event.result))
        else:
            member.failures[path] = event.error or ""
    elif isinstance(event, ToolCompleteEvent):
        if event.result is not None:
            member.scan = json.loads(event.result)
        else:
            member.refused.append(event.error or "")


def write(folder: Path, result: object, events: Sequence[TulipEvent], out: Path) -> Sequence[Path]:
    """Write both files; returns their paths, the report first."""
    report, picture = out / "report.md", out / "timeline.svg"
    picture.write_text(timeline(events), encoding="utf-8")
    report.write_text(_report(folder, result, events, picture.name), encoding="utf-8")
    return [report, picture]


def _report(folder: Path, result: object, events: Sequence[TulipEvent], picture: str) -> str:
    members = members_of(events)
    parts = [
        f"# Code audit of `{folder.resolve().name}`",
        _overview(folder, result, events, members),
        *(_SECTIONS[one.id](one) for one in members if one.measured and one.id in _SECTIONS),
        _failures(members),
        "## Who worked, and when",
        f"![Who ran when, on which process]({picture})",
        _members_table(members),
        _decisions(events),
        _workers(events),
        _words(result, members),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _overview(
    folder: Path, result: object, events: Sequence[TulipEvent], members: Sequence[Member]
) -> str:
    ends = [e for e in events if isinstance(e, TerminateEvent) and _is_teams(e)]
    seconds = (events[-1].timestamp - events[0].timestamp).total_seconds() if events else 0.0
    planned = sum(member.planned for member in members)
    done = sum(len(member.measured) + len(member.failures) for member in members)
    lines = [
        f"- folder: `{folder.resolve()}`",
        f"- began: {events[0].timestamp:%Y-%m-%d %H:%M:%S} UTC" if events else "- nothing ran",
        f"- took: {seconds:.1f} s from the first event to the last",
        f"- calls: {done} of {planned} planned, one per file and specialist",
        f"- ended: {ends[-1].reason if ends else 'cut short'}",
    ]
    if result is None:
        lines.append("- **This report is partial:** it holds what was found until the run ended.")
    return "\n".join(lines)


def _is_teams(event: TulipEvent) -> bool:
    return event.source is not None and event.source.parent_run_id is None


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers to the right."""
    numbers = [all(isinstance(row[i], int) for row in rows) for i in range(len(heads))]
    marks = ["--:" if number and rows else ":--" for number in numbers]
    listed = [[_cell(value) for value in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(heads), marks, *listed])


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) else " ".join(str(value).split())
    return text.replace("|", "\\|")


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _complexity(member: Member) -> str:
    facts = summarise_complexity(member.found, WORST_SHOWN)
    totals = [(facts["files"], facts["unreadable"], facts["lines"], facts["functions"])]
    longest = [(f"`{f['path']}`", f"`{f['name']}`", f["lines"]) for f in facts["longest"]]
    most = [(f"`{f['path']}`", f"`{f['name']}`", f["complexity"]) for f in facts["most_complex"]]
    return "\n\n".join([
        "## Size and complexity",
        table(["files", "unreadable", "lines", "functions"], totals),
        "The longest function of each file, the longest first:",
        table(["file", "function", "lines"], longest),
        "The most complex function of each file (cyclomatic), the most complex first:",
        table(["file", "function", "complexity"], most),
    ])  # fmt: skip


def _documentation(member: Member) -> str:
    facts = summarise_documentation(member.found, WORST_SHOWN)
    totals = [
        (kind, facts[kind], facts["missing"][kind], _share(facts["missing"][kind], facts[kind]))
        for kind in ("modules", "classes", "functions")
    ]
    worst = [(f"`{f['path']}`", f["missing"]) for f in facts["worst"] if f["missing"]]
    return "\n\n".join([
        "## Documentation",
        table(["", "counted", "without docstring", "share"], totals),
        table(["file", "docstrings missing"], worst) if worst else "No docstring is missing.",
    ])  # fmt: skip


def _risk(member: Member) -> str:
    facts = summarise_risk(member.found, WORST_SHOWN)
    kinds = [(f"`{kind}`", count) for kind, count in facts["kinds"].items()]
    places = [
        (f"`{found['path']}`", ", ".join(f"{r['what']} (line {r['line']})" for r in found["risks"]))
        for found in member.found["measured"]
        if found["risks"]
    ]
    return "\n\n".join([
        "## Risky calls",
        f"{facts['risky_calls']} in {facts['files'] - facts['unreadable']} files.",
        *([table(["what", "times"], kinds), table(["file", "calls"], places)] if kinds else []),
    ])  # fmt: skip


_SECTIONS: Mapping[str, Callable[[Member], str]] = {
    "complexity": _complexity,
    "documentation": _documentation,
    "risk": _risk,
}


def _failures(members: Sequence[Member]) -> str:
    """Files that could not be measured, and calls that were refused or failed."""
    by_file: dict[tuple[str, str], list[str]] = {}
    for member in members:
        for path, error in member.failures.items():
            by_file.setdefault((path, error), []).append(member.id)
    rows = [(f"`{path}`", error, ", ".join(ids)) for (path, error), ids in sorted(by_file.items())]
    parts = []
    if rows:
        shown = table(["file", "why", "told by"], rows[:FAILURES_SHOWN])
        parts += ["## Files that could not be measured", shown]
        if len(rows) > FAILURES_SHOWN:
            parts.append(f"... and {len(rows) - FAILURES_SHOWN} more.")
    failed = [(one.id, "refused: " + text) for one in members for text in one.refused]
    failed += [(one.id, one.state) for one in members if one.state.startswith("failed")]
    failed += [(one.id, "no successful scan") for one in members if one.scan is None]
    if failed:
        parts += ["## Failures", table(["specialist", "what"], failed)]
    return "\n\n".join(parts)


def _members_table(members: Sequence[Member]) -> str:
    return table(
        ["specialist", "state", "agent's process", "turns", "calls done", "planned", "seconds"],
        [
            (
                *(one.id, one.state.partition(":")[0], str(one.process), one.turns),
                *(len(one.measured) + len(one.failures), one.planned),
                "-" if one.duration_ms is None else f"{one.duration_ms / 1000:.1f}",
            )
            for one in members
        ],
    )


def _decisions(events: Sequence[TulipEvent]) -> str:
    taken = [event for event in events if isinstance(event, OrchestratorDecisionEvent)]
    rows = [
        (one.decision, ", ".join(one.specialists_selected), one.reasoning or "") for one in taken
    ]
    fallback = any((one.reasoning or "").startswith("fallback") for one in taken)
    note = "\n\n**The choice is a fallback**, not the model's." if fallback else ""
    return "## Decisions\n\n" + table(["decision", "specialists", "why"], rows) + note


def _workers(events: Sequence[TulipEvent]) -> str:
    calls: Counter[tuple[str, int]] = Counter()
    busy_ms: Counter[tuple[str, int]] = Counter()
    for event in events:
        if isinstance(event, ToolCompleteEvent) and event.parent_call_id and event.worker_pid:
            worker = (event.node_id or "?", event.worker_pid)
            calls[worker] += 1
            busy_ms[worker] += round(event.duration_ms)
    rows = [(f"`{n[:8]}`", str(pid), calls[n, pid], busy_ms[n, pid]) for n, pid in sorted(calls)]
    nodes = len({node for node, _ in calls})
    return "\n\n".join([
        "## Where the calls ran",
        f"Calls: {sum(calls.values())}. Processes: {len(calls)}. Nodes: {nodes}.",
        table(["node", "process", "calls", "busy ms"], rows),
    ])  # fmt: skip


def _words(result: object, members: Sequence[Member]) -> str:
    """What the models wrote. Quoted line by line: it may hold anything."""
    said = [(one.id, one.said) for one in members if one.said]
    summary = getattr(result, "summary", "")
    if summary:
        said.append(("summary", str(summary)))
    if not said:
        return ""
    quotes = [f"**{who}**\n\n" + "\n".join(f"> {x}" for x in t.splitlines()) for who, t in said]
    return "\n\n".join(["## What the models wrote (unchecked; no number above is theirs)", *quotes])
