"""The services actor as the ports see it: a BusLog and a RunStore whose work is done there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from tulip_actors.core.bus import BusPage, BusQuery, EventBatch
from tulip_actors.core.codec import pack_record, unpack_record
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.runs import Record
from tulip_actors.runtime.bundles import BundledCalls
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
    """RunStore in the services actor. Records are packed and unpacked here.

    `scope` keeps the threads of one `MemoryCheckpointer` apart from others of the same name. What
    all runs of a host write travels in bundles, on its one event loop: a thousand that begin at
    once are few calls. Not `bundled` it may be used from any event loop.
    """

    def __init__(
        self, services: Callable[[], Any], scope: str = "", *, bundled: bool = True
    ) -> None:
        self._services = services
        self._write = BundledCalls(services, WHAT).call if bundled else self._write_alone
        self._prefix = f"{scope}/" if scope else ""

    @property
    def keeps_events(self) -> bool:
        """See `RunStore`."""
        return True

    async def acquire(
        self, thread_id: str, owner: str, lease_s: float, *, host_id: str = "", above: int = 0
    ) -> int:
        """See `RunStore`."""
        asked = (self._prefix + thread_id, owner, lease_s, self._prefix + host_id, above)
        return cast(int, await self._write("acquire", *asked))

    async def renew(self, thread_id: str, epoch: int, lease_s: float) -> None:
        """See `RunStore`."""
        await self._write("renew", self._prefix + thread_id, epoch, lease_s)

    async def release(self, thread_id: str, epoch: int) -> None:
        """See `RunStore`."""
        await self._write("release", self._prefix + thread_id, epoch)

    async def append(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        """See `RunStore`."""
        packed = [pack_record(record) for record in records]
        await self._write("append", self._prefix + thread_id, epoch, packed, events)

    async def read(self, thread_id: str, after: int = 0) -> Sequence[Record]:
        """See `RunStore`."""
        packed = cast(Sequence[bytes], await self._ask("read", self._prefix + thread_id, after))
        return [unpack_record(one) for one in packed]

    async def find(self, run_id: str) -> str | None:
        """See `RunStore`."""
        found = cast("str | None", await self._ask("find", run_id))
        return None if found is None else found.removeprefix(self._prefix)

    async def events_of(self, run_id: str, after: int = -1) -> Sequence[Emitted]:
        """See `RunStore`."""
        return cast(Sequence[Emitted], await self._ask("events_of", run_id, after))

    async def held_by(self, host_id: str) -> Sequence[tuple[str, str]]:
        """See `RunStore`."""
        asked = await self._ask("held_by", self._prefix + host_id)
        held = cast(Sequence[tuple[str, str]], asked)
        return [(thread_id.removeprefix(self._prefix), owner) for thread_id, owner in held]

    async def delete(self, thread_id: str) -> bool:
        """See `RunStore`."""
        return cast(bool, await self._ask("delete", self._prefix + thread_id))

    async def _ask(self, method: str, *arguments: object) -> object:
        return await ask(getattr(self._services(), method).remote(*arguments), WHAT)

    async def _write_alone(self, method: str, *arguments: object) -> object:
        return await BundledCalls(self._services, WHAT).call(method, *arguments)
