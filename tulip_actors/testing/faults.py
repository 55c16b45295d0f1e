"""Faults on purpose, all drawn from one seed: processes killed, nodes dropped, a store that fails.

    plan = FaultPlan(seed=7).kill("agent", at_event=3).kill("services", between_s=(0.1, 0.8))
    async for event in plan.follow(agent.run("refund order 7"), agent.processes):
        ...
    print(plan)   # FaultPlan(seed=7): killed agent 4711 at event 3; killed services 4650 at 0.42 s

    store = FaultyStore(SQLiteBackend("runs.db"), FaultPlan(seed=7).store_fails())
    agent = Agent(model, tools, checkpointer=store)

Kills are SIGKILL, from outside, of processes on this machine. What may live here: plans, and the
doubles that carry them out. Nothing here knows Ray.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal, Self, TypeAlias, TypeVar, get_args

from tulip_actors.core.emitted import Emitted
from tulip_actors.core.ports import RunStore
from tulip_actors.core.run_info import StoredRun
from tulip_actors.core.runs import Record
from tulip_actors.errors import ConfigError, StoreUnavailable
from tulip_actors.memory.checkpointed_store import store_of
from tulip_actors.memory.checkpointer import BaseCheckpointer

Target: TypeAlias = Literal["agent", "worker", "dispatcher", "services"]
TARGETS: tuple[Target, ...] = get_args(Target)
Processes: TypeAlias = Callable[[], Awaitable[Mapping[str, Sequence[int]]]]
"""Finds the processes that may be killed, by target: `agent.processes`."""
StoreFaultKind: TypeAlias = Literal["fails", "away", "delays", "doubles"]

BETWEEN_S = (0.0, 1.0)
FIRST_APPENDS = 8
"""A store fault that is given no place comes at one of so many appends."""
RAY_PROCESS = b"ray::"
"""With what the command line of a Ray worker's process begins."""

EventT = TypeVar("EventT")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is to be done: at an event of a stream, or after a time. `pick`, from 0 to 1,
    chooses among several processes; `drop` is what drops a node."""

    target: str
    at_event: int | None
    after_s: float
    pick: float = 0.0
    drop: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class StoreFault:
    """What happens at an append to a store, counted from 1; `for_s` is how long it lasts."""

    kind: StoreFaultKind
    at: int
    for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """A fault that was carried out: what, on which process (None where there is none), and when,
    in seconds since the epoch. `met` is false where there was nobody to kill."""

    what: str
    pid: int | None
    at_s: float
    met: bool = True


class FaultPlan:
    """What is to go wrong. Every choice comes from `Random(seed)`, in the order of the calls here,
    so the same seed and calls make the same plan. `done` tells what was carried out."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.faults: list[Fault] = []
        self.store_faults: list[StoreFault] = []
        self.done: list[Done] = []

    # what is to happen

    def kill(
        self,
        target: Target,
        *,
        at_event: int | None = None,
        between_s: tuple[float, float] = BETWEEN_S,
    ) -> Self:
        """Kill a process: when the `at_event`-th event of the stream is seen (from 1), or after a
        time drawn from `between_s`. Of several workers one is drawn. Raises `ConfigError`."""
        if target not in TARGETS:
            raise ConfigError(f"kill: {target!r:.80} is not one of {', '.join(TARGETS)}")
        self._add(target, at_event, between_s)
        return self

    def drop_node(
        self,
        drop: Callable[[], object],
        *,
        at_event: int | None = None,
        between_s: tuple[float, float] = BETWEEN_S,
    ) -> Self:
        """Let `drop`, plain or async, take a node away: of a test cluster, say
        `lambda: cluster.remove_node(node, allow_graceful=False)`. See `kill` for when."""
        self._add("node", at_event, between_s, drop)
        return self

    def store_fails(self, at: int | None = None) -> Self:
        """One append to the `FaultyStore` raises `StoreUnavailable`, and nothing is written."""
        return self._add_to_store("fails", at, 0.0)

    def store_away(self, for_s: float, at: int | None = None) -> Self:
        """From that append on, for so long, whatever the store is asked raises."""
        return self._add_to_store("away", at, for_s)

    def store_delays(self, for_s: float, at: int | None = None) -> Self:
        """One append takes so much longer."""
        return self._add_to_store("delays", at, for_s)

    def store_doubles(self, at: int | None = None) -> Self:
        """One append is done twice."""
        return self._add_to_store("doubles", at, 0.0)

    # doing it

    async def follow(
        self, events: AsyncIterator[EventT], processes: Processes
    ) -> AsyncIterator[EventT]:
        """The events of a run, with what is planned done meanwhile."""
        timed = asyncio.ensure_future(self.carry_out(processes))
        seen = 0
        try:
            async for event in events:
                seen += 1
                for fault in self.faults:
                    if fault.at_event == seen:
                        await self._do(fault, f"at event {seen}", processes)
                yield event
        finally:
            timed.cancel()

    async def carry_out(self, processes: Processes) -> None:
        """Do what is planned for a time, counted from now; returns when all is done."""
        began_s = time.monotonic()
        for fault in sorted(self.faults, key=lambda one: one.after_s):
            if fault.at_event is None:
                await asyncio.sleep(began_s + fault.after_s - time.monotonic())
                await self._do(fault, f"at {fault.after_s:.3f} s", processes)

    async def _do(self, fault: Fault, when: str, processes: Processes) -> None:
        if fault.drop is not None:
            dropped = fault.drop()
            if inspect.isawaitable(dropped):
                await dropped
            self.done.append(Done(f"dropped a node {when}", None, time.time()))
            return
        pids = (await processes()).get(fault.target, ())
        pid = pids[int(fault.pick * len(pids))] if pids else None
        met = pid is not None and _killed(pid)
        what = f"killed {fault.target} {pid}" if met else f"found no {fault.target} to kill"
        self.done.append(Done(f"{what} {when}", pid, time.time(), met))

    def _add(
        self,
        target: str,
        at_event: int | None,
        between_s: tuple[float, float],
        drop: Callable[[], object] | None = None,
    ) -> None:
        if at_event is not None and at_event < 1:
            raise ConfigError(f"at_event: events are counted from 1, not {at_event!r:.80}")
        after_s, pick = self.random.uniform(*between_s), self.random.random()
        self.faults.append(Fault(target, at_event, after_s, pick, drop))

    def _add_to_store(self, kind: StoreFaultKind, at: int | None, for_s: float) -> Self:
        drawn = self.random.randint(1, FIRST_APPENDS)
        self.store_faults.append(StoreFault(kind, drawn if at is None else at, for_s))
        return self

    def __repr__(self) -> str:
        done = "; ".join(one.what for one in self.done)
        return f"FaultPlan(seed={self.seed}): {done or 'nothing done yet'}"


def _killed(pid: int) -> bool:
    """End a process at once; false if it was gone, or has become one that is not to be killed."""
    try:
        if not _is_ours(pid):
            return False
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, FileNotFoundError):
        return False
    return True


def _is_ours(pid: int) -> bool:
    """False for a process of another machine whose number is somebody else's here."""
    if pid == os.getpid() or not Path("/proc").is_dir():
        return True
    return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(RAY_PROCESS)


class FaultyStore:
    """A RunStore that does what another does, apart from what a plan says. Pass it as
    `checkpointer=`. A process that is started again begins to count anew."""

    def __init__(self, store: RunStore | BaseCheckpointer, plan: FaultPlan) -> None:
        self._store = store_of(store)
        self._plan = plan
        self._appends = 0
        self._away_until_s = 0.0

    @property
    def keeps_events(self) -> bool:
        """See `RunStore`."""
        return self._store.keeps_events

    async def acquire(
        self, thread_id: str, owner: str, lease_s: float, *, host_id: str = "", above: int = 0
    ) -> int:
        """See `RunStore`."""
        self._check(thread_id)
        return await self._store.acquire(thread_id, owner, lease_s, host_id=host_id, above=above)

    async def renew(self, thread_id: str, epoch: int, lease_s: float) -> None:
        """See `RunStore`."""
        self._check(thread_id)
        await self._store.renew(thread_id, epoch, lease_s)

    async def release(self, thread_id: str, epoch: int) -> None:
        """See `RunStore`."""
        self._check(thread_id)
        await self._store.release(thread_id, epoch)

    async def append(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        """See `RunStore`. Here the faults happen."""
        self._appends += 1
        times = 1
        for fault in self._plan.store_faults:
            if fault.at == self._appends:
                self._plan.done.append(
                    Done(f"the store {fault.kind} at append {fault.at}", None, time.time())
                )
                if fault.kind == "fails":
                    raise _unavailable(thread_id)
                if fault.kind == "away":
                    self._away_until_s = time.monotonic() + fault.for_s
                elif fault.kind == "delays":
                    await asyncio.sleep(fault.for_s)
                else:
                    times = 2
        self._check(thread_id)
        for _ in range(times):
            await self._store.append(thread_id, epoch, records, events)

    async def read(self, thread_id: str, after: int = 0) -> Sequence[Record]:
        """See `RunStore`."""
        self._check(thread_id)
        return await self._store.read(thread_id, after)

    async def find(self, run_id: str) -> str | None:
        """See `RunStore`."""
        self._check(run_id)
        return await self._store.find(run_id)

    async def events_of(self, run_id: str, after: int = -1) -> Sequence[Emitted]:
        """See `RunStore`."""
        self._check(run_id)
        return await self._store.events_of(run_id, after)

    async def held_by(self, host_id: str) -> Sequence[tuple[str, str]]:
        """See `RunStore`."""
        self._check(host_id)
        return await self._store.held_by(host_id)

    async def runs(self) -> Sequence[StoredRun]:
        """See `RunStore`."""
        return await self._store.runs()

    async def delete(self, thread_id: str) -> bool:
        """See `RunStore`."""
        self._check(thread_id)
        return await self._store.delete(thread_id)

    def _check(self, what: str) -> None:
        if time.monotonic() < self._away_until_s:
            raise _unavailable(what)


def _unavailable(what: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{what}: the store is away, as a fault plan wants it; what was stored before is kept"
    )
