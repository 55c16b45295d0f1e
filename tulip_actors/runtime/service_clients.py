"""The services actor as the ports see it: a BusLog and a RunStore whose work is done there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from tulip_actors.core.bus import BusPage, BusQuery, EventBatch
from tulip_actors.core.codec import pack_record, unpack_record
from tulip_actors.core.runs import Record
from tulip_actors.runtime.failures import ask

WHAT = "the services actor"


class ClusterBusLog:
    """BusLog in the services actor. `services` finds the actor's handle."""

    def __init__(self, services: Callable[[], Any]) -> None:
        self._services = services

    async def publish(self, batch: EventBatch) -> None:
        """See `BusLog`."""
        await ask(self._services().publish.remote(batch), WHAT)

    async def poll(self, query: BusQuery) -> BusPage:
        """See `BusLog`."""
        return cast(BusPage, await ask(self._services().poll.remote(query), WHAT))


class ClusterRunStore:
    """RunStore in the services actor. Records are packed and unpacked here."""

    def __init__(self, services: Callable[[], Any]) -> None:
        self._services = services

    async def acquire(self, thread_id: str, owner: str, lease_s: float) -> int:
        """See `RunStore`."""
        return cast(
            int, await ask(self._services().acquire.remote(thread_id, owner, lease_s), WHAT)
        )

    async def renew(self, thread_id: str, epoch: int, lease_s: float) -> None:
        """See `RunStore`."""
        await ask(self._services().renew.remote(thread_id, epoch, lease_s), WHAT)

    async def release(self, thread_id: str, epoch: int) -> None:
        """See `RunStore`."""
        await ask(self._services().release.remote(thread_id, epoch), WHAT)

    async def append(self, thread_id: str, epoch: int, records: Sequence[Record]) -> None:
        """See `RunStore`."""
        packed = [pack_record(record) for record in records]
        await ask(self._services().append.remote(thread_id, epoch, packed), WHAT)

    async def read(self, thread_id: str, after: int = 0) -> Sequence[Record]:
        """See `RunStore`."""
        packed = cast(
            Sequence[bytes], await ask(self._services().read.remote(thread_id, after), WHAT)
        )
        return [unpack_record(one) for one in packed]

    async def find(self, run_id: str) -> str | None:
        """See `RunStore`."""
        return cast("str | None", await ask(self._services().find.remote(run_id), WHAT))
