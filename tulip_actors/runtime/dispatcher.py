"""Owns the tool tasks of a node: whoever made a call may die, its tools go on and are adopted.

A plain class; `spawn` makes the actor of it. It runs no user code, so nothing of a user's can stop
it. One task per call; at most `slots` bodies at once, of which those that wait for children do not
count, so a parent never keeps its children waiting. A while after its last client it ends itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError, TaskCancelledError

from tulip_actors.core.calls import (
    CallFinished,
    CallKey,
    CallLost,
    CallReport,
    CallStarted,
    CallStatus,
    CallSubmitted,
    ToolOutcome,
    ToolRequest,
    ToolUpdate,
)
from tulip_actors.core.defaults import RandomIds
from tulip_actors.runtime.fair_queue import FairQueue
from tulip_actors.runtime.tool_task import ChildCalls, SentCall

SLOTS_PER_CPU = 4
SLOTS_MIN = 8
"""Bodies at once: more than CPUs, since many wait; bounded, since each is a process."""
CANCEL_GRACE_S = 2.0
"""How long a cancelled body may take to clean up before its worker is killed."""
POLL_S = 10.0
LINGER_S = 15.0
CLIENT_LOST_AFTER_S = 45.0
"""A client that has not polled for this long is gone for good: a restart takes a second or two."""


@dataclass(slots=True)
class _Client:
    """An agent's actor that makes calls here."""

    updates: list[ToolUpdate] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    seen_at_s: float = field(default_factory=time.monotonic)

    def tell(self, update: ToolUpdate) -> None:
        self.updates.append(update)
        self.wake.set()


@dataclass(slots=True)
class _Call:
    request: ToolRequest
    client_id: str
    queued_at_s: float
    task: asyncio.Task[None] | None = None
    stream: Any = None
    started: CallStarted | None = None
    ended: CallFinished | CallLost | None = None
    cancelled: bool = False
    children_made: int = 0
    children_waited_for: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Dispatcher:
    """The calls of one node's agents. All methods are coroutines on one event loop."""

    def __init__(self) -> None:
        self.incarnation = RandomIds().new("dispatcher")
        self._clients: dict[str, _Client] = {}
        self._toolsets: dict[str, Any] = {}
        self._calls: dict[CallKey, _Call] = {}
        self._tickets: dict[str, list[CallKey]] = {}
        self._queue = FairQueue()
        self._running: set[CallKey] = set()
        self._slots = SLOTS_MIN
        self._left_at_s = time.monotonic()
        self._sweeper: asyncio.Task[None] | None = None
        self._self: Any = None

    async def hello(self, client_id: str) -> str:
        """Become a client; returns the incarnation, whose memory begins now or earlier."""
        self._self = ray.get_runtime_context().current_actor
        if self._sweeper is None:
            self._sweeper = asyncio.ensure_future(self._sweep())
            await self._count_slots()
        self._clients.setdefault(client_id, _Client()).seen_at_s = time.monotonic()
        return self.incarnation

    async def leave(self, client_id: str) -> None:
        """A client has ended: its calls are stopped. With the last one this actor soon ends too."""
        self._clients.pop(client_id, None)
        self._left_at_s = time.monotonic()
        await self.cancel([k for k, c in self._calls.items() if c.client_id == client_id])

    async def submit(
        self, client_id: str, requests: Sequence[ToolRequest], toolsets: Mapping[str, bytes]
    ) -> None:
        """Take calls; a known key is adopted: its outcome is told, or will be, to this client."""
        client = self._clients.setdefault(client_id, _Client())
        self._keep(toolsets)
        for request in requests:
            known = self._calls.get(request.key)
            if known is None or request.attempt > known.request.attempt:
                self._take(request, client_id)
            else:
                known.client_id = client_id
                if known.ended is not None:
                    client.tell(known.ended)
        self._fill_slots()

    async def updates(self, client_id: str) -> Sequence[ToolUpdate]:
        """What happened to a client's calls since the last poll; waits for something."""
        client = self._clients.setdefault(client_id, _Client())
        client.seen_at_s = time.monotonic()
        if not client.updates:
            client.wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(client.wake.wait(), POLL_S)
        client.seen_at_s = time.monotonic()
        taken, client.updates = client.updates, []
        return taken

    async def call(self, calls: ChildCalls) -> Sequence[ToolOutcome]:
        """Children of a running body: taken, announced to its client, and awaited."""
        parent = self._calls[calls.parent]
        if calls.packed is not None:
            self._keep({calls.toolset: calls.packed})
        made = [self._child(parent, calls, arguments) for arguments in calls.arguments]
        self._tickets[calls.ticket] = [call.request.key for call in made]
        parent.children_waited_for += len(made)
        self._fill_slots()
        try:
            for call in made:
                await call.done.wait()
        finally:
            parent.children_waited_for -= len(made)
            for key in self._tickets.pop(calls.ticket):
                self._calls.pop(key, None)
        return [_outcome(call) for call in made]

    async def report(self, reports: Sequence[CallReport]) -> None:
        """What running bodies tell of their runs, passed on; after a call's end it is dropped."""
        for report in reports:
            call = self._calls.get(report.key)
            if call is not None and call.ended is None:
                self._tell(call.client_id, report)

    async def abandon(self, ticket: str) -> None:
        """A body no longer waits for the children it asked for."""
        await self.cancel(self._tickets.get(ticket, ()))

    async def status(self, keys: Sequence[CallKey]) -> Mapping[CallKey, CallStatus]:
        """See `ToolExecutor`."""
        return {key: self._status(key) for key in keys}

    async def cancel(self, keys: Sequence[CallKey]) -> None:
        """Stop calls and their children. Their workers are killed if they outlast the grace."""
        calls = [call for key in self._with_children(keys) if not (call := self._calls[key]).ended]
        for call in calls:
            if call.task is None:
                self._end(call, _cancelled(call.request.key))
            elif call.stream is not None and not call.cancelled:
                # once: a second one would tear the body out of its own clean-up
                ray.cancel(call.stream, force=False, recursive=False)
            call.cancelled = True
        open_ = [call.task for call in calls if call.task is not None]
        if not open_:
            return
        _, overdue = await asyncio.wait(open_, timeout=CANCEL_GRACE_S)
        for call in calls:
            if call.task in overdue and call.stream is not None:
                ray.cancel(call.stream, force=True, recursive=False)
        if overdue:
            await asyncio.wait(overdue, timeout=CANCEL_GRACE_S)

    async def release(self, keys: Sequence[CallKey]) -> None:
        """The outcomes are recorded and need not be kept."""
        for key in self._with_children(keys):
            if self._calls[key].ended is not None:
                del self._calls[key]

    async def queued(self) -> int:
        """Calls that wait for a slot."""
        return len(self._queue)

    # inside

    def _keep(self, toolsets: Mapping[str, bytes]) -> None:
        for toolset, packed in toolsets.items():
            if toolset not in self._toolsets:
                self._toolsets[toolset] = ray.put(packed)

    def _take(self, request: ToolRequest, client_id: str) -> _Call:
        call = _Call(request, client_id, time.monotonic())
        self._calls[request.key] = call
        self._queue.push(request.key)
        return call

    def _child(self, parent: _Call, calls: ChildCalls, arguments: Mapping[str, Any]) -> _Call:
        position = parent.children_made
        parent.children_made += 1
        request = parent.request._replace(
            key=calls.parent.child(position),
            tool_name=calls.tool_name,
            tool_call_id=f"{parent.request.tool_call_id}.{position}",
            arguments=arguments,
            toolset=calls.toolset,
            policy=calls.policy,
            parent_call_id=parent.request.tool_call_id,
        )
        self._tell(parent.client_id, CallSubmitted(request))
        return self._take(request, parent.client_id)

    def _fill_slots(self) -> None:
        waiting = sum(self._calls[key].children_waited_for > 0 for key in self._running)
        while self._queue and len(self._running) - waiting < self._slots:
            key = self._queue.pop()
            call = self._calls.get(key)
            if call is None or call.ended is not None:
                continue
            self._running.add(key)
            call.task = asyncio.ensure_future(self._run(call))

    async def _run(self, call: _Call) -> None:
        """One call as a task: its start mark and outcome as they come, or how it was lost."""
        from tulip_actors.runtime.spawn import tool_call

        request = call.request
        key = request.key
        ended: CallFinished | CallLost = CallLost(key, "its task ended without an outcome", True)
        try:
            call.stream = tool_call(
                self._toolsets[request.toolset],
                SentCall(request, time.time() - (time.monotonic() - call.queued_at_s)),
                self._self,
                request.policy.demand,
            )
            async for ref in call.stream:
                update = await ref
                if isinstance(update, CallStarted):
                    call.started = update
                    self._tell(call.client_id, update)
                else:
                    ended = update
        except TaskCancelledError:
            ended = _cancelled(key)
        except (RayError, ValueError, OSError) as error:
            ended = _failed(call, error)
        if call.cancelled and isinstance(ended, CallLost):
            ended = _cancelled(key)
        self._running.discard(key)
        if call.children_made:  # those that it did not wait for end with it, and before it
            await self.cancel([child for child in self._calls if _is_below(child, {key})])
        self._end(call, ended)
        self._fill_slots()

    def _end(self, call: _Call, ended: CallFinished | CallLost) -> None:
        if call.ended is not None:
            return
        call.ended = ended
        call.stream = None
        call.done.set()
        if isinstance(ended, CallFinished):
            ended = CallFinished(ended.key, ended.outcome._replace(value=None))
        self._tell(call.client_id, ended)

    def _tell(self, client_id: str, update: ToolUpdate) -> None:
        if client_id in self._clients:
            self._clients[client_id].tell(update)

    def _status(self, key: CallKey) -> CallStatus:
        call = self._calls.get(key)
        if call is None:
            return CallStatus.NEVER_SEEN
        if call.ended is not None:
            return CallStatus.FINISHED
        return CallStatus.QUEUED if call.task is None else CallStatus.RUNNING

    def _with_children(self, keys: Sequence[CallKey]) -> list[CallKey]:
        wanted = set(keys)
        return [key for key in self._calls if key in wanted or _is_below(key, wanted)]

    async def _count_slots(self) -> None:
        resources = await asyncio.to_thread(ray.cluster_resources)
        self._slots = max(SLOTS_MIN, int(SLOTS_PER_CPU * resources.get("CPU", 0)))

    async def _sweep(self) -> None:
        """Forget clients that are gone for good, and end a while after the last of them.

        Not at once: the program's next agent would find an actor that is about to die.
        """
        while True:
            await asyncio.sleep(POLL_S)
            await self._count_slots()
            limit_s = time.monotonic() - CLIENT_LOST_AFTER_S
            for client_id in [c for c, known in self._clients.items() if known.seen_at_s < limit_s]:
                await self.leave(client_id)
            if not self._clients and time.monotonic() - self._left_at_s > LINGER_S:
                ray.kill(self._self, no_restart=True)


def _is_below(key: CallKey, ancestors: set[CallKey]) -> bool:
    return any(ancestor in ancestors for ancestor in key.ancestors())


def _cancelled(key: CallKey) -> CallFinished:
    return CallFinished(key, ToolOutcome(error="cancelled", error_type="cancelled"))


def _failed(call: _Call, error: Exception) -> CallFinished | CallLost:
    from tulip_actors.runtime.failures import translated

    if isinstance(error, RayError):
        reason = str(translated(error, "its worker")).splitlines()[0]
        return CallLost(call.request.key, reason, started=call.started is not None)
    text = f"the call cannot be placed: {error}"
    return CallFinished(call.request.key, ToolOutcome(error=text, error_type="config"))


def _outcome(call: _Call) -> ToolOutcome:
    if isinstance(call.ended, CallFinished):
        return call.ended.outcome
    reason = call.ended.reason if call.ended else "unknown"
    return ToolOutcome(error=f"the worker died while it ran: {reason}", error_type="tool_lost")
