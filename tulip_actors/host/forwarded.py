"""A member's events join the stream of the run that started it."""

from __future__ import annotations

from tulip_actors.core.ports import ChildRun
from tulip_actors.host.sink import RunSink


class Forwarded:
    """A child's events on their way to its parent's stream, from where they were left."""

    def __init__(self, child: ChildRun, sink: RunSink) -> None:
        self._child = child
        self._sink = sink
        self._position = 0

    async def to_the_end(self) -> None:
        """Pass on what the child emits until it has ended."""
        async for entries in self._child.packed_events(self._position):
            self._position += len(entries)
            self._sink.forward(entries)
