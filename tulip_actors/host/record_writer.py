"""Records on their way to the store: buffered, in order, at most one write in flight.

The loop records without waiting and awaits `durable` only before an effect; meanwhile the next
write collects what came since. A store that appends at once is written to at once. After a failed
write nothing more is written: `durable` raises the failure, and the run ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tulip_actors.core.ports import ImmediateRunStore, RunStore
from tulip_actors.core.runs import Record


class RecordWriter:
    """One run's way into its thread's log. `on_durable` is called after every write."""

    def __init__(
        self, store: RunStore, thread_id: str, epoch: int, on_durable: Callable[[], None]
    ) -> None:
        self._store = store
        self._immediate = store if isinstance(store, ImmediateRunStore) else None
        self._thread_id = thread_id
        self.epoch = epoch
        self._on_durable = on_durable
        self._buffer: list[Record] = []
        self._writing: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self.taken = 0
        self.written = 0

    @property
    def blocked(self) -> bool:
        """True while something taken is not yet stored and still may be."""
        return self.written < self.taken and self._failure is None

    def add(self, records: tuple[Record, ...]) -> None:
        """Take records; the write begins by itself."""
        self.taken += len(records)
        if self._failure is not None:
            return
        if self._immediate is not None:
            try:
                self._immediate.append_now(self._thread_id, self.epoch, records)
                self.written += len(records)
            except Exception as failure:  # kept, and raised to whoever awaits durability
                self._failure = failure
            return
        self._buffer.extend(records)
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())

    async def durable(self) -> None:
        """Wait until everything taken is stored. Raises what the store raised."""
        while self._writing is not None:
            await asyncio.shield(self._writing)
        if self._failure is not None:
            raise self._failure

    async def _write(self) -> None:
        try:
            while self._buffer:
                batch, self._buffer = self._buffer, []
                await self._store.append(self._thread_id, self.epoch, batch)
                self.written += len(batch)
                self._on_durable()
        except Exception as failure:  # kept, and raised to whoever awaits durability
            self._failure = failure
            self._on_durable()
        finally:
            self._writing = None
