"""Serves a store in files to agents on other nodes than the one that has the files.

A plain class; `spawn` makes the actor of it, on that node. Agents there open the files themselves.
It speaks as the services actor does of its records, so one client (`ClusterRunStore`) serves both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from tulip_actors.core.codec import pack_record, unpack_record
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.ports import RunStore
from tulip_actors.core.run_info import StoredRun
from tulip_actors.core.runs import Record
from tulip_actors.memory.checkpointer import FiledCheckpointer
from tulip_actors.runtime.bundles import Call, Outcome
from tulip_actors.runtime.pickling import unpack
from tulip_actors.runtime.process_memory import settle_memory


class StoreActor:
    """A `RunStore` with an address. All methods are coroutines on one event loop."""

    def __init__(self, packed: bytes) -> None:
        settle_memory()
        self._store: RunStore = cast(FiledCheckpointer, unpack(packed)).store
        self._last_number: dict[tuple[str, int], int] = {}

    async def bundle(self, calls: Sequence[Call]) -> Sequence[Outcome]:
        """Writes of one process; see `RunStore`. Those of a thread are made in order, since nobody
        makes one before the last has been answered."""
        return await asyncio.gather(*(self._outcome(*call) for call in calls))

    async def read(self, thread_id: str, after: int) -> Sequence[bytes]:
        """See `RunStore`; the records are packed."""
        return [pack_record(record) for record in await self._store.read(thread_id, after)]

    async def find(self, run_id: str) -> str | None:
        """See `RunStore`."""
        return await self._store.find(run_id)

    async def events_of(self, run_id: str, after: int) -> Sequence[Emitted]:
        """See `RunStore`."""
        return await self._store.events_of(run_id, after)

    async def held_by(self, host_id: str) -> Sequence[tuple[str, str]]:
        """See `RunStore`."""
        return await self._store.held_by(host_id)

    async def runs(self) -> Sequence[StoredRun]:
        """See `RunStore`."""
        return await self._store.runs()

    async def delete(self, thread_id: str) -> bool:
        """See `RunStore`."""
        return await self._store.delete(thread_id)

    async def _outcome(self, method: str, arguments: tuple[Any, ...]) -> Outcome:
        try:
            return await self._written(method, *arguments), None
        except Exception as error:  # the caller's: raised there
            return None, error

    async def _written(self, method: str, thread_id: str, *arguments: Any) -> object:
        store = self._store
        match method:
            case "acquire":
                owner, lease_s, host_id, above = arguments
                return await store.acquire(thread_id, owner, lease_s, host_id=host_id, above=above)
            case "renew":
                await store.renew(thread_id, *arguments)
            case "release":
                self._last_number.pop((thread_id, arguments[0]), None)
                await store.release(thread_id, *arguments)
            case "append":
                await self._append(thread_id, *arguments)
            case _:
                raise ValueError(f"{method!r} cannot be called in a bundle")
        return None

    async def _append(
        self,
        thread_id: str,
        epoch: int,
        packed: Sequence[bytes],
        events: Sequence[Emitted],
        number: int,
    ) -> None:
        """Append once what may come twice, because an answer was lost."""
        last = self._last_number.get((thread_id, epoch))
        if last is not None and number <= last:
            return
        records = [unpack_record(one) for one in packed]
        if last is None and number > 1 and await self._is_there(thread_id, records, events):
            self._last_number[thread_id, epoch] = number
            return  # another process of this actor had stored it, and died before it could say so
        await self._store.append(thread_id, epoch, records, events)
        self._last_number[thread_id, epoch] = number

    async def _is_there(
        self, thread_id: str, records: Sequence[Record], events: Sequence[Emitted]
    ) -> bool:
        if events:
            return bool(await self._store.events_of(events[0].run_id, events[0].seq - 1))
        return list(await self._store.read(thread_id))[-len(records) :] == records
