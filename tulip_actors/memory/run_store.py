"""The in-memory RunStore: one process's, or, inside the services actor, one cluster's.

The services actor keeps records packed and never needs the classes of what it keeps; a process
keeps its own as the frozen objects they are.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tulip_actors.core.emitted import Emitted
from tulip_actors.core.run_info import StoredRun
from tulip_actors.core.runs import Record
from tulip_actors.errors import StaleEpoch, ThreadBusy, ThreadForgotten

MAX_THREADS = 10_000
MAX_RECORDS = 2_000_000
"""What is kept; beyond either the thread idle for longest is forgotten: memory is no archive."""
MAX_EVENT_BYTES = 256_000_000
"""What the events of runs may take; beyond, those of the run that ended first are forgotten."""


RecordT = TypeVar("RecordT")
"""`Record`, or its bytes."""


@dataclass(slots=True)
class ThreadLog(Generic[RecordT]):
    """One thread: its records, and who may write."""

    records: list[RecordT] = field(default_factory=list)
    epoch: int = 0
    owner: str | None = None
    host_id: str = ""
    lease_ends_s: float = 0.0
    last_number: int = 0
    runs: list[str] = field(default_factory=list)


class RecordLog(Generic[RecordT]):
    """Threads of records, with epochs and leases. Plain calls, no waiting, no decoding.

    `clock_s` gives monotonic seconds. A log that takes the place of one whose
    memory was lost begins with a `first_epoch` that the other has not reached.
    """

    def __init__(
        self, clock_s: Callable[[], float] = time.monotonic, *, first_epoch: int = 0
    ) -> None:
        self._clock_s = clock_s
        self._first_epoch = first_epoch
        self._threads: dict[str, ThreadLog[RecordT]] = {}
        self._thread_of_run: dict[str, str] = {}
        self._record_count = 0
        self._events: dict[str, list[Emitted]] = {}
        self._event_bytes = 0
        self._forgotten_epoch = 0  # the highest of a thread that is gone: one made anew is above

    def acquire(
        self, thread_id: str, owner: str, lease_s: float, host_id: str = "", above: int = 0
    ) -> int:
        """Become the writer. Raises `ThreadBusy` while another owner's lease runs."""
        thread = self._threads.pop(thread_id, None)
        thread = thread or ThreadLog[RecordT](epoch=self._forgotten_epoch)
        self._threads[thread_id] = thread  # moved to the end: most recently used
        now_s = self._clock_s()
        if thread.owner not in (None, owner) and thread.lease_ends_s > now_s:
            raise busy(thread_id, thread.owner)
        thread.epoch = max(thread.epoch, above, self._first_epoch) + 1
        thread.owner, thread.host_id, thread.last_number = owner, host_id, 0
        thread.lease_ends_s = now_s + lease_s
        run_id = run_of(owner)
        if run_id not in self._thread_of_run:
            thread.runs.append(run_id)
        self._thread_of_run[run_id] = thread_id
        self._forget_idle(now_s)
        return thread.epoch

    def renew(self, thread_id: str, epoch: int, lease_s: float) -> None:
        """Prolong the lease."""
        self._current(thread_id, epoch).lease_ends_s = self._clock_s() + lease_s

    def release(self, thread_id: str, epoch: int) -> None:
        """Give the thread back; a stale owner has nothing to give."""
        thread = self._threads.get(thread_id)
        if thread is not None and thread.epoch == epoch:
            thread.owner = None

    def append(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[RecordT],
        events: Sequence[Emitted] = (),
        number: int = 0,
    ) -> None:
        """Add records and events. Raises `StaleEpoch` for an owner that was replaced.

        Appends of an epoch may be numbered from 1: then one that comes twice is taken once.
        """
        thread = self._threads.get(thread_id)
        if thread is None or thread.epoch != epoch:
            thread = self._current(thread_id, epoch)
        if number:
            if number <= thread.last_number:
                return
            thread.last_number = number
        thread.records.extend(records)
        self._record_count += len(records)
        for event in events:
            self._events.setdefault(event.run_id, []).append(event)
            self._event_bytes += len(event.packed)
        if self._event_bytes > MAX_EVENT_BYTES:
            self._forget_events()

    def events_of(self, run_id: str, after: int) -> list[Emitted]:
        """The kept events of a run with a number greater than `after`."""
        events = self._events.get(run_id, [])
        return events[bisect_right(events, after, key=lambda event: event.seq) :]

    def held_by(self, host_id: str) -> list[tuple[str, str]]:
        """Threads that runs of a host hold, with their owners."""
        return [
            (thread_id, thread.owner)
            for thread_id, thread in self._threads.items()
            if thread.owner is not None and thread.host_id == host_id
        ]

    def runs(self) -> list[StoredRun]:
        """Every run that acquired a thread which is kept."""
        now_s = self._clock_s()
        return [
            StoredRun(
                run_id,
                thread_id,
                thread.owner is not None
                and run_of(thread.owner) == run_id
                and thread.lease_ends_s > now_s,
            )
            for thread_id, thread in self._threads.items()
            for run_id in thread.runs
            if thread.records
        ]

    def read(self, thread_id: str, after: int) -> list[RecordT]:
        """Records from position `after` on; an unknown thread has none."""
        thread = self._threads.get(thread_id)
        return thread.records[after:] if thread else []

    def find(self, run_id: str) -> str | None:
        """The thread of a run."""
        return self._thread_of_run.get(run_id)

    def host_of(self, run_id: str) -> str | None:
        """The host that holds, or held, a run's thread last."""
        thread = self._threads.get(self._thread_of_run.get(run_id, ""))
        return thread.host_id if thread is not None else None

    def is_held(self, thread_id: str) -> bool:
        """Whether a run holds the thread."""
        thread = self._threads.get(thread_id)
        return (
            thread is not None
            and thread.owner is not None
            and thread.lease_ends_s > self._clock_s()
        )

    def replace(self, thread_id: str, records: Sequence[RecordT], run_id: str | None) -> None:
        """Let a thread have these records alone, of this run; for its holder, or without one."""
        thread = self._threads.setdefault(thread_id, ThreadLog[RecordT]())
        self._record_count += len(records) - len(thread.records)
        thread.records = list(records)
        if run_id is not None and run_id not in self._thread_of_run:
            thread.runs.append(run_id)
            self._thread_of_run[run_id] = thread_id

    def delete(self, thread_id: str) -> bool:
        """Forget a thread; False if there is none. Raises `ThreadBusy` while a run holds it."""
        if thread_id not in self._threads:
            return False
        if self.is_held(thread_id):
            raise busy(thread_id, self._threads[thread_id].owner)
        self._forget(thread_id)
        return True

    def _current(self, thread_id: str, epoch: int) -> ThreadLog[RecordT]:
        thread = self._threads.get(thread_id)
        if thread is None and epoch <= self._first_epoch:
            raise forgotten(thread_id)
        if thread is None or thread.epoch != epoch:
            raise stale(thread_id, epoch, thread.epoch if thread else "forgotten")
        return thread

    def _forget_idle(self, now_s: float) -> None:
        while len(self._threads) > MAX_THREADS or self._record_count > MAX_RECORDS:
            idle = next(
                (
                    thread_id
                    for thread_id, thread in self._threads.items()
                    if thread.owner is None or thread.lease_ends_s <= now_s
                ),
                None,
            )
            if idle is None:
                return
            self._forget(idle)

    def _forget(self, thread_id: str) -> None:
        forgotten = self._threads.pop(thread_id)
        self._forgotten_epoch = max(self._forgotten_epoch, forgotten.epoch)
        self._record_count -= len(forgotten.records)
        for run_id in forgotten.runs:
            self._thread_of_run.pop(run_id, None)
            self._drop_events(run_id)

    def _forget_events(self) -> None:
        """Those of ended runs, the oldest first, until there is room again."""
        held = {run_of(one.owner) for one in self._threads.values() if one.owner is not None}
        for run_id in [run_id for run_id in self._events if run_id not in held]:
            if self._event_bytes <= MAX_EVENT_BYTES // 2:
                return
            self._drop_events(run_id)

    def _drop_events(self, run_id: str) -> None:
        self._event_bytes -= sum(len(event.packed) for event in self._events.pop(run_id, ()))


def run_of(owner: str) -> str:
    """The run of an owner: its id, followed by "/" and a segment's where that matters."""
    return owner.partition("/")[0]


def busy(thread_id: str, owner: str | None) -> ThreadBusy:
    """The error for whoever wants a thread that another run holds."""
    run_id = None if owner is None else run_of(owner)
    return ThreadBusy(
        f"thread {thread_id!r} is in use by run {run_id}; wait for it (on_busy='wait'), cancel it, "
        "or use another thread_id",
        run_id=run_id,
    )


def forgotten(thread_id: str) -> ThreadForgotten:
    """The error for a writer whose thread was in the memory of an earlier log."""
    return ThreadForgotten(
        f"the store has lost its memory, and with it what it held of thread {thread_id!r}"
    )


def stale(thread_id: str, epoch: int, now: int | str) -> StaleEpoch:
    """The error for a writer whose thread another one has taken."""
    return StaleEpoch(
        f"epoch {epoch} of thread {thread_id!r} is over (now {now}): another process took the "
        "thread"
    )


class MemoryRunStore:
    """RunStore over a log in this process.

    It keeps no events: nobody could ask for them once the process, and the runs' feeds, are gone.
    """

    keeps_events = False

    def __init__(self, log: RecordLog[Record] | None = None) -> None:
        self.log = log or RecordLog[Record]()

    async def acquire(
        self, thread_id: str, owner: str, lease_s: float, *, host_id: str = "", above: int = 0
    ) -> int:
        """See `RunStore`."""
        return self.log.acquire(thread_id, owner, lease_s, host_id, above)

    async def renew(self, thread_id: str, epoch: int, lease_s: float) -> None:
        """See `RunStore`."""
        self.log.renew(thread_id, epoch, lease_s)

    async def release(self, thread_id: str, epoch: int) -> None:
        """See `RunStore`."""
        self.log.release(thread_id, epoch)

    async def append(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        """See `RunStore`."""
        self.log.append(thread_id, epoch, records)

    def append_now(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        """See `ImmediateRunStore`."""
        self.log.append(thread_id, epoch, records)

    async def events_of(self, run_id: str, after: int = -1) -> Sequence[Emitted]:
        """See `RunStore`."""
        return self.log.events_of(run_id, after)

    async def held_by(self, host_id: str) -> Sequence[tuple[str, str]]:
        """See `RunStore`."""
        return self.log.held_by(host_id)

    async def runs(self) -> Sequence[StoredRun]:
        """See `RunStore`."""
        return self.log.runs()

    async def read(self, thread_id: str, after: int = 0) -> Sequence[Record]:
        """See `RunStore`."""
        return self.log.read(thread_id, after)

    async def find(self, run_id: str) -> str | None:
        """See `RunStore`."""
        return self.log.find(run_id)

    async def delete(self, thread_id: str) -> bool:
        """See `RunStore`."""
        return self.log.delete(thread_id)
