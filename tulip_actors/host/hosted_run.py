"""One run inside its host: the RunContext that a Runnable sees."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from random import Random
from threading import get_ident
from typing import Any

from tulip_actors.core.calls import (
    CallEmitted,
    CallReport,
    ToolRequest,
)
from tulip_actors.core.codec import unpack_event
from tulip_actors.core.current import checked_entry, not_an_event, principal_of, serving
from tulip_actors.core.defaults import derived_id
from tulip_actors.core.events import (
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
)
from tulip_actors.core.frozen import EMPTY, Json
from tulip_actors.core.messages import Message
from tulip_actors.core.ports import ChatModel, ChildRun, Clock, Runnable, RunStarter
from tulip_actors.core.runs import (
    Answer,
    Answered,
    ModelResponse,
    ModelTurn,
    Record,
    RunRequest,
    RunStarted,
)
from tulip_actors.errors import ConfigError, RunCancelled, RunError
from tulip_actors.host.calls_in_flight import CallsInFlight, MadeCalls
from tulip_actors.host.feed import Feed
from tulip_actors.host.forwarded import Forwarded
from tulip_actors.host.ports import HostPorts
from tulip_actors.host.publisher import Publisher
from tulip_actors.host.record_writer import RecordWriter
from tulip_actors.host.sink import RunSink
from tulip_actors.host.taken_up import pending_interrupt, taken_up
from tulip_actors.host.thread_lines import Place, ThreadLines
from tulip_actors.host.watchers import Watchers
from tulip_actors.models.accumulate import as_response

_OF_EVERY_TURN = frozenset({ThinkEvent, ToolStartEvent, ToolCompleteEvent})
"""Classes of events that need no look at what else they are."""
LEASE_S = 60.0
"""How long a thread stays ours without a sign of life; renewed at a third of it."""


STORE_END_S = 20.0
"""How long a run that has ended waits for its store to take the last records."""
CHILD_END_S = 5.0
"""How long a cancelled run waits for the end of a child: the grace of a body, and some more."""


class HostedRun:
    """A run's context. Made by `RunHost`, which also ends it.

    `deliver` hands an update of the executor to whoever made the call.
    """

    def __init__(
        self,
        request: RunRequest,
        name: str,
        host_id: str,
        ports: HostPorts,
        publisher: Publisher,
        lines: ThreadLines,
    ) -> None:
        self.request = request
        self.run_id = request.run_id
        self.agent_id = host_id
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self.clock: Clock = ports.clock
        self.feed = Feed()
        self.cancel_requested = False
        self.epoch = 0
        self._stopped = False
        self._conducting: asyncio.Task[object] | None = None
        self._ports = ports
        self._sink = RunSink(request, name, ports.node_id, self.feed, publisher)
        self._writer: RecordWriter | None = None
        self._records: list[Record] = []
        self._children: set[ChildRun] = set()
        self._new_metadata: dict[str, Json] = {}
        self._watchers = Watchers()
        self._began_s = ports.clock.monotonic_s()
        self.responses_recorded = 0
        self._calls = CallsInFlight(ports.executor)
        self.deliver = self._calls.deliver
        self._lines = lines
        self._place: Place | None = None
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
        if get_ident() == self._thread:
            self._emit(event)
        else:
            self._loop.call_soon_threadsafe(self._emit, event)

    def terminate(self, event: TerminateEvent) -> None:
        """See `RunContext`."""
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
        child = member.begin(
            RunRequest(
                run_id=run_id,
                thread_id=run_id,
                input=input,
                metadata=self.request.metadata,
                stream_tokens=self.request.stream_tokens,
                parent_run_id=self.run_id,
                specialist_id=specialist_id,
            )
        )
        forwarded = Forwarded(child, self._sink)
        self._children.add(child)
        try:
            await forwarded.to_the_end()
            return await child.result()
        except asyncio.CancelledError:
            child.cancel()
            with contextlib.suppress(TimeoutError):  # its last events belong to this stream too
                await asyncio.wait_for(forwarded.to_the_end(), CHILD_END_S)
            raise
        finally:
            self._children.discard(child)

    async def sleep(self, seconds: float) -> None:
        """See `RunContext`."""
        await self.clock.sleep(seconds)

    def new_id(self, kind: str, key: str) -> str:
        """See `RunContext`."""
        return derived_id(kind, self.run_id, key)

    def random(self, key: str) -> Random:
        """See `RunContext`."""
        return Random(derived_id("seed", self.run_id, key))

    def call_tools(self, requests: Sequence[ToolRequest]) -> MadeCalls:
        """See `RunContext`."""
        return MadeCalls(self._calls, requests, self._hear)

    def _hear(self, report: CallReport) -> None:
        """What a body tells. Taken where its call is followed, so in order with what becomes of it,
        and with this run as the current one of whoever watches."""
        if isinstance(report, CallEmitted):
            self.emit(unpack_event(report.packed))
        else:
            self._new_metadata[report.name] = report.value

    # for the host

    async def begin(self) -> None:
        """Become the writer of the run's thread, and record with what the segment begins.

        Raises `RunNotFound` or `InterruptNotPending` for an answer to nothing; nothing is changed.
        Raises `ThreadBusy` when another run holds the thread, or waits for it if that is wanted.
        """
        store, answer = self._ports.store, self.request.answer
        if answer is not None or self.request.continued:
            await self._restore(answer)
        self.epoch = await self._acquired()
        self._began_s = self.clock.monotonic_s()  # a wait counts for no budget
        self._writer = RecordWriter(store, self.thread_id, self.epoch, self._sink.release)
        self._sink.follow(self._writer)
        if not self._records:
            self.record(RunStarted(*self.stamp(), self.request, self.agent_id))
        if answer is not None:
            question = pending_interrupt(self._records, answer, self.run_id)
            self.record(Answered(*self.stamp(), question, answer.response))

    @property
    def begun(self) -> bool:
        """True once the run has its thread."""
        return self._writer is not None

    async def _acquired(self) -> int:
        store, answer = self._ports.store, self.request.answer
        owner = self.run_id
        if answer is not None:  # of two that answer at once, here or elsewhere, one gets the thread
            owner = f"{self.run_id}/{self._ports.ids.new('answer')}"
        acquire = partial(store.acquire, self.thread_id, owner, LEASE_S)
        if self.request.on_busy == "refuse":
            epoch = await acquire()
        else:
            if self._place is None:  # only now is the thread of an answer known
                self._place = self._lines.join(self.thread_id)
                if self.cancel_requested:  # before there was a place to give up
                    self.stop_waiting()
            epoch = await self._place.acquired(acquire)
        if answer is not None:
            try:
                await self._restore(answer)  # another run may have answered meanwhile
            except Exception:
                await store.release(self.thread_id, epoch)
                raise
        return epoch

    async def _restore(self, answer: Answer | None) -> None:
        """Take up the run's records, and the request with which it was started."""
        store = self._ports.store
        thread_id = await store.find(self.run_id) or self.thread_id
        started, own = taken_up(await store.read(thread_id), self.run_id)
        if answer is not None:
            pending_interrupt(own, answer, self.run_id)
        self.request = replace(started, answer=answer, continued=self.request.continued)
        self._records = list(own)
        self.responses_recorded = sum(isinstance(record, ModelTurn) for record in own)
        self._sink.resume(self.request, max(record.seq for record in own) + 1)

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
        for child in self._children:
            child.cancel_at_boundary()
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
            self._lines.leave(self.thread_id, self._place)

    async def end(self, last: TerminateEvent) -> Exception | None:
        """Store the rest, emit the last event if the Runnable has not, give the thread back.

        Returns what the store raised, if it did.
        """
        self.terminate(last)
        failure: Exception | None = None
        if self._writer is not None:
            for work in (
                self._writer.durable(),
                self._ports.store.release(self.thread_id, self.epoch),
            ):
                try:
                    async with asyncio.timeout(STORE_END_S):
                        await work
                except TimeoutError:
                    failure = failure or RunError(
                        f"the store of run {self.run_id} gave no answer for {STORE_END_S:.0f} s; "
                        "the end of the run may not be stored",
                        run_id=self.run_id,
                    )
                except Exception as error:  # the run has ended all the same; the caller is told
                    failure = failure or error
        if failure is not None:
            self._sink.end_with_error()
        await self._sink.finish()
        return failure

    async def renew(self) -> None:
        """Keep the thread's lease, if there is one yet."""
        if self.begun:
            await self._ports.store.renew(self.thread_id, self.epoch, LEASE_S)

    def _still_wanted(self) -> None:
        if self.cancel_requested:
            raise RunCancelled(f"run {self.run_id} was cancelled", run_id=self.run_id)
