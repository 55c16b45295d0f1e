"""Server-sent events: bytes in, events out. No I/O.

What may live here: the parser every streaming wire format reads with. It is more forgiving than
the standard, because servers are less careful: what a stream ends with counts also without a
blank line, and a line `error: {...}` is an event.
"""

from __future__ import annotations

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event. `kind` is its `event:` field, empty when there was none."""

    data: str
    kind: str = ""


class SseParser:
    """Takes bytes as they arrive, cut anywhere.

    Lines end with LF, CR or CRLF. They are cut as bytes and decoded whole, so a character that is
    split between two reads is put together again.
    """

    def __init__(self) -> None:
        self._tail = bytearray()
        self._after_cr = False
        self._at_start = True
        self._data: list[str] = []
        self._kind = ""

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that these bytes finish."""
        if self._after_cr and data:
            # The CR has ended the line already; its LF may come with the next read.
            data = data.removeprefix(b"\n")
            self._after_cr = False
        events: list[SseEvent] = []
        for piece in data.splitlines(keepends=True):
            self._tail += piece
            if piece.endswith((b"\n", b"\r")):
                self._end_line(events)
        self._after_cr = data.endswith(b"\r")
        return events

    def end(self) -> list[SseEvent]:
        """The event the stream ended with, if it was not finished by a blank line."""
        events: list[SseEvent] = []
        if self._tail:
            self._end_line(events)
        self._dispatch(events)
        return events

    def _end_line(self, events: list[SseEvent]) -> None:
        raw = bytes(self._tail).rstrip(b"\r\n")
        self._tail.clear()
        if self._at_start:
            raw = raw.removeprefix(_BOM)
            self._at_start = False
        if not raw:
            self._dispatch(events)
            return
        name, _, value = raw.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "error":
            events.append(SseEvent(value, "error"))

    def _dispatch(self, events: list[SseEvent]) -> None:
        data = "\n".join(self._data)
        if data.strip():  # an empty one is a keep-alive
            events.append(SseEvent(data, self._kind))
        self._data, self._kind = [], ""
