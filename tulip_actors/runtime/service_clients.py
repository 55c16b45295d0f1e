"""The services actor as the ports see it: a BusLog and a RunStore whose work is done there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from tulip_actors.core.bus import BusPage, BusQuery, EventBatch
from tulip_actors.core.codec import pack_record, unpack_record
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.run_info import StoredRun
from tulip_actors.core.runs import Record
from tulip_actors.errors import BusRestarted, ClusterError, StoreUnavailable
from tulip_actors.runtime.bundles import BundledCalls
from tulip_actors.runtime.failures import RETRY_S, ask, insist

WHAT = "the services actor"
AWAY_S = 30.0
"""How long the actor may be away: its process is back in a second, a lost node takes longer."""


class ClusterBusLog:
    """BusLog in the services actor. `services` finds the actor's handle."""

    def __init__(self, services: Callable[[], Any]) -> None:
        self._services = services
        self._log_id: str | None = None

    async def publish(self, batch: EventBatch) -> None:
        """See `BusLog`."""
        known = self._log_id
        log_id = await ask(self._services().publish.remote(batch, known), WHAT)
        self._log_id = cast(str, log_id)
        if known not in (None, log_id):
            raise BusRestarted("the bus has begun anew; what it held is gone")

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
        self._bundled = BundledCalls(services, WHAT) if bundled else None
        self._appends: dict[tuple[str, int], int] = {}
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
        self._appends.pop((thread_id, epoch), None)
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
        number = self._appends.get((thread_id, epoch), 0) + 1
        self._appends[thread_id, epoch] = number
        await self._write("append", self._prefix + thread_id, epoch, packed, events, number)

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

    async def runs(self) -> Sequence[StoredRun]:
        """See `RunStore`. Without a scope those of all scopes, under their names there."""
        asked = cast(Sequence[StoredRun], await self._ask("runs"))
        return [
            replace(one, thread_id=one.thread_id.removeprefix(self._prefix))
            for one in asked
            if one.thread_id.startswith(self._prefix)
        ]

    async def delete(self, thread_id: str) -> bool:
        """See `RunStore`."""
        return cast(bool, await self._ask("delete", self._prefix + thread_id))

    async def _ask(self, method: str, *arguments: object) -> object:
        remote = getattr(self._services(), method).remote
        return await insist(lambda: remote(*arguments), WHAT, AWAY_S)

    async def _write(self, method: str, thread_id: str, *arguments: object) -> object:
        """A write, made again when it is not known whether it was: each is taken once."""
        calls = self._bundled or BundledCalls(self._services, WHAT)
        until_s = time.monotonic() + AWAY_S
        while True:
            try:
                return await calls.call(method, thread_id, *arguments)
            except ClusterError as error:
                if time.monotonic() > until_s:
                    raise StoreUnavailable(
                        f"thread {thread_id!r}: the store has been away for {AWAY_S:.0f} s; what "
                        f"was stored before is kept. {error}"
                    ) from error
                await asyncio.sleep(RETRY_S)
