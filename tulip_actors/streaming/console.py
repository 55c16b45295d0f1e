"""Events as lines for a person: who, then what, members and their tools' calls indented.

What may live here: `ConsoleHandler`, and one function per event class that says what it shows.
A line is cut to the terminal's width; where there is no terminal it is whole and without colour.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, TypeAlias

from rich.console import Console
from rich.text import Text

from tulip_actors.core.events import (
    AgentRestartedEvent,
    CausalEdgeEvent,
    CausalNodeEvent,
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

WHO_CHARACTERS = 16
ARGUMENT_CHARACTERS = 40
PART_CHARACTERS = 1000
"""No text is shown longer, even where there is no terminal: a tool's result may be a book."""
INDENT = "  "

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red")
# What a terminal would obey: C0 and C1 controls, and the marks that reorder text.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")

Part: TypeAlias = tuple[str, str]
"""A piece of a line and its style."""


class ConsoleHandler:
    """Prints each event it is given: `handler.handle(event)`, or `handler(event)`.

    Writes to `file` (default: standard output), or to a rich `console` of yours. NO_COLOR is
    respected. Streamed pieces of one answer share a line until somebody else speaks.
    """

    def __init__(self, file: IO[str] | None = None, *, console: Console | None = None) -> None:
        self._console = console or Console(file=file, highlight=False)
        self._open_run: str | None = None
        self._colours: dict[str, str] = {}

    def handle(self, event: TulipEvent) -> None:
        """Print an event."""
        if isinstance(event, ModelChunkEvent):
            self._chunk(event)
            return
        self._close_line()
        describe = _DESCRIPTIONS.get(type(event), _unknown)
        line = self._head(event)
        for text, style in describe(event):
            line.append(clean(text), style)
        self._print(line)
        if isinstance(event, TerminateEvent) and _depth(event) == 0 and event.final_message:
            self._message(event.final_message)

    __call__ = handle

    def _chunk(self, event: ModelChunkEvent) -> None:
        """A piece of an answer, put behind the one before it."""
        run_id = event.source.run_id if event.source else ""
        content = clean(event.content or event.reasoning or "")
        if content:
            if self._open_run != run_id:
                self._close_line()
                self._console.print(self._head(event).append("… ", "dim"), end="", soft_wrap=True)
                self._open_run = run_id
            self._console.print(Text(content), end="", soft_wrap=True)
        if event.done and self._open_run == run_id:
            self._close_line()

    def _close_line(self) -> None:
        if self._open_run is not None:
            self._open_run = None
            self._console.print()

    def _head(self, event: TulipEvent) -> Text:
        who = clean(_who(event))
        shown = who if len(who) <= WHO_CHARACTERS else who[: WHO_CHARACTERS - 1] + "…"
        colour = self._colours.setdefault(who, _COLOURS[len(self._colours) % len(_COLOURS)])
        line = Text().append(f"{event.timestamp.astimezone():%H:%M:%S} ", "dim")
        line.append(f"{shown:<{WHO_CHARACTERS}} ", f"bold {colour}")
        return line.append(INDENT * _depth(event))

    def _print(self, line: Text) -> None:
        if self._console.is_terminal:
            line.truncate(self._console.width, overflow="ellipsis")
        self._console.print(line, soft_wrap=True)

    def _message(self, text: str) -> None:
        for line in text.splitlines():
            self._console.print(Text(f"{INDENT}{clean(line)}"), soft_wrap=True)


def clean(text: str) -> str:
    """The text on one line, cut, and without anything that a terminal would obey."""
    shown = _CONTROLS.sub(" ", text[:PART_CHARACTERS])
    return shown + "…" if len(text) > PART_CHARACTERS else shown


def _who(event: TulipEvent) -> str:
    source = event.source
    return "-" if source is None else source.specialist_id or source.agent


def _depth(event: TulipEvent) -> int:
    """0 for a run of its own, 1 for a member's, one more for a call that a tool made."""
    inside = event.source is not None and event.source.parent_run_id is not None
    by_tool = isinstance(event, ToolStartEvent | ToolCompleteEvent) and event.parent_call_id
    return int(inside) + bool(by_tool)


def _called(name: str, arguments: Mapping[str, object]) -> str:
    shown = ", ".join(f"{key}={_short(value)}" for key, value in arguments.items())
    return f"{name}({shown})"


def _short(value: object) -> str:
    # Cut first: an argument may be a megabyte, and repr would copy it.
    if isinstance(value, str):
        shown = repr(value[:ARGUMENT_CHARACTERS])
        cut = len(value) > ARGUMENT_CHARACTERS
    else:
        shown = repr(value)[: ARGUMENT_CHARACTERS + 1]
        cut = len(shown) > ARGUMENT_CHARACTERS
        shown = shown[:ARGUMENT_CHARACTERS]
    return shown + "…" if cut else shown


def _calls(calls: tuple[ToolCall, ...]) -> str:
    return ", ".join(_called(call.name, call.arguments) for call in calls)


def duration(milliseconds: float) -> str:
    """A duration as a person says it: 12 ms, 3.4 s, 2 min 05 s."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {seconds:02d} s"


def _think(event: ThinkEvent) -> Iterator[Part]:
    yield f"turn {event.iteration} ", "dim"
    if event.reasoning:
        yield event.reasoning, ""
    if event.tool_calls:
        yield (" → " if event.reasoning else "→ ") + _calls(event.tool_calls), "bold"
    if not event.reasoning and not event.tool_calls:
        yield "(no text)", "dim"


def _tool_start(event: ToolStartEvent) -> Iterator[Part]:
    yield "▸ " + _called(event.tool_name, event.arguments), ""


def _tool_complete(event: ToolCompleteEvent) -> Iterator[Part]:
    failed = event.error is not None
    yield ("✗ " if failed else "✓ ") + event.tool_name, "red" if failed else "green"
    ran = duration(event.duration_ms)
    if event.worker_pid is not None:
        ran += f", process {event.worker_pid}"
    yield f" ({ran}) ", "dim"
    yield (event.error if event.error is not None else event.result or ""), "red" if failed else ""


def _tool_progress(event: ToolProgressEvent) -> Iterator[Part]:
    yield f"… {event.tool_name} {event.fraction:.0%}", "dim"
    if event.message:
        yield f" {event.message}", "dim"


def _model_complete(event: ModelCompleteEvent) -> Iterator[Part]:
    yield "the model answered ", "dim"
    yield event.content or _calls(event.tool_calls) or "(no text)", ""


def _reflect(event: ReflectEvent) -> Iterator[Part]:
    yield f"reflects on turn {event.iteration}: {event.assessment.replace('_', ' ')}", "bold"
    yield f", confidence {event.new_confidence:.2f} ({event.confidence_delta:+.2f})", ""
    if event.guidance:
        yield f" · {event.guidance}", "dim"


def _grounding(event: GroundingEvent) -> Iterator[Part]:
    open_ = len(event.ungrounded_claims)
    yield f"grounding {event.score:.2f}", "bold red" if event.requires_replan else "bold green"
    yield f", {event.claims_evaluated} claims, {open_} without support", ""
    if event.requires_replan:
        yield ", plans again", "red"
    if event.ungrounded_claims:
        yield f" · {event.ungrounded_claims[0]}", "dim"


def _interrupt(event: InterruptEvent) -> Iterator[Part]:
    yield "? " + event.question, "bold yellow"
    if event.options:
        yield f" [{' / '.join(event.options)}]", "yellow"
    yield f" (answer with interrupt_id {event.interrupt_id})", "dim"


def _terminate(event: TerminateEvent) -> Iterator[Part]:
    yield f"■ ended: {event.reason}", "bold red" if event.stop_reason == "error" else "bold"
    yield f", {event.iterations_used} turns, {event.total_tool_calls} tool calls", ""
    if event.usage:
        yield f", {event.usage.get('total_tokens', 0)} tokens", ""


def _specialist_start(event: SpecialistStartEvent) -> Iterator[Part]:
    yield f"→ {event.specialist_id}", "bold"
    if event.specialist_type and event.specialist_type != event.specialist_id:
        yield f" ({event.specialist_type})", "dim"
    yield f": {event.task}", ""


def _specialist_complete(event: SpecialistCompleteEvent) -> Iterator[Part]:
    failed = event.error is not None
    yield f"← {event.specialist_id} {'failed' if failed else 'is done'}", "red" if failed else ""
    yield f" ({duration(event.duration_ms)}) ", "dim"
    yield event.error if event.error is not None else event.result or "", "red" if failed else ""


def _decision(event: OrchestratorDecisionEvent) -> Iterator[Part]:
    yield f"decides: {event.decision.replace('_', ' ')}", "bold"
    if event.specialists_selected:
        yield f" → {', '.join(event.specialists_selected)}", ""
    if event.reasoning:
        yield f" · {event.reasoning}", "dim"


def _causal_node(event: CausalNodeEvent) -> Iterator[Part]:
    yield f"cause graph: {event.label}", "bold"
    yield f" ({event.node_type}, {event.node_id})", "dim"


def _causal_edge(event: CausalEdgeEvent) -> Iterator[Part]:
    yield f"cause graph: {event.source_id} {event.relationship} {event.target_id}", "bold"
    yield f" (confidence {event.confidence:.2f})", "dim"


def _run_recovered(event: RunRecoveredEvent) -> Iterator[Part]:
    yield f"the run goes on in another process, in turn {event.iteration}", "yellow"
    if event.chunks_discarded:
        yield f"; what was shown of that turn ({event.chunks_discarded} pieces) is void", "dim"


def _agent_restarted(event: AgentRestartedEvent) -> Iterator[Part]:
    yield f"started again (restart {event.restarts})", "yellow"
    if event.runs:
        yield f", takes up {len(event.runs)} run{'s'[: len(event.runs) != 1]}", "dim"


def _unknown(event: TulipEvent) -> Iterator[Part]:
    fields = event.model_dump(mode="json", exclude={"event_type", "timestamp", "source"})
    yield _called(event.event_type, fields), ""


_DESCRIPTIONS: dict[type[TulipEvent], Callable[[Any], Iterator[Part]]] = {
    ThinkEvent: _think,
    ToolStartEvent: _tool_start,
    ToolCompleteEvent: _tool_complete,
    ToolProgressEvent: _tool_progress,
    ModelCompleteEvent: _model_complete,
    ReflectEvent: _reflect,
    GroundingEvent: _grounding,
    InterruptEvent: _interrupt,
    TerminateEvent: _terminate,
    SpecialistStartEvent: _specialist_start,
    SpecialistCompleteEvent: _specialist_complete,
    OrchestratorDecisionEvent: _decision,
    CausalNodeEvent: _causal_node,
    CausalEdgeEvent: _causal_edge,
    RunRecoveredEvent: _run_recovered,
    AgentRestartedEvent: _agent_restarted,
}
"""`ModelChunkEvent` is not here: its pieces share a line. A class of tomorrow is shown as data."""
