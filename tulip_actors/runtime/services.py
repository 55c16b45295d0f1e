"""The cluster's one helper: event bus, in-cluster records, and the list of hosts.

A plain class; `spawn` makes the actor of it. It holds bytes and never runs or unpickles anything
of a user's.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Self

from tulip_actors.core.bus import BusPage, BusQuery, EventBatch
from tulip_actors.core.defaults import RandomIds
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.run_info import StoredRun
from tulip_actors.host.bus import MemoryBusLog
from tulip_actors.memory.run_store import RecordLog
from tulip_actors.runtime.bundles import Call, Outcome, outcomes_of
from tulip_actors.runtime.process_memory import settle_memory
from tulip_actors.runtime.sigterm import end_at_sigterm

WRITES = frozenset({"acquire", "renew", "release", "append"})
"""What may come in a bundle. None of them waits."""


PLACED_KEPT = 100_000
WATCH_S = 20.0


@dataclass(frozen=True, slots=True)
class HostEntry:
    """A host that announced itself. `starts` counts its incarnations."""

    id: str
    name: str
    namespace: str
    node_id: str
    pid: int
    starts: int


@dataclass(frozen=True, slots=True)
class Versions:
    """What must agree between a driver and the cluster."""

    tulip_actors: str
    python: str

    @classmethod
    def here(cls) -> Versions:
        """This process's."""
        major, minor, _ = platform.python_version_tuple()
        return cls(version("tulip-actors"), f"{major}.{minor}")


class Services:
    """Bus, records and hosts of one namespace. All methods are coroutines on one event loop."""

    def __new__(cls, *_: object) -> Self:
        """The one place that Ray calls in the process's main thread."""
        end_at_sigterm()
        return object.__new__(cls)

    def __init__(self) -> None:
        settle_memory()
        # by the time, in micro- and milliseconds: beyond what the last incarnation came to
        self._bus = MemoryBusLog(first=time.time_ns() // 1000)
        self._records = RecordLog[bytes](first_epoch=time.time_ns() // 1_000_000)
        self._hosts: dict[str, HostEntry] = {}
        self._placed = OrderedDict[str, str]()
        self._log_id = RandomIds().new("log")

    async def hello(self) -> Versions:
        """What this side runs."""
        return Versions.here()

    async def processes(self) -> Mapping[str, Sequence[int]]:
        """This process, as who wants to kill it names it."""
        return {"services": [os.getpid()]}

    async def until_gone(self) -> None:
        """Who waits here learns at once when this actor's process ends.

        It returns after a while, to be called again: a call whose caller has died would stay, with
        its connection, for as long as this process lives.
        """
        await asyncio.sleep(WATCH_S)

    # bus

    async def publish(self, batch: EventBatch, log_id: str | None) -> str:
        """See `BusLog`; returns the id of the log. A batch meant for another one is not taken."""
        if log_id in (None, self._log_id):
            await self._bus.publish(batch)
        return self._log_id

    async def poll(self, query: BusQuery) -> BusPage:
        """See `BusLog`."""
        return await self._bus.poll(query)

    # records

    async def bundle(self, calls: Sequence[Call]) -> Sequence[Outcome]:
        """Writes of one process, in order; see `RunStore`. The records are packed."""
        return outcomes_of(self._records, WRITES, calls)

    async def place(self, run_ids: Sequence[str], host_id: str) -> None:
        """Runs whose records are kept elsewhere, and who hosts them."""
        for run_id in run_ids:
            self._placed[run_id] = host_id
        while len(self._placed) > PLACED_KEPT:
            self._placed.popitem(last=False)

    async def read(self, thread_id: str, after: int) -> Sequence[bytes]:
        """See `RunStore`; the records are packed."""
        return self._records.read(thread_id, after)

    async def find(self, run_id: str) -> str | None:
        """See `RunStore`."""
        return self._records.find(run_id)

    async def events_of(self, run_id: str, after: int) -> Sequence[Emitted]:
        """See `RunStore`."""
        return self._records.events_of(run_id, after)

    async def held_by(self, host_id: str) -> Sequence[tuple[str, str]]:
        """See `RunStore`."""
        return self._records.held_by(host_id)

    async def runs(self) -> Sequence[StoredRun]:
        """See `RunStore`."""
        return self._records.runs()

    async def delete(self, thread_id: str) -> bool:
        """See `RunStore`."""
        return self._records.delete(thread_id)

    # hosts

    async def host_of(self, run_id: str) -> str:
        """The id of the host that has, or had, a run; empty if it is not known."""
        return self._records.host_of(run_id) or self._placed.get(run_id, "")

    async def announce(self, id: str, name: str, namespace: str, node_id: str, pid: int) -> int:
        """A host is up; returns how often it was restarted."""
        known = self._hosts.get(id)
        starts = known.starts + 1 if known else 1
        self._hosts[id] = HostEntry(id, name, namespace, node_id, pid, starts)
        return starts - 1

    async def leave(self, id: str) -> None:
        """A host has ended."""
        self._hosts.pop(id, None)

    async def hosts(self) -> Sequence[HostEntry]:
        """The hosts that announced themselves and did not leave."""
        return list(self._hosts.values())
