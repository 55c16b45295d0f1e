"""One run inside its host: how it begins, is taken up again, is stopped, and ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

from tulip_actors.core.current import serving
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.events import (
    RunRecoveredEvent,
    TerminateEvent,
)
from tulip_actors.core.ports import RecordedRunnable, Runnable
from tulip_actors.core.run_info import RunInfo, RunState
from tulip_actors.core.runs import (
    Answered,
    ModelTurn,
    OnBusy,
    Recovered,
    RunEnded,
    RunRequest,
    RunStarted,
)
from tulip_actors.errors import (
    RemoteError,
    RunError,
    RunLost,
    RunNotFound,
    TulipError,
)
from tulip_actors.host.hosted_context import HostedContext
from tulip_actors.host.opening import Opener, Opening, seconds_since_start, segment_start
from tulip_actors.host.ports import HostPorts
from tulip_actors.host.probation import ALONE_S, Probation, Verdict, fruitless, verdict_on
from tulip_actors.host.publisher import Publisher
from tulip_actors.host.record_writer import Claim, RecordWriter
from tulip_actors.host.replay import Told, ToldCalls, chunks_discarded, of_last_turn
from tulip_actors.host.thread_lines import Place, ThreadLines
from tulip_actors.memory.fold import standing

STORE_END_S = 20.0
"""How long a run that has ended waits for its store to take the last records."""


class HostedRun(HostedContext):
    """A run. Made by `RunHost`, which also ends it.

    `has_ended` once it is clear that the run was over before. `recorded` is what is conducted, if
    that goes on from its records and does not all again; `owner` is the name under which another
    incarnation of the host held the thread. A run that `must_exist` is not begun, unless it is
    `offered` by whoever started it. `is_new` is false for a segment of a run that was there before.
    """

    def __init__(
        self,
        request: RunRequest,
        name: str,
        host_id: str,
        ports: HostPorts,
        publisher: Publisher,
        lines: ThreadLines,
        probation: Probation,
        *,
        recorded: RecordedRunnable[object] | None = None,
        owner: str | None = None,
        must_exist: bool = False,
    ) -> None:
        super().__init__(request, name, host_id, ports, publisher)
        self.has_ended = False
        self.gave_way = False
        self.offered = None if must_exist else request
        self.is_new = not request.continued and request.answer is None
        self._recorded = recorded
        self._owner = owner
        self._probation = probation
        self._on_probation = False
        self._is_second_start = False
        self._known = 0
        self._recoveries = 0
        self._stopped = False
        self._conducting: asyncio.Task[object] | None = None
        self._lines = lines
        self._place: Place | None = None
        self._place_of = request.thread_id
        if request.on_busy == "wait" and request.answer is None:
            self._place = lines.join(request.thread_id)

    async def begin(self) -> None:
        """Become the writer of the run's thread, and record with what the segment begins.

        Raises `RunNotFound` or `InterruptNotPending` for an answer to nothing; nothing is changed.
        Raises `ThreadBusy` when another run holds the thread, or waits for it if that is wanted.
        """
        opening = await self._opening()
        request = self.request = opening.request
        self._records = list(opening.records)
        self._recoveries = sum(isinstance(one, Recovered) for one in self._records)
        self.responses_recorded = sum(isinstance(one, ModelTurn) for one in self._records)
        if self._records:
            is_kept = request.continued and self._ports.store.keeps_events
            next_seq = 0 if is_kept else max(one.seq for one in self._records) + 1
            self._sink.resume(request, next_seq)
        if request.continued and opening.events:  # else none was emitted, where they are kept
            self._sink.replay(opening.events, has_ended=opening.claim is None)
            self.feed.segment_start = segment_start(self._records)
        if opening.claim is None:
            if not opening.events:
                raise RunNotFound(
                    f"run {self.run_id} ended too long ago: its events are not kept (they may "
                    "still be on the bus; its thread has its messages)",
                    run_id=self.run_id,
                )
            self.has_ended = True
            ended = next(one for one in reversed(self._records) if isinstance(one, RunEnded))
            self._stop_reason, self._since = ended.stop_reason, ended.at
            return
        self._since = self.clock.now()
        self._began_s = self.clock.monotonic_s()  # a wait counts for no budget
        self._writer = RecordWriter(
            self._ports.store,
            opening.claim,
            opening.epoch,
            self._durable,
            lambda: (self._records, self._sink.emitted_so_far()),
        )
        self._sink.follow(self._writer)
        if not self._records:
            self.record(RunStarted(*self.stamp(), request, self.agent_id))
            if self._is_second_start:  # the first came to nothing: the next one is to know of this
                await self.durable()
        elif opening.question is not None and request.answer is not None:
            answer = request.answer
            self.feed.segment_start = self._sink.next_seq
            self.record(Answered(*self.stamp(), opening.question, answer.response, answer.id))
        elif request.continued:
            await self._recover(opening)

    async def _recover(self, opening: Opening) -> None:
        """Go on in the place of another process: with its time, and saying so."""
        verdict = verdict_on(self._records)
        if verdict is Verdict.GIVE_UP:
            raise RunLost(
                f"run {self.run_id} was given up: its process died "
                f"{fruitless(self._records)} times in a row before it came any further",
                run_id=self.run_id,
            )
        if verdict is Verdict.TAKE_UP_ALONE:
            await self._probation.enter(self._records)
            self._on_probation = True
            # it may wait for what another one does, that waits for this one to get further
            self._loop.call_later(ALONE_S, self._leave_probation)
        self._began_s -= seconds_since_start(self._records, self.clock.now())
        earlier = await self.thread_records()
        iteration = standing([*earlier, *self._records]).state.iteration
        if self._recorded is None:
            self._told = Told(opening.events)
        self._told_calls = ToldCalls(opening.events)
        self._recoveries += 1
        self._told_by_tools = Told(of_last_turn(opening.events))
        self.record(Recovered(*self.stamp()))
        self._known = len(self._records)
        self.emit(
            RunRecoveredEvent(
                iteration=iteration, chunks_discarded=chunks_discarded(opening.events)
            )
        )
        await self.durable()  # before anything that may end this process too: this is counted

    def _durable(self) -> None:
        """Something was stored."""
        self._sink.release()
        self._release_stored()
        if self._on_probation and len(self._records) > self._known:
            self._leave_probation()

    def _leave_probation(self) -> None:
        if self._on_probation:
            self._on_probation = False
            self._probation.leave()

    async def _opening(self) -> Opening:
        ports, request = self._ports, self.request
        check = None if self._recorded is None else self._recorded.check
        opener = Opener(ports.store, self.agent_id, ports.lease_s, check)
        if request.answer is not None:
            return await opener.answered(request, request.answer, self._acquired)
        if request.continued:
            opening = await opener.continued(self.run_id, self._acquired, self._owner)
            if opening is not None:
                return opening
            if self.offered is None:
                raise RunNotFound(
                    f"there is no run {self.run_id}: it was never started here, or its records are "
                    "no longer kept (its events may still be on the bus)",
                    run_id=self.run_id,
                )
            if not ports.store.keeps_events:  # what it did, and whether, nobody can tell
                raise RunLost(
                    f"run {self.run_id} was lost with its process: its checkpointer keeps states, "
                    "at checkpoints, and no record of what came after. Its thread goes on from "
                    "there with a new run",
                    run_id=self.run_id,
                )
            self.request, self.is_new = replace(self.offered, continued=False), True
            self._is_second_start = True
        return await opener.fresh(self.request, self._acquired)

    @property
    def begun(self) -> bool:
        """True once the run has its thread."""
        return self._writer is not None

    async def _acquired(self, claim: Claim, on_busy: OnBusy) -> int:
        async def acquire() -> int:
            return await claim.acquired(self._ports.store)

        if on_busy == "refuse" or self._owner is not None:
            return await acquire()
        if self._place is None:  # only now is the thread of an answer known
            self._place = self._lines.join(claim.thread_id)
            self._place_of = claim.thread_id
            if self.cancel_requested:  # before there was a place to give up
                self.stop_waiting()
        return await self._place.acquired(acquire)

    async def conducted(self, runnable: Runnable[object]) -> object:
        """Let the Runnable do its job, in a task of its own: what is cancelled is that alone.

        However early a cancel comes, it takes its first step, so that an agent ends its own way.
        """
        with serving(self, self):
            conducting = asyncio.ensure_future(runnable.conduct(self.request.input, self))
        await asyncio.sleep(0)
        self._conducting = conducting
        if self._stopped:
            conducting.cancel()
        try:
            return await conducting
        finally:
            self._conducting = None  # its context knows this run, which would wait for a collector

    def cancel(self, *, at_once: bool) -> None:
        """Set the flag, or stop what is conducted. Once that has ended there is nothing to stop.

        A run that waits for its thread has not begun: either way it ends now.
        """
        self.cancel_requested = True
        self.stop_waiting()
        self._members.cancel_at_boundary()
        if not at_once or self._stopped:
            return  # a second cancel would tear the run out of its own ending
        self._stopped = True
        if self._conducting is not None:
            self._conducting.cancel()

    def stop_waiting(self) -> None:
        """End the run unless it has its thread, or is about to get it; from any thread."""
        if self._place is not None:
            self._place.give_up()

    def leave(self) -> None:
        """Let the next run of this host that waits have the thread."""
        if self._place is not None:
            self._lines.leave(self._place_of, self._place)

    async def recalled(self, runnable: Runnable[object]) -> object:
        """The result of a run that has ended, from its records. Raises as it did, in our words."""
        ended = next(one for one in reversed(self._records) if isinstance(one, RunEnded))
        if ended.stop_reason == "error":
            text = ended.error or ended.reason
            raise RemoteError(f"run {self.run_id} ended with an error: {text}")
        if isinstance(runnable, RecordedRunnable):
            return await runnable.recall(self)
        return await self.conducted(runnable)

    async def end(self, last: TerminateEvent, failure: BaseException | None) -> Exception | None:
        """Store the rest, emit the last event if the Runnable has not, give the thread back.

        Returns what the store raised, if it did. A run that another process has taken over ends
        here without a word: what is still to be told, that one tells.
        """
        self._leave_probation()
        writer = self._writer
        if writer is not None and not self._sink.terminated:
            failed = failure is not None and last.stop_reason == "error"
            error = f"{type(failure).__name__}: {failure}" if failed else None
            self.record(RunEnded(*self.stamp(), last.stop_reason, last.reason, error=error))
        self.terminate(last)
        problem: Exception | None = None
        if writer is not None:
            for work in (writer.durable(), writer.release()):
                try:
                    async with asyncio.timeout(STORE_END_S):
                        await work
                except TimeoutError:
                    problem = problem or RunError(
                        f"the store of run {self.run_id} gave no answer for {STORE_END_S:.0f} s; "
                        "the end of the run may not be stored",
                        run_id=self.run_id,
                    )
                except Exception as error:  # the run has ended all the same; the caller is told
                    problem = problem or error
            self._release_stored()
            if writer.is_stale:
                self._sink.abandon()
                return problem
        if problem is not None:
            self._sink.end_with_error()
        await self._sink.finish()
        return problem

    async def give_way(self, told: RunError | None) -> None:
        """The process ends, and another one is to go on with the run, from what is stored.

        Nothing more is recorded, told or begun here, and calls under way are neither stopped nor
        released. Who follows the run is `told` so, if nobody comes back to this host.
        """
        self.gave_way = True
        self._sink.take_no_more()
        self._calls.give_way()
        if self._writer is not None:
            with contextlib.suppress(TulipError, OSError, TimeoutError):  # then the lease runs out
                async with asyncio.timeout(STORE_END_S):
                    await self._writer.give_way()
        self._sink.abandon()
        if told is not None:
            self.feed.close(error=told)

    async def renew(self) -> None:
        """Keep the thread's lease, if there is one yet."""
        if self._writer is not None:
            await self._writer.renew()

    def own_events(self) -> Sequence[Emitted]:
        """What the run itself has emitted and may be told."""
        return [entry for entry in self.feed.peek(0) if entry.run_id == self.run_id]

    def seen(self) -> RunInfo:
        """The run at a glance; from any thread."""
        if self._stop_reason is not None:
            waits = self._stop_reason == RunState.INTERRUPTED
            state = RunState.INTERRUPTED if waits else RunState.ENDED
        else:
            state = RunState.RUNNING if self.begun else RunState.QUEUED
        return RunInfo(
            run_id=self.run_id,
            thread_id=self.thread_id,
            agent=self._name,
            agent_id=self.agent_id,
            state=state,
            since=self._since,
            recoveries=self._recoveries,
            stop_reason=self._stop_reason,
        )
