"""How a running job looks: who is at work, calls done of calls planned, time elapsed.

What may live here: `Tally`, which counts from events alone, and the three ways to show it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tulip_actors.core.events import (
    OrchestratorDecisionEvent,
    SpecialistCompleteEvent,
    SpecialistStartEvent,
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
)
from tulip_actors.streaming.console import ConsoleHandler, clean, duration

LINE_EVERY_S = 5.0
REFRESH_PER_S = 8


@dataclass(slots=True)
class MemberTally:
    """One member's state. `planned` and `done` count the calls that its tools made."""

    name: str
    state: str = "begins"
    planned: int = 0
    done: int = 0
    failed: int = 0
    elapsed_ms: float | None = None


@dataclass(slots=True)
class Tally:
    """What the events so far say."""

    members: dict[str, MemberTally] = field(default_factory=dict)
    phase: str = "starting"

    @property
    def planned(self) -> int:
        """Calls that the members' tools have asked for."""
        return sum(member.planned for member in self.members.values())

    @property
    def done(self) -> int:
        """Those of them that ended, well or not."""
        return sum(member.done for member in self.members.values())

    def take(self, event: TulipEvent) -> None:
        """Count an event."""
        match event:
            case OrchestratorDecisionEvent():
                self.phase = event.decision.replace("_", " ")
            case SpecialistStartEvent():
                self._named(event.specialist_id)
            case SpecialistCompleteEvent():
                member = self._named(event.specialist_id)
                member.state = "done" if event.error is None else "failed"
                member.elapsed_ms = event.duration_ms
            case TerminateEvent(source=source) if source and source.parent_run_id is None:
                self.phase = event.reason
            case _ if event.source is not None:
                self._member(self._named(event.source.specialist_id or event.source.agent), event)

    def _named(self, name: str) -> MemberTally:
        return self.members.setdefault(name, MemberTally(name))

    def _member(self, member: MemberTally, event: TulipEvent) -> None:
        match event:
            case ToolStartEvent(parent_call_id=None):
                member.state = f"runs {event.tool_name}"
            case ToolStartEvent():
                member.planned += 1
            case ToolCompleteEvent(parent_call_id=None):
                member.state = "thinks"
            case ToolCompleteEvent():
                member.done += 1
                member.failed += event.error is not None
            case ThinkEvent():
                member.state = "answers" if not event.tool_calls else member.state
            case TerminateEvent():
                member.state = event.reason


class View(Protocol):
    """Shows a job while it runs."""

    def take(self, event: TulipEvent) -> None:
        """An event has come."""
        ...

    def start(self) -> None:
        """The job begins."""
        ...

    def stop(self) -> None:
        """The job has ended, in whatever way."""
        ...


class LiveView:
    """A table that changes in place, for a terminal."""

    def __init__(self, console: Console, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._tally = Tally()
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._live = Live(
            console=console, refresh_per_second=REFRESH_PER_S, get_renderable=self.render
        )

    def take(self, event: TulipEvent) -> None:
        """See `View`."""
        self._tally.take(event)

    def start(self) -> None:
        """See `View`."""
        self._live.start()

    def stop(self) -> None:
        """See `View`."""
        self._live.stop()

    def render(self) -> Group:
        """The table as it is now."""
        tally = self._tally
        elapsed = duration((self._clock_s() - self._began_s) * 1000)
        head = Text(f"{tally.phase} · {tally.done} of {tally.planned} calls · {elapsed}", "bold")
        table = Table(box=None, pad_edge=False, show_header=False)
        for member in list(tally.members.values()):
            table.add_row(
                Text(clean(member.name), "bold"),
                Text(clean(member.state), "red" if member.state == "failed" else "green"),
                _bar(member),
                Text(_counts(member), "dim"),
            )
        return Group(head, table)


class LineView:
    """A line now and then, where there is no terminal to draw on."""

    def __init__(self, console: Console, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._tally = Tally()
        self._console = console
        self._events = ConsoleHandler(console=console)
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._said_s = self._began_s

    def take(self, event: TulipEvent) -> None:
        """See `View`."""
        self._tally.take(event)
        now_s = self._clock_s()
        if isinstance(
            event, OrchestratorDecisionEvent | SpecialistStartEvent | SpecialistCompleteEvent
        ):
            self._events.handle(event)
        if now_s - self._said_s >= LINE_EVERY_S:
            self._say(now_s)

    def start(self) -> None:
        """See `View`."""

    def stop(self) -> None:
        """See `View`."""
        self._say(self._clock_s())

    def _say(self, now_s: float) -> None:
        self._said_s = now_s
        each = ", ".join(
            f"{clean(one.name)}: {clean(one.state)} {_counts(one)}".rstrip()
            for one in self._tally.members.values()
        )
        elapsed = duration((now_s - self._began_s) * 1000)
        line = f"{elapsed}: {self._tally.done} of {self._tally.planned} calls; {each}"
        self._console.print(Text(line), soft_wrap=True)


class JsonView:
    """One JSON event per line."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def take(self, event: TulipEvent) -> None:
        """See `View`."""
        self._out.write(event.model_dump_json() + "\n")
        self._out.flush()

    def start(self) -> None:
        """See `View`."""

    def stop(self) -> None:
        """See `View`."""


def view_for_people() -> View:
    """What fits standard output."""
    console = Console(file=sys.stdout, highlight=False)
    return LiveView(console) if console.is_terminal else LineView(console)


def _bar(member: MemberTally, width: int = 24) -> Text:
    filled = round(width * member.done / member.planned) if member.planned else 0
    return Text("█" * filled, "cyan").append("░" * (width - filled), "dim")


def _counts(member: MemberTally) -> str:
    parts = [f"{member.done}/{member.planned}"] if member.planned else []
    parts += [f"{member.failed} failed"] if member.failed else []
    parts += [duration(member.elapsed_ms)] if member.elapsed_ms is not None else []
    return " ".join(parts)
