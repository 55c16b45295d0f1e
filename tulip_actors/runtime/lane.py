"""One kind of calls and the workers that run them, as the dispatcher keeps them.

What may live here: the data, and how many of what. What happens to them is in `lanes`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tulip_actors.core.calls import CallKind, ToolDemand
from tulip_actors.host.call import Call
from tulip_actors.host.call_queue import CallQueue
from tulip_actors.runtime.cluster_size import ClusterSize
from tulip_actors.runtime.start_marks import SeenMarks
from tulip_actors.runtime.tool_work import Handed, Hello, WorkerSpec

PLACES = {CallKind.ASYNC: 4096, CallKind.PLAIN: 1024}
"""Calls that one worker may hold, those that wait for children included."""
BUSY_AT = {CallKind.ASYNC: 2048, CallKind.PLAIN: 256}
"""Bodies at once in one worker, those that wait for children not counted: coroutines cost little,
a plain function a thread."""
SPREAD_FROM = {CallKind.ASYNC: 8, CallKind.PLAIN: 1}
"""Calls per worker from which on another one is worth its start."""
SHARE_LEAST = {CallKind.ASYNC: 64, CallKind.PLAIN: 4}
"""Calls that a worker is given at once, however few there are and however many workers start."""
SHARED_MIN = 2
WORKERS_MAX = 256
"""Workers of a shared lane: one per CPU for plain functions, one per node for coroutines."""
ALONE_MIN = 8
ALONE_PER_CPU = 4
"""Calls at once that go alone and demand nothing that the cluster has only so much of."""


@dataclass(slots=True, eq=False)
class Worker:
    """A process that runs bodies, on a node of its lane's choice or, if None, of Ray's.

    It knows a call by its number, as do all the dicts and sets here; `stuck` are the places of
    calls that ended without their bodies.
    """

    spec: WorkerSpec
    lane: Lane
    process: Any
    node_id: str | None
    free: list[int]
    hello: Hello | None = None
    marks: SeenMarks | None = None
    handed: int = 0
    running: dict[int, tuple[Call, int]] = field(default_factory=dict)
    stuck: dict[int, int] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    toolsets: set[str] = field(default_factory=set)
    calls: list[Handed] = field(default_factory=list)
    cancels: list[int] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    leaving: bool = False
    killed: bool = False
    idle_since_s: float = field(default_factory=time.monotonic)
    death: str | None = None

    @property
    def busy(self) -> int:
        """Bodies that do not wait for children."""
        return sum(not call.waits for call, _ in self.running.values())

    @property
    def takes_calls(self) -> bool:
        """Whether it is there and may be given more."""
        return self.hello is not None and not (self.leaving or self.killed or self.stuck)


@dataclass(slots=True, eq=False)
class Lane:
    """Calls of one kind, and their workers."""

    kind: CallKind
    demand: ToolDemand
    alone: bool
    queue: CallQueue
    workers: dict[str, Worker] = field(default_factory=dict)
    failed_starts: int = 0
    checking: bool = False
    checked: bool = False

    @property
    def busy_at(self) -> int:
        """Bodies at once in one worker."""
        return 1 if self.alone else BUSY_AT[self.kind]

    @property
    def share_least(self) -> int:
        """See `SHARE_LEAST`."""
        return 1 if self.alone else SHARE_LEAST[self.kind]

    @property
    def spread_from(self) -> int:
        """See `SPREAD_FROM`."""
        return 1 if self.alone else SPREAD_FROM[self.kind]

    @property
    def places(self) -> int:
        """See `PLACES`."""
        return 1 if self.alone else PLACES[self.kind]

    def next_node(self, size: ClusterSize) -> str | None:
        """Where its next worker should be; None leaves that to Ray, which knows what is free."""
        if self.alone:
            return None
        workers = Counter(worker.node_id or "" for worker in self.workers.values())
        return size.emptiest(workers, per_cpu=self.kind is CallKind.PLAIN)

    def most_workers(self, size: ClusterSize) -> int:
        """How many workers it may have at once."""
        if not self.alone:
            most = size.cpus if self.kind is CallKind.PLAIN else size.nodes
            return min(WORKERS_MAX, max(SHARED_MIN, most))
        fitting = size.fitting(self.demand)
        if fitting is not None:
            return max(1, fitting)
        return min(WORKERS_MAX, max(ALONE_MIN, ALONE_PER_CPU * size.cpus))
