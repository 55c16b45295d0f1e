"""The log of the event bus, as one process or the services actor keeps it."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from tulip_actors.core.bus import BusPage, BusQuery, EventBatch
from tulip_actors.host.waiters import Waiters

RETAINED_BYTES = 256 * 1024 * 1024
"""What a log keeps; the oldest whole batches go first."""
PAGE_EVENTS = 2_000
RUNS_REMEMBERED = 100_000
"""Runs whose newest event is known, so that none is taken twice."""


class MemoryBusLog:
    """A bounded log of whole batches. Positions count events from `first` on, and never start
    again: a log that takes the place of another begins beyond it."""

    def __init__(self, retained_bytes: int = RETAINED_BYTES, *, first: int = 0) -> None:
        self._retained_bytes = retained_bytes
        self._batches: deque[tuple[int, EventBatch]] = deque()
        self._bytes = 0
        self._first = self._end = first
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._waiters = Waiters()
        self._lock = threading.Lock()  # runs and subscribers may be on different event loops

    async def publish(self, batch: EventBatch) -> None:
        """Append a batch; one that is larger than the whole log is kept alone. Events that are here
        already are left out."""
        with self._lock:
            batch = self._unknown(batch)
            if not batch.packed:
                return
            self._batches.append((self._end, batch))
            self._end += len(batch.packed)
            self._bytes += _size(batch)
            while self._bytes > self._retained_bytes and len(self._batches) > 1:
                self._bytes -= _size(self._batches.popleft()[1])
        self._waiters.wake()

    def _unknown(self, batch: EventBatch) -> EventBatch:
        """The batch without the events that were published before."""
        newest = self._newest
        is_new: list[bool] = []
        for run_id, seq in batch.numbers:
            is_new.append(seq > newest.get(run_id, -1))
            if is_new[-1]:
                newest[run_id] = seq
        for run_id in batch.run_ids:
            if run_id in newest:
                newest.move_to_end(run_id)
        while len(newest) > RUNS_REMEMBERED:
            newest.popitem(last=False)
        if all(is_new):
            return batch
        return replace(
            batch,
            packed=tuple(compress(batch.packed, is_new)),
            numbers=tuple(compress(batch.numbers, is_new)),
        )

    async def poll(self, query: BusQuery) -> BusPage:
        """What may match after the query's position; waits for more when there is nothing."""
        page = self._page(query)
        if page.batches or page.missed != 0 or query.wait_s <= 0:
            return page
        try:
            async with asyncio.timeout(query.wait_s):
                await self._waiters.wait_until(lambda: self._end > page.end)
        except TimeoutError:
            return page
        return self._page(query)

    def _page(self, query: BusQuery) -> BusPage:
        with self._lock:
            return self._page_now(query)

    def _page_now(self, query: BusQuery) -> BusPage:
        oldest = self._batches[0][0] if self._batches else self._end
        after = oldest if query.after is None else query.after
        missed = None if after < self._first else max(0, oldest - after)
        position = max(after, oldest)
        found: list[tuple[int, EventBatch]] = []
        events = 0
        for start, batch in self._from(position):
            if events >= PAGE_EVENTS:
                return BusPage(found, start, missed, oldest, self._end)
            if query.may_match(batch):
                found.append((start, batch))
                events += len(batch.packed)
        return BusPage(found, max(position, self._end), missed, oldest, self._end)

    def _from(self, position: int) -> Sequence[tuple[int, EventBatch]]:
        """Batches that hold something at or after a position, oldest first."""
        wanted: list[tuple[int, EventBatch]] = []
        for start, batch in reversed(self._batches):
            if start + len(batch.packed) <= position:
                break
            wanted.append((start, batch))
        wanted.reverse()
        return wanted


def _size(batch: EventBatch) -> int:
    return sum(map(len, batch.packed))
