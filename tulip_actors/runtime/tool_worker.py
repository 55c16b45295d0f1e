"""A process that runs tool bodies for a dispatcher: it asks for work, and tells what became of it.

`serve` is a Ray task that lasts as long as there is work. In its main thread and those beside it
run the bodies: coroutines in one event loop, plain functions in threads. A thread of the link's
own talks to the dispatcher, so that no body keeps it waiting.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import ray
from ray.exceptions import RayError

from tulip_actors.core.calls import (
    CallFinished,
    CallKey,
    CallKind,
    ToolOutcome,
    ToolUpdate,
)
from tulip_actors.errors import TulipError
from tulip_actors.runtime.memory_watch import memory_watch
from tulip_actors.runtime.pickling import pack, unpack
from tulip_actors.runtime.start_marks import StartMarks
from tulip_actors.runtime.tool_work import (
    CancelSeen,
    ChildCalls,
    Handed,
    Hello,
    Work,
    WorkerSpec,
    packed,
    unpacked,
)
from tulip_actors.runtime.worker_children import WorkerChildren, beside_main_thread
from tulip_actors.tools.children import ChildCaller
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.invoke import Stopwatch, run_async, run_plain

TOOLSETS_KEPT = 32
UPDATES_PER_MESSAGE = 256
"""Enough to make messages few, few enough that the dispatcher reads one while the next is made."""


def serve(spec: WorkerSpec, dispatcher: Any) -> None:
    """Work for a dispatcher until it says to leave, or is gone."""
    link = Link(spec, dispatcher)
    bodies: Bodies = Coroutines(link) if spec.kind is CallKind.ASYNC else PlainBodies(link)
    with memory_watch(spec.memory_bytes, link.exceeded):
        link.start(bodies)
        bodies.run()
    link.join()


class Bodies(Protocol):
    """What runs the bodies of a worker."""

    def run(self) -> None:
        """Run them, in the main thread, until `leave`."""
        ...

    def begin(self, calls: Sequence[Handed]) -> None:
        """Begin calls; from the link's thread, returns at once."""
        ...

    def cancel(self, key: CallKey) -> None:
        """Tell a body to end; from the link's thread, returns at once."""
        ...

    def leave(self) -> None:
        """No body will come any more."""
        ...


class Link:
    """The conversation with the dispatcher: one question for work is always open, and one message
    of news on its way, with what comes meanwhile in the next."""

    def __init__(self, spec: WorkerSpec, dispatcher: Any) -> None:
        self.spec = spec
        self.dispatcher = dispatcher
        self.node_id = ray.get_runtime_context().get_node_id()
        self.marks = StartMarks(spec.id, spec.places)
        self.cancelled: set[CallKey] = set()
        self.loop = asyncio.new_event_loop()
        self._bodies: Bodies | None = None
        self._news: deque[ToolUpdate | CancelSeen] = deque()
        self._order = threading.Lock()
        self._sending = False
        self._sent: asyncio.Future[None] | None = None
        self._toolsets: OrderedDict[str, Mapping[str, Tool]] = OrderedDict()
        self._packed: dict[str, bytes] = {}
        self._thread = threading.Thread(target=self._run, name="tulip-link", daemon=True)

    def start(self, bodies: Bodies) -> None:
        """Begin to ask for work."""
        self._bodies = bodies
        self._thread.start()

    def join(self) -> None:
        """Return when everything has been told."""
        self._thread.join()
        self.marks.unlink()

    def tell(self, update: ToolUpdate | CancelSeen) -> None:
        """Pass on what happened, in order; from any thread, returns at once."""
        self._news.append(update)
        if not self._sending:
            self._sending = True
            self.loop.call_soon_threadsafe(self._send)

    def exchange(self, calls: ChildCalls) -> ray.ObjectRef[bytes]:
        """Ask for children of a body; what was told before goes before them. From any thread."""
        with self._order:
            news = packed(self._taken(len(self._news)))
            sent = self.dispatcher.children.remote(self.spec.id, news, packed(calls))
        return cast("ray.ObjectRef[bytes]", sent)

    def tools(self, toolset: str) -> Mapping[str, Tool]:
        """The tools of a toolset, unpacked once. Raises `ConfigError`."""
        if toolset not in self._toolsets:
            self._toolsets[toolset] = unpack(self._packed[toolset])
            if len(self._toolsets) > TOOLSETS_KEPT:
                self._toolsets.popitem(last=False)
        return self._toolsets[toolset]

    def exceeded(self, grown_bytes: int) -> None:
        """The process has grown by more than its call may use: say so, then it ends."""
        sent = self.dispatcher.exceeded.remote(self.spec.id, grown_bytes)
        ray.wait([sent], timeout=1.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._ask_for_work())
        self.loop.close()

    async def _ask_for_work(self) -> None:
        assert self._bodies is not None, "set by `start`"
        hello: Hello | None = Hello(os.getpid(), self.node_id, self.marks.path)
        try:
            while True:
                answer = await self.dispatcher.work.remote(self.spec.id, hello)
                hello = None
                self.marks.unlink()
                work: Work = unpacked(answer)
                self._packed.update(work.toolsets)
                if work.calls:
                    self._bodies.begin(work.calls)
                for key in work.cancels:
                    self.cancelled.add(key)
                    self._bodies.cancel(key)
                if work.leave:
                    break
        except RayError:  # the dispatcher is gone, and Ray ends this process
            pass
        finally:
            self._bodies.leave()
        while self._sent is not None:
            await self._sent

    def _send(self) -> None:
        if self._sent is None:
            self._sent = asyncio.ensure_future(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._news:
                with self._order:
                    news = packed(self._taken(UPDATES_PER_MESSAGE))
                    sent = self.dispatcher.told.remote(self.spec.id, news)
                await sent
        except RayError:
            self._news.clear()
        finally:
            self._sent = None
            self._sending = False
            if self._news:  # came between the last look and the flag
                self._sending = True
                self._send()

    def _taken(self, most: int) -> list[ToolUpdate | CancelSeen]:
        return [self._news.popleft() for _ in range(min(most, len(self._news)))]


class Coroutines:
    """Coroutine bodies, all in the event loop of the main thread."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[CallKey, asyncio.Task[None]] = {}
        self._left = asyncio.Event()

    def run(self) -> None:
        """See `Bodies`."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._left.wait())

    def begin(self, calls: Sequence[Handed]) -> None:
        """See `Bodies`."""
        self._loop.call_soon_threadsafe(self._begin, calls)

    def cancel(self, key: CallKey) -> None:
        """See `Bodies`."""
        self._loop.call_soon_threadsafe(self._cancel, key)

    def leave(self) -> None:
        """See `Bodies`."""
        self._loop.call_soon_threadsafe(self._left.set)

    def _begin(self, calls: Sequence[Handed]) -> None:
        for handed in calls:
            task = self._loop.create_task(self._body(handed), context=contextvars.Context())
            self._tasks[handed.request.key] = task

    def _cancel(self, key: CallKey) -> None:
        self._link.tell(CancelSeen(key))
        task = self._tasks.get(key)
        if task is not None:  # later, for one that was begun just now: a task has to enter its body
            self._loop.call_soon(task.cancel)

    async def _body(self, handed: Handed) -> None:
        key = handed.request.key
        body = Body(self._link, handed)
        try:
            outcome = await body.awaited()
        except asyncio.CancelledError:
            outcome = ToolOutcome(error="cancelled", error_type="cancelled")
        del self._tasks[key]
        self._link.cancelled.discard(key)
        self._link.tell(CallFinished(key, outcome))


class PlainBodies:
    """Plain bodies, in the main thread and, as long as all are busy, in further ones."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._calls: queue.SimpleQueue[Handed | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 1

    def run(self) -> None:
        """See `Bodies`."""
        while (handed := self._calls.get()) is not None:
            self._body(handed)
        self._calls.put(None)  # for the next thread

    def begin(self, calls: Sequence[Handed]) -> None:
        """See `Bodies`."""
        with self._lock:
            missing = max(0, len(calls) - self._idle)
            self._idle += missing - len(calls)
        for _ in range(missing):
            threading.Thread(target=self.run, name="tulip-tool", daemon=True).start()
        for handed in calls:
            self._calls.put(handed)

    def cancel(self, key: CallKey) -> None:
        """See `Bodies`. A plain body can only look (`ctx.cancelled()`)."""
        self._link.tell(CancelSeen(key))

    def leave(self) -> None:
        """See `Bodies`."""
        self._calls.put(None)

    def _body(self, handed: Handed) -> None:
        outcome = contextvars.Context().run(Body(self._link, handed).called)
        self._link.cancelled.discard(handed.request.key)
        with self._lock:
            self._idle += 1
        self._link.tell(CallFinished(handed.request.key, outcome))


class Body:
    """One body: its start mark, its run, its outcome with the value packed for a parent."""

    def __init__(self, link: Link, handed: Handed) -> None:
        self._link = link
        self._request = handed.request
        link.marks.begun(handed.place, handed.number)
        queued_ms = max(0.0, time.time() - handed.queued_at_s) * 1000
        self._watch = Stopwatch(link.node_id, queued_ms)

    async def awaited(self) -> ToolOutcome:
        """The outcome of a coroutine."""
        return await self._awaited(WorkerChildren(self._link, self._request))

    def called(self) -> ToolOutcome:
        """The outcome of a plain body, or of a coroutine that has this process for itself."""
        try:
            tool = self._tool()
        except TulipError as error:
            return self._watch.raised(error)
        if tool.is_async:
            return beside_main_thread(self._link, self._request, self._awaited)
        children = WorkerChildren(self._link, self._request)
        return self._to_travel(run_plain(tool, self._request, children, self._watch))

    async def _awaited(self, children: ChildCaller) -> ToolOutcome:
        try:
            outcome = await run_async(self._tool(), self._request, children, self._watch)
        except TulipError as error:
            return self._watch.raised(error)
        return self._to_travel(outcome)

    def _tool(self) -> Tool:
        return self._link.tools(self._request.toolset)[self._request.tool_name]

    def _to_travel(self, outcome: ToolOutcome) -> ToolOutcome:
        """A parent gets the value; a model has the text."""
        if not self._request.key.index or outcome.error is not None:
            return outcome._replace(value=None)
        try:
            return outcome._replace(value=pack(outcome.value, "a tool's return value"))
        except TulipError as error:
            return self._watch.raised(error)
