"""A run that is conducted again from its start after a crash tells nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tulip_actors.core.emitted import Emitted
from tulip_actors.core.events import (
    ModelChunkEvent,
    RunRecoveredEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
)

VARYING = {"timestamp", "source", "duration_ms", "queued_ms"}
"""Fields in which the second telling of an event may differ from the first."""


class Told:
    """What was emitted before, each event as often as it was."""

    def __init__(self, events: Iterable[Emitted] = ()) -> None:
        self._left = Counter(_what(entry.event) for entry in events)

    def covers(self, event: TulipEvent) -> bool:
        """Whether this event was emitted before; each earlier one covers one."""
        if not self._left:
            return False
        what = _what(event)
        if self._left[what] <= 0:
            return False
        self._left[what] -= 1
        return True


def _what(event: TulipEvent) -> str:
    return event.model_dump_json(exclude=VARYING)


def of_last_turn(events: Iterable[Emitted]) -> list[Emitted]:
    """What was emitted since the model last spoke: by tools, and what is told of calls."""
    turn: list[Emitted] = []
    for entry in events:
        if isinstance(entry.event, ThinkEvent):
            turn.clear()
        else:
            turn.append(entry)
    return turn


class ToldCalls:
    """The calls made by tools in the last turn, as far as they were told of."""

    def __init__(self, events: Iterable[Emitted] = ()) -> None:
        self.open: dict[tuple[str | None, str], ToolStartEvent] = {}
        self.ended: set[tuple[str | None, str]] = set()
        for entry in events:
            event = entry.event
            if isinstance(event, ThinkEvent):
                self.open.clear()
                self.ended.clear()
            elif isinstance(event, ToolStartEvent | ToolCompleteEvent) and event.parent_call_id:
                call = (event.parent_call_id, event.tool_call_id)
                if isinstance(event, ToolStartEvent):
                    self.open[call] = event
                elif self.open.pop(call, None) is not None:
                    self.ended.add(call)


def chunks_discarded(events: Iterable[Emitted]) -> int:
    """How many chunks at the end of what was emitted belong to a turn that is made again."""
    count = 0
    for entry in events:
        if isinstance(entry.event, ModelChunkEvent):
            count += 1
        elif isinstance(entry.event, ThinkEvent | RunRecoveredEvent):
            count = 0
    return count
