"""Hosts the runs of one Runnable on one event loop: start, cancel, observe, stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from tulip_actors.core.calls import ToolUpdate
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.events import AgentRestartedEvent, EventSource, TerminateEvent
from tulip_actors.core.ports import DirectExecutor, RecordedRunnable, Runnable, RunResult
from tulip_actors.core.run_info import RunInfo
from tulip_actors.core.runs import Record, RunRequest
from tulip_actors.core.termination import STOP_REASONS
from tulip_actors.errors import RunCancelled, RunError, RunLost, TulipError
from tulip_actors.host.feed import Feed
from tulip_actors.host.hosted_run import STORE_END_S, HostedRun
from tulip_actors.host.ports import AgentStatus, HostPorts
from tulip_actors.host.probation import Probation
from tulip_actors.host.publisher import Publisher
from tulip_actors.host.thread_lines import ThreadLines
from tulip_actors.memory.run_store import run_of

ENDED_RUNS_KEPT = 256
ENDED_BYTES_KEPT = 64_000_000
"""Ended runs that can still be followed from their start, and what their events may take; older
ones are on the bus only."""
FORGOTTEN_KEPT = 10_000
"""Older runs of which the ids are known, so that none is started twice."""


class RunHost:
    """The runs of one agent or team, in one process. `placed` is told of every run that is here."""

    def __init__(
        self,
        id: str,
        runnable: Runnable[object],
        ports: HostPorts,
        *,
        restarts: int = 0,
        queued: Callable[[], int] = lambda: 0,
        placed: Callable[[str], None] | None = None,
    ) -> None:
        self.id = id
        self.runnable = runnable
        self._ports = ports
        self._restarts = restarts
        self._queued = queued
        self._placed = placed
        self._publisher = Publisher(ports.bus, self._events_under_way)
        self._lines = ThreadLines(ports.clock)
        self._probation = Probation(ports.clock)
        self._active: dict[str, tuple[HostedRun, asyncio.Task[None]]] = {}
        self._later: dict[str, deque[HostedRun]] = {}
        self._ended: OrderedDict[str, tuple[Feed, int, RunInfo]] = OrderedDict()
        self._ended_bytes = 0
        self._forgotten: OrderedDict[str, None] = OrderedDict()
        self._background: list[asyncio.Task[None]] = []
        self._stopping = False

    def start(self, request: RunRequest) -> Feed:
        """Start a run, on the running loop. A run_id that is known already is not started twice.

        An answer to a run that another answer has just set going waits for the end of that segment.
        """
        run_id = request.run_id
        is_known = any(run_id in runs for runs in (self._active, self._ended, self._forgotten))
        if request.answer is None and is_known:
            if run_id in self._active:
                self._active[run_id][0].offered = request
            return self.follow(run_id)
        return self._begin(request).feed

    def follow(self, run_id: str) -> Feed:
        """The feed of a run, from its start; of one that is not here, from its records.

        A run that was lost with its process goes on here. The feed ends with `RunNotFound` when
        the store has no record of it.
        """
        if run_id in self._active:
            return self._active[run_id][0].feed
        if run_id in self._ended and self._is_whole(self._ended[run_id][0]):
            return self._ended[run_id][0]
        return self._begin(RunRequest(run_id, run_id, "", continued=True), must_exist=True).feed

    def _is_whole(self, feed: Feed) -> bool:
        """Whether a feed begins with the run, or nothing more is to be had: of a run that was
        resumed it has the last segment."""
        first = feed.peek(0)[:1]
        return not self._ports.store.keeps_events or not first or first[0].seq == 0

    def has(self, run_id: str) -> bool:
        """Whether the run is under way here, or has ended here not long ago."""
        return run_id in self._active or run_id in self._ended

    def take_up(self, held: Sequence[tuple[str, str]]) -> Sequence[str]:
        """Go on with the runs that another incarnation of this host has left: the threads they
        hold, and as whom (`RunStore.held_by`). Returns their ids."""
        left = [
            (thread_id, owner) for thread_id, owner in held if run_of(owner) not in self._active
        ]
        for thread_id, owner in left:
            request = RunRequest(run_of(owner), thread_id, "", continued=True)
            self._begin(request, owner=owner, must_exist=True)
        return [run_of(owner) for _, owner in left]

    def _begin(
        self, request: RunRequest, *, owner: str | None = None, must_exist: bool = False
    ) -> HostedRun:
        if self._stopping:
            raise self._is_stopping()
        if self._placed is not None and not request.continued:
            self._placed(request.run_id)
        if not self._background:
            self._background = [asyncio.ensure_future(self._renew_leases())]
            executor = self._ports.executor
            if isinstance(executor, DirectExecutor):
                executor.tell_to(self._deliver)
            else:
                self._background.append(asyncio.ensure_future(self._route_updates()))
        run = HostedRun(
            request,
            self.runnable.name,
            self.id,
            self._ports,
            self._publisher,
            self._lines,
            self._probation,
            recorded=self.runnable if isinstance(self.runnable, RecordedRunnable) else None,
            owner=owner,
            must_exist=must_exist,
        )
        if run.run_id in self._active:
            self._later.setdefault(run.run_id, deque()).append(run)
        else:
            self._active[run.run_id] = (run, asyncio.ensure_future(self._host(run)))
        return run

    async def memory_lost(self) -> None:
        """Store and bus may have begun anew: give them what is under way again."""
        self._publisher.probe()
        if self._placed is not None:
            for run_id in self._active:
                self._placed(run_id)
        await self._renew()

    def _events_under_way(self) -> Sequence[Emitted]:
        return [event for run, _ in self._active.values() for event in run.own_events()]

    def tell_restart(self, restarts: int, runs: Sequence[str]) -> None:
        """Put on the bus that this host was started again, and what it takes up."""
        source = EventSource(
            run_id=self.id,
            thread_id=self.id,
            agent=self.runnable.name,
            seq=restarts,
            node_id=self._ports.node_id,
            pid=os.getpid(),
        )
        event = AgentRestartedEvent(restarts=restarts, runs=tuple(runs), source=source)
        self._publisher.put([Emitted(self.id, restarts, event)])

    def _is_stopping(self) -> RunError:
        return RunError(f"{self.runnable.name} is stopping and takes no new run")

    def cancel(self, run_ids: Sequence[str], *, at_once: bool) -> None:
        """Flag runs, or stop them at once. Runs that have ended are left as they are."""
        for run_id in run_ids:
            if run_id in self._active:
                self._active[run_id][0].cancel(at_once=at_once)
            for run in self._later.get(run_id, ()):
                run.cancel(at_once=at_once)

    def observe(self) -> AgentStatus:
        """The host at a glance."""
        return AgentStatus(
            name=self.runnable.name,
            id=self.id,
            pid=os.getpid(),
            node_id=self._ports.node_id,
            restarts=self._restarts,
            active_runs=len(self._active),
            queued=self._queued(),
        )

    def runs(self) -> Sequence[RunInfo]:
        """The runs that are here, and those that ended here not long ago; from any thread."""
        seen = {info.run_id: info for _, _, info in list(self._ended.values())}
        seen.update((run.run_id, run.seen()) for run, _ in list(self._active.values()))
        return list(seen.values())

    async def records(self, thread_id: str) -> Sequence[Record]:
        """What is stored of a thread."""
        return await self._ports.store.read(thread_id)

    async def drain(self, drain_s: float, *, comes_back: bool) -> Sequence[str]:
        """Take no new run, let running ones end for up to `drain_s`, and leave the rest.

        What is left can be taken up at once, by another process or this host's next incarnation;
        runs that have not begun are cancelled. Unless the host `comes_back`, whoever follows a run
        that is left is told. To be called before the process ends: what is left hangs here.
        Returns the ids of what is left.
        """
        self._stopping = True
        tasks = [task for _, task in self._active.values()]
        if tasks and drain_s > 0:
            await asyncio.wait(tasks, timeout=drain_s)
        ending = [task for run, task in self._active.values() if run.terminated]
        if ending:
            await asyncio.wait(ending, timeout=STORE_END_S)
        active = [run for run, _ in self._active.values()]
        for run in active:
            run.stop_waiting()
        left = [run for run in active if run.begun]
        told = [None if comes_back else self._left(run) for run in left]
        await asyncio.gather(*map(HostedRun.give_way, left, told))
        return [run.run_id for run in left]

    def _left(self, run: HostedRun) -> RunLost:
        return RunLost(
            f"run {run.run_id} was left where it stands, because {self.runnable.name} was drained: "
            "what is stored of it is kept; attach to it with an agent that has the same store, "
            "and it goes on",
            run_id=run.run_id,
        )

    async def stop(self, drain_s: float) -> None:
        """Take no new run; let running ones end for up to `drain_s`, then cancel them.

        Runs that wait for their thread have not begun, and are cancelled at once.
        """
        self._stopping = True
        for run, _ in self._active.values():
            run.stop_waiting()
        tasks = [task for _, task in self._active.values()]
        if tasks and drain_s > 0:
            await asyncio.wait(tasks, timeout=drain_s)
        self.cancel(list(self._active), at_once=True)
        if tasks:
            await asyncio.wait(tasks)
        for task in self._background:
            task.cancel()
        await self._ports.executor.close()

    async def _host(self, run: HostedRun) -> None:
        try:
            await self._whole_life(run)
        finally:
            run.leave()
            self._go_on_with(run.run_id)

    def _go_on_with(self, run_id: str) -> None:
        """Take the next answer to a run whose segment has ended."""
        later = self._later.get(run_id)
        if not later:
            return
        run = later.popleft()
        if not later:
            del self._later[run_id]
        if self._stopping:
            run.feed.close(error=self._is_stopping())
            self._go_on_with(run_id)
            return
        self._active[run_id] = (run, asyncio.ensure_future(self._host(run)))

    async def _whole_life(self, run: HostedRun) -> None:
        """Begin, conduct, end, and the outcome for whoever follows."""
        result: object = None
        failure: BaseException | None = None
        try:
            await run.begin()
            if self._placed is not None and run.request.continued:
                self._placed(run.run_id)  # one that cannot be taken up here is not found here
            if run.has_ended:
                await self._recall(run)
                return
            result = await run.conducted(self.runnable)
        except asyncio.CancelledError:
            failure = RunCancelled(f"run {run.run_id} was cancelled", run_id=run.run_id)
        except Exception as error:  # kept as the run's outcome, for whoever asks for it
            failure = error
        if run.gave_way:
            return  # how it ends is for another process to tell
        if failure is not None and not run.begun and not run.is_new:
            # no segment began, so none ends: the run is as it was before
            del self._active[run.run_id]
            run.feed.close(error=failure)
            return
        try:
            store_failure = await run.end(last_event(run.run_id, result, failure), failure)
        except Exception as error:  # never leave anybody waiting
            store_failure = error
        del self._active[run.run_id]
        self._keep(run)
        run.feed.close(result, failure or store_failure)

    async def _recall(self, run: HostedRun) -> None:
        """The outcome of a run that was over before, for whoever asks for it."""
        result: object = None
        failure: BaseException | None = None
        try:
            result = await run.recalled(self.runnable)
        except asyncio.CancelledError:
            failure = RunCancelled(f"run {run.run_id} was cancelled", run_id=run.run_id)
        except Exception as error:  # as it was raised the first time
            failure = error
        del self._active[run.run_id]
        self._keep(run)
        run.feed.close(result, failure)

    def _keep(self, run: HostedRun) -> None:
        """Keep an ended run for those who come late; the oldest make room, and one too large for
        it is not kept at all. Who follows a run now has it anyway."""
        size_bytes = run.feed.size_bytes
        if run.run_id in self._ended:  # an earlier segment
            self._ended_bytes -= self._ended.pop(run.run_id)[1]
        self._ended[run.run_id] = (run.feed, size_bytes, run.seen())
        self._ended_bytes += size_bytes
        while len(self._ended) > ENDED_RUNS_KEPT or self._ended_bytes > ENDED_BYTES_KEPT:
            run_id, (_, freed_bytes, _) = self._ended.popitem(last=False)
            self._ended_bytes -= freed_bytes
            self._forgotten[run_id] = None
        while len(self._forgotten) > FORGOTTEN_KEPT:
            self._forgotten.popitem(last=False)

    async def _route_updates(self) -> None:
        async for batch in self._ports.executor.updates():
            for update in batch:
                self._deliver(update)

    def _deliver(self, update: ToolUpdate) -> None:
        active = self._active.get(update.key.run_id)
        if active is not None:
            active[0].deliver(update)

    async def _renew_leases(self) -> None:
        while True:
            await self._ports.clock.sleep(self._ports.lease_s / 3)
            await self._renew()

    async def _renew(self) -> None:
        for run, _ in list(self._active.values()):
            with contextlib.suppress(TulipError):  # the next write meets the same, and ends the run
                await run.renew()


def last_event(run_id: str, result: object, failure: BaseException | None) -> TerminateEvent:
    """The TerminateEvent of a run whose Runnable did not emit one itself."""
    if isinstance(failure, RunCancelled) and failure.run_id == run_id:
        return TerminateEvent(reason="cancelled", stop_reason="cancelled")
    if failure is not None:
        return TerminateEvent(reason="error", stop_reason="error")
    if isinstance(result, RunResult):
        reason = result.stop_reason
        return TerminateEvent(
            reason=reason,
            stop_reason=reason if reason in STOP_REASONS else "complete",
            final_message=result.final_message,
        )
    return TerminateEvent(reason="complete", stop_reason="complete")
