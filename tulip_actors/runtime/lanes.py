"""The workers of a dispatcher, in lanes: one for coroutines, one for plain functions, and one for
each demand whose calls go alone.

What may live here: which worker gets which call, when workers are begun and ended, and what became
of the calls of one that died. What that means for a call is `CallBook`'s to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import ray
from ray.exceptions import (
    OutOfMemoryError,
    RayError,
    RuntimeEnvSetupError,
    WorkerCrashedError,
)

from tulip_actors.core.calls import (
    CallKind,
    CallStarted,
    ToolDemand,
    ToolOutcome,
    ToolPolicy,
    ToolRequest,
)
from tulip_actors.core.defaults import RandomIds
from tulip_actors.host.call import Call, Why
from tulip_actors.host.call_book import CallBook
from tulip_actors.host.call_queue import CallQueue
from tulip_actors.runtime.cluster_size import ClusterSize
from tulip_actors.runtime.failures import translated
from tulip_actors.runtime.lane import Lane, Worker
from tulip_actors.runtime.start_marks import SeenMarks
from tulip_actors.runtime.tool_work import Handed, Hello, Work, WorkerSpec

IDLE_S = 10.0
"""How long a shared worker without work is kept: a start costs a tenth to half a second."""
UNSEEN_S = 0.5
"""A coroutine that has not been told of its timeout by then sits in an event loop that is blocked:
its call ends without it."""
KILL_S = 1.0
"""How long Ray may take to end a worker's process."""
STARTS_MAX = 3
"""Workers of a lane that may die before they come, one after the other."""
INFEASIBLE_S = 3.0
"""How long a demand that no node can meet waits for such a node."""

Start: TypeAlias = Callable[[WorkerSpec, ToolDemand, str | None], Any]
"""Begins a worker, on a node if one is named; returns the reference that is done when its process
has ended."""


class Lanes:
    """`Bodies` on Ray."""

    def __init__(self, start: Start, size: ClusterSize) -> None:
        self._start = start
        self._size = size
        self._lanes: dict[tuple[CallKind, ToolDemand, bool], Lane] = {}
        self._workers: dict[str, Worker] = {}
        self._where: dict[Call, tuple[Worker, int]] = {}
        self._last: tuple[ToolPolicy | None, Lane | None] = (None, None)
        self._tasks: set[asyncio.Task[None]] = set()
        self._toolsets: dict[str, bytes] = {}
        self._filling = False
        self.book: CallBook

    def keep(self, toolsets: Mapping[str, bytes]) -> None:
        """Take tools that workers may need."""
        for name, content in toolsets.items():
            self._toolsets.setdefault(name, content)

    @property
    def pids(self) -> list[int]:
        """The processes of the workers that are up, those with the most calls first."""
        busiest = sorted(self._workers.values(), key=lambda one: len(one.running), reverse=True)
        return [worker.hello.pid for worker in busiest if worker.hello is not None]

    # Bodies, for the book

    def queue_of(self, request: ToolRequest) -> CallQueue:
        """See `Bodies`."""
        return self._lane(request).queue

    def fill(self) -> None:
        """See `Bodies`. Once per turn of the loop, whatever came in it."""
        if not self._filling:
            self._filling = True
            asyncio.get_running_loop().call_soon(self._fill)

    def stop(self, call: Call) -> None:
        """See `Bodies`. A plain body whose time is up can only be left behind; every other is told,
        and given its grace."""
        if call not in self._where:
            return
        worker, number = self._where[call]
        worker.cancels.append(number)
        worker.wake.set()
        later = asyncio.get_running_loop().call_later
        grace_s = call.request.policy.cancel_grace_s
        if call.why is Why.CANCELLED:
            later(grace_s, self._leave_behind, worker, number)
        elif call.request.policy.is_async:
            later(min(UNSEEN_S, grace_s), self._unseen, call, worker, number)
            later(grace_s, self._leave_behind, worker, number)
        else:
            self._leave_behind(worker, number)
        later(grace_s, self._end_if_silent, worker, number)

    # workers, for the dispatcher

    async def work(self, worker_id: str, hello: Hello | None) -> Work:
        """What a worker is to do next; waits for something."""
        worker = self._workers.get(worker_id)
        if worker is None:
            return Work([], [], {}, leave=True)
        if hello is not None:
            worker.hello = hello
            worker.marks = SeenMarks(hello.marks)
            worker.idle_since_s = time.monotonic()
            worker.lane.failed_starts = 0
            self._fill()
            self._rests(worker)  # others may have done what it was begun for
        while not (worker.calls or worker.cancels or worker.leaving):
            worker.wake.clear()
            await worker.wake.wait()
        calls, worker.calls = worker.calls, []
        cancels, worker.cancels = worker.cancels, []
        missing = {handed.request.toolset for handed in calls} - worker.toolsets
        worker.toolsets |= missing
        toolsets = {name: self._toolsets[name] for name in missing}
        return Work(calls, cancels, toolsets, leave=worker.leaving)

    def worker(self, worker_id: str) -> Worker | None:
        """A worker that has not ended."""
        return self._workers.get(worker_id)

    def ended(self, worker: Worker, number: int, outcome: ToolOutcome) -> None:
        """A body has ended."""
        worker.seen.discard(number)
        entry = worker.running.pop(number, None)
        if entry is not None:
            call, place = entry
            worker.free.append(place)
            del self._where[call]
            self.book.finished(call, outcome)
        elif number in worker.stuck:
            worker.free.append(worker.stuck.pop(number))
        self._rests(worker)
        self.fill()

    def exceeded(self, worker_id: str, grown_bytes: int) -> None:
        """A worker is about to end itself."""
        worker = self._workers.get(worker_id)
        if worker is not None and worker.spec.memory_bytes is not None:
            worker.death = (
                f"it grew by {grown_bytes:,} bytes, its memory is {worker.spec.memory_bytes:,}"
            )

    def end_idle(self) -> None:
        """Let workers go that had nothing to do for a while."""
        for worker in list(self._workers.values()):
            idle_s = time.monotonic() - worker.idle_since_s
            if worker.hello is not None and not worker.running and idle_s > IDLE_S:
                self._let_go(worker)

    # inside

    def _lane(self, request: ToolRequest) -> Lane:
        policy = request.policy
        known, lane = self._last
        if policy is not known or lane is None:  # the calls of one message share it
            lane = self._lane_for(policy)
            self._last = (policy, lane)
        return lane

    def _lane_for(self, policy: ToolPolicy) -> Lane:
        alone, demand = policy.goes_alone, policy.demand
        if policy.kind is CallKind.CPU and demand.num_cpus is None:
            demand = replace(demand, num_cpus=1)
        kind = policy.kind if policy.kind is CallKind.ASYNC and not alone else CallKind.PLAIN
        key = (kind, demand, alone)
        if key not in self._lanes:
            self._lanes[key] = Lane(kind, demand, alone, CallQueue(self.book.limits))
        return self._lanes[key]

    def _fill(self) -> None:
        self._filling = False
        for lane in self._lanes.values():
            if len(lane.queue):
                self._fill_lane(lane)

    def _fill_lane(self, lane: Lane) -> None:
        """Give the calls that wait to the least busy workers.

        Not all to the first that is there, while others still start: each gets its share, and more
        as soon as it is through with that.
        """
        if not lane.checked:
            self._check(lane)
            return
        loads = {one: one.busy for one in lane.workers.values() if one.takes_calls}
        total = sum(loads.values()) + len(lane.queue)
        self._grow(lane, total)
        at_once = min(lane.busy_at, max(lane.share_least, -(-total // max(1, len(lane.workers)))))
        while open_ := [one for one in loads if one.free and loads[one] < at_once]:
            worker = min(open_, key=loads.__getitem__)
            call = self.book.begin(lane.queue)
            if call is None:
                break
            self._hand(worker, call)
            loads[worker] += 1

    def _hand(self, worker: Worker, call: Call) -> None:
        place = worker.free.pop()
        worker.handed += 1
        number = worker.handed
        request = call.request
        if call.tries:
            request = request._replace(attempt=call.attempt)
        worker.calls.append(Handed(number, place, call.queued_at_s, request))
        worker.running[number] = (call, place)
        worker.wake.set()
        self._where[call] = (worker, number)
        if worker.hello is not None:
            self.book.started(CallStarted(call.key, worker.hello.pid, worker.hello.node_id), call)

    def _grow(self, lane: Lane, calls: int) -> None:
        """Begin workers while so many calls would keep more of them busy."""
        useful = [
            worker
            for worker in lane.workers.values()
            if not (worker.killed or worker.stuck)
            and not (lane.alone and worker.running and not worker.busy)
        ]
        wanted = min(-(-calls // lane.spread_from), lane.most_workers(self._size))
        for _ in range(wanted - len(useful)):
            self._begin(lane)

    def _begin(self, lane: Lane) -> None:
        worker_id = RandomIds().new("worker")
        spec = WorkerSpec(worker_id, lane.kind, lane.places, lane.demand.memory_bytes)
        try:
            node_id = lane.next_node(self._size)
            process = self._start(spec, lane.demand, node_id)
        except (RayError, ValueError, OSError) as error:
            self._refuse(lane, f"the call cannot be placed: {error}")
            return
        worker = Worker(spec, lane, process, node_id, list(range(lane.places)))
        lane.workers[worker_id] = self._workers[worker_id] = worker
        self._spawn(self._watch(worker))

    async def _watch(self, worker: Worker) -> None:
        try:
            await worker.process
            reason = "it ended by itself"
        except (RayError, OSError) as error:
            reason = _reason(error)
            if isinstance(error, RuntimeEnvSetupError):
                self._refuse(worker.lane, f"its runtime_env cannot be made: {error}")
        self._gone(worker, worker.death or reason)

    def _gone(self, worker: Worker, reason: str) -> None:
        """A worker has ended: what had begun on it is lost, the rest is made elsewhere."""
        lane = worker.lane
        lane.workers.pop(worker.spec.id, None)
        self._workers.pop(worker.spec.id, None)
        worker.leaving = True
        worker.wake.set()
        for number, (call, place) in list(worker.running.items()):
            del self._where[call]
            if worker.marks is None or worker.marks.has_begun(place, number):
                self.book.lost(call, reason)
            else:
                self.book.put_back(call)
        worker.running.clear()
        if worker.hello is None and not worker.killed:
            lane.failed_starts += 1
            if lane.failed_starts >= STARTS_MAX:
                lane.failed_starts = 0
                self._refuse(lane, f"no worker could be started for the call: {reason}")
        self.fill()

    def _unseen(self, call: Call, worker: Worker, number: int) -> None:
        if number in worker.running and number not in worker.seen:
            self.book.give_up(call)

    def _leave_behind(self, worker: Worker, number: int) -> None:
        """A body does not end: its call ends without it, and its worker as soon as nobody else is
        harmed by that."""
        if number not in worker.running:
            return
        call, worker.stuck[number] = worker.running.pop(number)
        del self._where[call]
        self.book.give_up(call)
        unsent, worker.calls = worker.calls, []
        for handed in unsent:
            if handed.number in worker.running:
                other, place = worker.running.pop(handed.number)
                worker.free.append(place)
                del self._where[other]
                self.book.put_back(other)
        self._rests(worker)

    def _end_if_silent(self, worker: Worker, number: int) -> None:
        """A worker that could not even say that it was told to end a body is blocked as a whole:
        nothing on it goes on."""
        if number in worker.stuck and number not in worker.seen:
            self._kill(worker)

    def _rests(self, worker: Worker) -> None:
        """A body has ended or was left behind: does the worker have anything left to do?"""
        if worker.running:
            return
        worker.idle_since_s = time.monotonic()
        if worker.stuck:
            self._kill(worker)
        elif worker.lane.alone and not len(worker.lane.queue):
            self._let_go(worker)

    def _let_go(self, worker: Worker) -> None:
        worker.leaving = True
        worker.wake.set()
        worker.lane.workers.pop(worker.spec.id, None)

    def _kill(self, worker: Worker) -> None:
        """End a worker's process. `_gone` follows from `_watch`."""
        if not worker.killed:
            worker.killed = True
            worker.death = worker.death or "a call that could not be stopped blocked its process"
            ray.cancel(worker.process, force=True, recursive=False)
            asyncio.get_running_loop().call_later(KILL_S, self._kill_by_signal, worker)

    def _kill_by_signal(self, worker: Worker) -> None:
        """For a process that Ray's word does not end; it can be reached on this node only."""
        hello = worker.hello
        is_here = hello is not None and hello.node_id == self._size.node_id
        if hello is not None and is_here and worker.spec.id in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(hello.pid, signal.SIGKILL)

    def _check(self, lane: Lane) -> None:
        """See that some node can meet a lane's demand before workers are asked for."""
        if not lane.alone:
            lane.checked = True
            self._fill_lane(lane)
        elif not lane.checking:
            lane.checking = True
            self._spawn(self._find_nodes(lane))

    async def _find_nodes(self, lane: Lane) -> None:
        ends_s = time.monotonic() + INFEASIBLE_S
        try:
            while not await self._size.can_meet(lane.demand):
                if time.monotonic() > ends_s:
                    self._refuse(lane, self._size.missing(lane.demand))
                    return
                await asyncio.sleep(INFEASIBLE_S / 10)
            lane.checked = True
        finally:
            lane.checking = False
            self.fill()

    def _refuse(self, lane: Lane, error: str) -> None:
        """End the calls that wait in a lane: they cannot be made."""
        lane.checked = False
        while (call := self.book.begin(lane.queue)) is not None:
            self.book.refused(call, error, "config")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _reason(error: Exception) -> str:
    """Why a worker ended, for the model and for who reads the events."""
    if isinstance(error, OutOfMemoryError):
        return "Ray ended it, since its node ran out of memory"
    if isinstance(error, WorkerCrashedError):
        return "its process ended unexpectedly"
    return str(translated(error, "its process")).splitlines()[0]
