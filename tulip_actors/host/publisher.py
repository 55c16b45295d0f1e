"""Events on their way to the bus: self-clocking, at most one publish in flight per process.

What comes while a publish is under way, or less than `PAUSE_S` after the last one, makes the next
batch, so batches grow with load and a bus that is slow slows nobody but its readers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from tulip_actors.core.bus import EventBatch
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.events import TulipEvent
from tulip_actors.core.ports import BusLog
from tulip_actors.errors import BusRestarted, ClusterError

_log = logging.getLogger(__name__)
PAUSE_S = 0.02
"""Between two publishes: a bus takes few large batches better than many small ones."""
RETRIES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Waits between attempts at a bus that is away: it restarts in about a second."""


class Publisher:
    """Publishes to one bus, in order. `under_way` gives all events so far of the runs that have not
    ended, for a bus that has begun anew."""

    def __init__(
        self, bus: BusLog, under_way: Callable[[], Sequence[Emitted]] = lambda: ()
    ) -> None:
        self._bus = bus
        self._under_way = under_way
        self._buffer: list[Emitted] = []
        self._sending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at_s = -PAUSE_S
        self._taken = 0
        self._sent = 0
        self.dropped = 0

    def put(self, entries: Sequence[Emitted]) -> None:
        """Take events; the publish begins by itself."""
        self._buffer.extend(entries)
        self._taken += len(entries)
        if self._timer is None and self._sending is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._sent_at_s + PAUSE_S, self._begin)

    async def flush(self) -> None:
        """Wait until everything taken is on the bus, or was given up with a warning."""
        taken = self._taken
        while self._sent < taken:
            await asyncio.shield(self._begin())

    def probe(self) -> None:
        """The bus may have begun anew: find out, and give it what it lacks."""
        self._begin(probe=True)

    def _begin(self, *, probe: bool = False) -> asyncio.Task[None]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send(probe))
        return self._sending

    async def _send(self, probe: bool) -> None:
        try:
            while self._buffer or probe:
                probe = False
                entries, self._buffer = self._buffer, []
                try:
                    await self._publish(_batch_of(entries))
                    self._sent += len(entries)
                except BusRestarted:
                    self._start_over(entries)
        finally:
            self._sent_at_s = asyncio.get_running_loop().time()
            self._sending = None

    async def _publish(self, batch: EventBatch) -> None:
        for wait_s in (*RETRIES_S, None):
            try:
                await self._bus.publish(batch)
                return
            except BusRestarted:
                raise
            except ClusterError as error:
                if wait_s is None:
                    self._give_up(batch, error)
                else:
                    await asyncio.sleep(wait_s)
            except Exception as error:  # the runs go on: their own streams have the events
                self._give_up(batch, error)
                return

    def _start_over(self, unsent: Sequence[Emitted]) -> None:
        """The bus has begun anew: it gets all of the runs under way, and of others what was
        not sent yet."""
        waiting = [*unsent, *self._buffer]
        everything = self._under_way()
        runs = {entry.run_id for entry in everything}
        self._buffer = [*everything, *[entry for entry in waiting if entry.run_id not in runs]]
        self._taken = self._sent + len(self._buffer)

    def _give_up(self, batch: EventBatch, error: Exception) -> None:
        self.dropped += len(batch.packed)
        _log.warning(
            "%d events are missing on the event bus (the runs' own streams have them): %s",
            len(batch.packed),
            error,
        )


def _batch_of(entries: Sequence[Emitted]) -> EventBatch:
    """A batch of events and its header."""
    events = [entry.event for entry in entries]
    numbers = tuple([(entry.run_id, entry.seq) for entry in entries])
    return batch_of(events, [entry.packed_only() for entry in entries], numbers)


def batch_of(
    events: Sequence[TulipEvent],
    packed: Sequence[bytes],
    numbers: tuple[tuple[str, int], ...] = (),
) -> EventBatch:
    """A batch of packed events, with a header that says what is inside."""
    sources = [source for event in events if (source := event.source) is not None]
    return EventBatch(
        packed=tuple(packed),
        run_ids=frozenset([source.run_id for source in sources]),
        agents=frozenset([source.agent for source in sources]),
        types=frozenset([event.event_type for event in events]),
        numbers=numbers,
    )
