"""One run as its Runnable sees it: the RunContext inside a host.

What may live here: what the port promises. How a run begins, goes on after a crash and ends is in
`hosted_run`.
"""

from __future__ import annotations

import asyncio
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
from tulip_actors.core.current import checked_entry, not_an_event, principal_of
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
from tulip_actors.core.ports import ChatModel, Clock, RunStarter
from tulip_actors.core.runs import (
    ModelResponse,
    ModelTurn,
    Record,
    RunRequest,
)
from tulip_actors.errors import (
    ConfigError,
    RunCancelled,
)
from tulip_actors.host.calls_in_flight import CallsInFlight, MadeCalls
from tulip_actors.host.feed import Feed
from tulip_actors.host.members import Members
from tulip_actors.host.ports import HostPorts
from tulip_actors.host.publisher import Publisher
from tulip_actors.host.record_writer import RecordWriter
from tulip_actors.host.replay import Told, ToldCalls
from tulip_actors.host.sink import RunSink
from tulip_actors.host.watchers import Watchers
from tulip_actors.models.accumulate import as_response

_OF_EVERY_TURN = frozenset({ThinkEvent, ToolStartEvent, ToolCompleteEvent})
"""Classes of events that need no look at what else they are."""


class HostedContext:
    """A run's context. `deliver` hands an update of the executor to whoever made the call."""

    def __init__(
        self,
        request: RunRequest,
        name: str,
        host_id: str,
        ports: HostPorts,
        publisher: Publisher,
    ) -> None:
        self.request = request
        self.run_id = request.run_id
        self.agent_id = host_id
        self.clock: Clock = ports.clock
        self.feed = Feed()
        self.cancel_requested = False
        self.responses_recorded = 0
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._name = name
        self._ports = ports
        self._sink = RunSink(request, name, ports.node_id, self.feed, publisher)
        self._writer: RecordWriter | None = None
        self._records: list[Record] = []
        self._new_metadata: dict[str, Json] = {}
        self._watchers = Watchers()
        self._members = Members(self._sink)
        self._calls = CallsInFlight(ports.executor, self._release)
        self.deliver = self._calls.deliver
        self._releases: deque[tuple[int, Sequence[CallKey]]] = deque()
        self._began_s = ports.clock.monotonic_s()
        self._since = ports.clock.now()
        self._stop_reason: str | None = None
        self._told = Told()
        self._told_calls = ToldCalls()
        self._told_by_tools = Told()

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

    def _still_wanted(self) -> None:
        if self.cancel_requested:
            raise RunCancelled(f"run {self.run_id} was cancelled", run_id=self.run_id)
