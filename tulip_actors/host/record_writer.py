"""Records and events on their way to the store: buffered, in order, at most one write in flight.

The loop records without waiting and awaits `durable` only before an effect; meanwhile the next
write collects what came since. What is taken without giving the event loop back goes into one
write, so a record and the events that tell of it are stored together or not at all. A store that
keeps no events and appends at once is written to at once.

A store that has lost its memory of the thread is given everything again. After any other failed
write nothing more is written: `durable` raises the failure, and the run ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tulip_actors.core.emitted import Emitted
from tulip_actors.core.ports import ImmediateRunStore, RunStore
from tulip_actors.core.runs import Record
from tulip_actors.errors import StaleEpoch, ThreadForgotten

Everything: TypeAlias = Callable[[], tuple[Sequence[Record], Sequence[Emitted]]]
"""All that a run has recorded and emitted so far."""


@dataclass(frozen=True, slots=True)
class Claim:
    """By what right a run writes into its thread."""

    thread_id: str
    owner: str
    host_id: str
    lease_s: float

    async def acquired(self, store: RunStore, above: int = 0) -> int:
        """The epoch, once the store has given the thread. Raises `ThreadBusy`."""
        return await store.acquire(
            self.thread_id, self.owner, self.lease_s, host_id=self.host_id, above=above
        )


class RecordWriter:
    """One run's way into its thread's log. `on_durable` is called after every write."""

    def __init__(
        self,
        store: RunStore,
        claim: Claim,
        epoch: int,
        on_durable: Callable[[], None],
        everything: Everything,
    ) -> None:
        self.keeps_events = store.keeps_events
        self._store = store
        self._immediate = store if isinstance(store, ImmediateRunStore) else None
        self._claim = claim
        self.epoch = epoch
        self._on_durable = on_durable
        self._everything = everything
        self._records: list[Record] = []
        self._events: list[Emitted] = []
        self._writing: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._is_due = False
        self._gave_way = False
        self.failure: Exception | None = None
        self.taken = 0
        self.written = 0

    @property
    def blocked(self) -> bool:
        """True while something taken is not yet stored and still may be."""
        return self.written < self.taken and self.failure is None

    @property
    def is_stale(self) -> bool:
        """Whether another incarnation has taken the thread: what is not stored is not ours to
        tell."""
        return isinstance(self.failure, StaleEpoch)

    def add(self, records: tuple[Record, ...]) -> None:
        """Take records; the write begins by itself."""
        if self._gave_way:
            return
        self.taken += len(records)
        if self.failure is not None:
            return
        if self._immediate is not None and not self.keeps_events:
            self._write_now(self._immediate, records, ())
            return
        self._records.extend(records)
        self._begin()

    def add_event(self, event: Emitted) -> None:
        """Take an event, for a store that keeps them."""
        if self._gave_way:
            return
        self.taken += 1
        if self.failure is None:
            self._events.append(event)
            self._begin()

    async def durable(self) -> None:
        """Wait until everything taken is stored. Raises what the store raised."""
        await self._settled()
        if self._gave_way:
            await asyncio.Event().wait()

    async def _settled(self) -> None:
        self._flush()
        if self._writing is not None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if self.failure is not None:
            raise self.failure

    async def renew(self) -> None:
        """Keep the lease; a store that has forgotten the thread is given it again."""
        if self._gave_way:
            return
        try:
            await self._store.renew(self._claim.thread_id, self.epoch, self._claim.lease_s)
        except ThreadForgotten:
            self._is_due = False
            if self._writing is None:
                self._writing = asyncio.ensure_future(self._write(anew=True))
            await self.durable()

    async def give_way(self) -> None:
        """Store what was taken, take no more, and let the thread be had at once.

        It is not given back: who looks for what this host has left finds it. Whoever waits for more
        to be durable waits for ever, so no effect begins any more.
        """
        self._gave_way = True
        await self._settled()
        await self._store.renew(self._claim.thread_id, self.epoch, 0.0)

    async def release(self) -> None:
        """Give the thread back."""
        if self._gave_way:
            return
        await self._store.release(self._claim.thread_id, self.epoch)

    def _begin(self) -> None:
        if self._immediate is None:
            if self._writing is None:
                self._writing = asyncio.ensure_future(self._write())
        elif not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Write what a store that appends at once has not been given yet."""
        if self._is_due and self._immediate is not None:
            self._is_due = False
            records, events = self._taken_out()
            self._write_now(self._immediate, records, events)
            self._on_durable()

    def _write_now(
        self, store: ImmediateRunStore, records: Sequence[Record], events: Sequence[Emitted]
    ) -> None:
        try:
            store.append_now(self._claim.thread_id, self.epoch, records, events)
            self.written += len(records) + len(events)
        except Exception as failure:  # kept, and raised to whoever awaits durability
            self.failure = failure

    def _taken_out(self) -> tuple[list[Record], list[Emitted]]:
        records, self._records = self._records, []
        events, self._events = self._events, []
        return records, events

    async def _write(self, *, anew: bool = False) -> None:
        try:
            if anew:
                await self._write_everything()
            while self._records or self._events:
                records, events = self._taken_out()
                try:
                    thread_id = self._claim.thread_id
                    await self._store.append(thread_id, self.epoch, records, events)
                    self.written += len(records) + len(events)
                except ThreadForgotten:
                    await self._write_everything()
                self._on_durable()
        except Exception as failure:  # kept, and raised to whoever awaits durability
            self.failure = failure
            self._on_durable()
        finally:
            self._writing = None
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():  # whoever waited was cancelled
                    waiter.set_result(None)

    async def _write_everything(self) -> None:
        """Begin the thread again in a store that lost its memory, with all there is."""
        while True:
            self.epoch = await self._claim.acquired(self._store, above=self.epoch)
            self._taken_out()
            taken = self.taken
            records, events = self._everything()
            try:
                await self._store.append(self._claim.thread_id, self.epoch, records, events)
            except ThreadForgotten:  # it has lost its memory once more meanwhile
                continue
            self.written = taken
            return
