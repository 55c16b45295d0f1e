"""One run inside its host: the RunContext that a Runnable sees."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from random import Random
from threading import get_ident
from typing import Any

from tulip_actors.core.calls import (
    CallEmitted,
    CallKey,
    CallReport,
    ToolRequest,
)
from tulip_actors.core.codec import unpack_event
from tulip_actors.core.current import checked_entry, not_an_event, principal_of, serving
from tulip_actors.core.defaults import derived_id
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.events import (
    RunRecoveredEvent,
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
)
from tulip_actors.core.frozen import EMPTY, Json
from tulip_actors.core.messages import Message
from tulip_actors.core.ports import ChatModel, Clock, RecordedRunnable, Runnable, RunStarter
from tulip_actors.core.run_info import RunInfo, RunState
from tulip_actors.core.runs import (
    Answered,
    ModelResponse,
    ModelTurn,
    OnBusy,
    Record,
    Recovered,
    RunEnded,
    RunRequest,
    RunStarted,
)
from tulip_actors.errors import (
    ConfigError,
    RemoteError,
    RunCancelled,
    RunError,
    RunLost,
    RunNotFound,
    TulipError,
)
from tulip_actors.host.calls_in_flight import CallsInFlight, MadeCalls
from tulip_actors.host.feed import Feed
from tulip_actors.host.members import Members
from tulip_actors.host.opening import Opener, Opening, seconds_since_start, segment_start
from tulip_actors.host.ports import HostPorts
from tulip_actors.host.probation import Probation, Verdict, fruitless, verdict_on
from tulip_actors.host.publisher import Publisher
from tulip_actors.host.record_writer import Claim, RecordWriter
from tulip_actors.host.replay import Told, ToldCalls, chunks_discarded, of_last_turn
from tulip_actors.host.sink import RunSink
from tulip_actors.host.thread_lines import Place, ThreadLines
from tulip_actors.host.watchers import Watchers
from tulip_actors.memory.fold import standing
from tulip_actors.models.accumulate import as_response

_OF_EVERY_TURN = frozenset({ThinkEvent, ToolStartEvent, ToolCompleteEvent})
"""Classes of events that need no look at what else they are."""
STORE_END_S = 20.0
"""How long a run that has ended waits for its store to take the last records."""


class HostedRun:
    """A run's context. Made by `RunHost`, which also ends it.

    `deliver` hands an update of the executor to whoever made the call. `has_ended` once it is clear
    that the run was over before. `recorded` is what is conducted, if that goes on from its records
    and does not all again; `owner` is the name under which another incarnation of the host held the
    thread. A run that `must_exist` is not begun, unless it is `offered` by whoever started it.
    `is_new` is false for a segment of a run that was there before.
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
        self.request = request
        self.run_id = request.run_id
        self.agent_id = host_id
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self.clock: Clock = ports.clock
        self.feed = Feed()
        self.cancel_requested = False
        self.has_ended = False
        self.gave_way = False
        self._recorded = recorded
        self._owner = owner
        self.offered = None if must_exist else request
        self.is_new = not request.continued and request.answer is None
        self._probation = probation
        self._on_probation = False
        self._is_second_start = False
        self._known = 0
        self._told = Told()
        self._told_calls = ToldCalls()
        self._told_by_tools = Told()
        self._stopped = False
        self._conducting: asyncio.Task[object] | None = None
        self._ports = ports
        self._sink = RunSink(request, name, ports.node_id, self.feed, publisher)
        self._writer: RecordWriter | None = None
        self._records: list[Record] = []
        self._members = Members(self._sink)
        self._new_metadata: dict[str, Json] = {}
        self._watchers = Watchers()
        self._began_s = ports.clock.monotonic_s()
        self._name = name
        self._since = ports.clock.now()
        self._recoveries = 0
        self._stop_reason: str | None = None
        self.responses_recorded = 0
        self._calls = CallsInFlight(ports.executor, self._release)
        self._releases: deque[tuple[int, Sequence[CallKey]]] = deque()
        self.deliver = self._calls.deliver
        self._lines = lines
        self._place: Place | None = None
        self._place_of = request.thread_id
        if request.on_busy == "wait" and request.answer is None:
            self._place = lines.join(request.thread_id)

    # what it is

    @property
    def thread_id(self) -> str:
        """See `RunContext`."""
        return self.request.thread_id

    @property
    def records(self) -> Sequence[Record]:
        """See `RunContext`."""
        return self._records

    def executor_id(self) -> Coroutine[Any, Any, str]:
        """See `RunContext`."""
        return self._ports.executor.incarnation()

    # events and records

    @property
    def terminated(self) -> bool:
        """True once the TerminateEvent was emitted."""
        return self._sink.terminated

    def stamp(self) -> tuple[str, int, datetime]:
        """See `RunContext`."""
        return self.run_id, self._sink.next_seq, self.clock.now()

    def emit(self, event: TulipEvent) -> None:
        """See `RunContext`. A watcher that raises never tears out the node that emits."""
        if type(event) not in _OF_EVERY_TURN:
            if not isinstance(event, TulipEvent):
                raise not_an_event(event)
            if isinstance(event, TerminateEvent):
                raise ConfigError("a TerminateEvent ends the stream and is the loop's own to emit")
        if self._told.covers(event):
            return
        if get_ident() == self._thread:
            self._emit(event)
        else:
            self._loop.call_soon_threadsafe(self._emit, event)

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

    def terminate(self, event: TerminateEvent) -> None:
        """See `RunContext`."""
        if not self._sink.terminated:
            self._stop_reason, self._since = event.stop_reason, self.clock.now()
        self._emit(event)

    def _emit(self, event: TulipEvent) -> None:
        if self._sink.terminated:
            return
        stamped = self._sink.emit(event)
        if self._watchers.watching:
            self._watchers.show(stamped)

    def watch_events(self, watcher: Callable[[TulipEvent], None]) -> None:
        """See `RunContext`."""
        self._watchers.add(watcher)

    @property
    def has_news(self) -> bool:
        """See `RunContext`."""
        return bool(self._new_metadata) or self._watchers.failure is not None

    def raise_watcher_failure(self) -> None:
        """See `RunContext`."""
        self._watchers.raise_failure()

    @property
    def metadata(self) -> Mapping[str, Json]:
        """See `RunContext`."""
        return self.request.metadata

    @property
    def principal(self) -> str | None:
        """See `RunContext`."""
        return principal_of(self.request.metadata)

    def set_metadata(self, key: str, value: object) -> None:
        """See `RunContext`."""
        name, frozen = checked_entry(key, value)
        self._new_metadata[name] = frozen

    def take_metadata(self) -> Mapping[str, Json]:
        """See `RunContext`."""
        if not self._new_metadata:
            return EMPTY
        taken, self._new_metadata = self._new_metadata, {}
        return taken

    @property
    def elapsed_s(self) -> float:
        """See `RunContext`."""
        return self.clock.monotonic_s() - self._began_s

    def record(self, *records: Record) -> None:
        """See `RunContext`."""
        assert self._writer is not None, "the run has begun"
        self._records.extend(records)
        for record in records:
            if type(record) is ModelTurn:
                self.responses_recorded += 1
        self._writer.add(records)

    @property
    def told_calls(self) -> Sequence[ToolStartEvent]:
        """See `RunContext`."""
        return list(self._told_calls.open.values())

    def has_told_end(self, tool_call_id: str, parent_call_id: str | None) -> bool:
        """See `RunContext`."""
        return (parent_call_id, tool_call_id) in self._told_calls.ended

    async def thread_records(self) -> Sequence[Record]:
        """See `RunContext`."""
        if self.thread_id == self.run_id:
            return ()
        records = await self._ports.store.read(self.thread_id)
        return [record for record in records if record.run_id != self.run_id]

    def durable(self) -> Coroutine[Any, Any, None]:
        """See `RunContext`."""
        assert self._writer is not None, "the run has begun"
        return self._writer.durable()

    def reach(self, point: str) -> Coroutine[Any, Any, None]:
        """See `RunContext`."""
        return self._ports.faults.reach(point, self.run_id)

    # effects

    async def complete(
        self,
        model: ChatModel | str,
        messages: Sequence[Message],
        *,
        key: str,
        **settings: object,
    ) -> ModelResponse:
        """See `RunContext`."""
        self._still_wanted()
        for record in self._records:
            if isinstance(record, ModelTurn) and record.key == key:
                return ModelResponse(record.message, record.usage, record.stop_reason)
        chat = self._ports.resolve_model(model) if isinstance(model, str) else model
        answer = as_response(await chat.complete(messages, None, **settings))
        # no tools were offered: a call made all the same could never be answered
        response = replace(answer, message=replace(answer.message, tool_calls=()))
        self.record(
            ModelTurn(*self.stamp(), key, response.message, response.usage, response.stop_reason)
        )
        return response

    def child_run_id(self, key: str) -> str:
        """See `RunContext`."""
        return derived_id("run", self.run_id, key)

    async def run(
        self,
        member: RunStarter,
        input: str,
        *,
        key: str,
        specialist_id: str | None = None,
    ) -> object:
        """See `RunContext`."""
        self._still_wanted()
        run_id = self.child_run_id(key)
        request = RunRequest(
            run_id=run_id,
            thread_id=run_id,
            input=input,
            metadata=self.request.metadata,
            stream_tokens=self.request.stream_tokens,
            parent_run_id=self.run_id,
            specialist_id=specialist_id,
            continued=self.request.continued,
        )
        return await self._members.run(member, request)

    async def sleep(self, seconds: float) -> None:
        """See `RunContext`."""
        await self.clock.sleep(seconds)

    def new_id(self, kind: str, key: str) -> str:
        """See `RunContext`."""
        return derived_id(kind, self.run_id, key)

    def random(self, key: str) -> Random:
        """See `RunContext`."""
        return Random(derived_id("seed", self.run_id, key))

    def call_tools(
        self, requests: Sequence[ToolRequest], adopted: Mapping[CallKey, str] | None = None
    ) -> MadeCalls:
        """See `RunContext`."""
        return MadeCalls(self._calls, requests, self._hear, adopted)

    def _release(self, keys: Sequence[CallKey], is_recorded: bool) -> None:
        """Let the executor forget calls once what became of them is stored, and no earlier: it is
        asked for them when this process dies before. Without a store it never comes to that."""
        assert self._writer is not None, "the run has begun"
        self._releases.append((self._writer.taken + (not is_recorded), keys))
        self._release_stored()

    def _release_stored(self) -> None:
        writer = self._writer
        while writer is not None and self._releases and self._releases[0][0] <= writer.written:
            self._ports.executor.release(self._releases.popleft()[1])

    def _hear(self, report: CallReport) -> None:
        """What a body tells. Taken where its call is followed, so in order with what becomes of it,
        and with this run as the current one of whoever watches."""
        if isinstance(report, CallEmitted):
            event = unpack_event(report.packed)
            if not self._told_by_tools.covers(event):  # the executor tells all again
                self.emit(event)
        else:
            self._new_metadata[report.name] = report.value

    # for the host

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

    def _still_wanted(self) -> None:
        if self.cancel_requested:
            raise RunCancelled(f"run {self.run_id} was cancelled", run_id=self.run_id)
