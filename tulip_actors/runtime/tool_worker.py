"""A process that runs tool bodies for a dispatcher: it asks for work, and tells what became of it.

`serve` is a Ray task that lasts as long as there is work. In its main thread and those beside it
run the bodies: coroutines in one event loop, plain functions in threads. A thread of the link's
own talks to the dispatcher, so that no body keeps it waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import ray
from ray.exceptions import RayError

from tulip_actors.core.calls import CallKind, ToolOutcome
from tulip_actors.runtime.memory_watch import memory_watch
from tulip_actors.runtime.pickling import pack, unpack
from tulip_actors.runtime.process_memory import settle_memory
from tulip_actors.runtime.start_marks import StartMarks
from tulip_actors.runtime.tool_work import (
    CancelSeen,
    ChildCalls,
    Ended,
    Handed,
    Hello,
    News,
    WorkerSpec,
    pack_news,
    packed,
    unpack_work,
)
from tulip_actors.runtime.worker_children import WorkerChildren, beside_main_thread
from tulip_actors.tools.children import ChildCaller
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.invoke import Stopwatch, run_async, run_plain

CANCELLED = ToolOutcome(error="cancelled", error_type="cancelled")
TOOLSETS_KEPT = 32
UPDATES_PER_MESSAGE = 512
"""Enough to make messages few, few enough that the dispatcher reads one while the next is made."""
MANY_CALLS = 64
LINGER_S = 0.003
"""With many calls here a message waits this long for more to tell; the first is sent at once."""


def serve(spec: WorkerSpec, dispatcher: Any) -> None:
    """Work for a dispatcher until it says to leave, or is gone."""
    settle_memory()
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

    def cancel(self, number: int) -> None:
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
        self.cancelled: set[int] = set()
        self.cancels: dict[int, Callable[[], None]] = {}
        self.held = 0
        self.loop = asyncio.new_event_loop()
        self._bodies: Bodies | None = None
        self._news: deque[News] = deque()
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

    def tell(self, news: News) -> None:
        """Pass on what happened, in order; from any thread, returns at once."""
        self._news.append(news)
        if not self._sending:
            self._sending = True
            with contextlib.suppress(RuntimeError):  # closed: a thread that outlived its body
                self.loop.call_soon_threadsafe(self._send)

    def exchange(self, calls: ChildCalls) -> ray.ObjectRef[bytes]:
        """Ask for children of a body; what was told before goes before them. From any thread."""
        with self._order:
            news = pack_news(self._taken(len(self._news)))
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
                work = unpack_work(answer)
                self._packed.update(work.toolsets)
                if work.calls:
                    with self._order:
                        self.held += len(work.calls)
                    self._bodies.begin(work.calls)
                for number in work.cancels:
                    self.cancelled.add(number)
                    self._bodies.cancel(number)
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
                    news = pack_news(self._taken(UPDATES_PER_MESSAGE))
                    sent = self.dispatcher.told.remote(self.spec.id, news)
                await sent
                if len(self._news) < UPDATES_PER_MESSAGE and self.held > MANY_CALLS:
                    await asyncio.sleep(LINGER_S)
        except RayError:
            self._news.clear()
        finally:
            self._sent = None
            self._sending = False
            if self._news:  # came between the last look and the flag
                self._sending = True
                self._send()

    def _taken(self, most: int) -> list[News]:
        taken = [self._news.popleft() for _ in range(min(most, len(self._news)))]
        self.held -= sum(isinstance(news, Ended) for news in taken)
        return taken


class Coroutines:
    """Coroutine bodies, all in the event loop of the main thread."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._left = asyncio.Event()

    def run(self) -> None:
        """See `Bodies`."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._left.wait())

    def begin(self, calls: Sequence[Handed]) -> None:
        """See `Bodies`."""
        self._loop.call_soon_threadsafe(self._begin, calls)

    def cancel(self, number: int) -> None:
        """See `Bodies`."""
        self._loop.call_soon_threadsafe(self._cancel, number)

    def leave(self) -> None:
        """See `Bodies`."""
        with contextlib.suppress(RuntimeError):  # closed: Ray has ended the task with its owner
            self._loop.call_soon_threadsafe(self._left.set)

    def _begin(self, calls: Sequence[Handed]) -> None:
        for handed in calls:
            task = self._loop.create_task(self._body(handed), context=contextvars.Context())
            self._tasks[handed.number] = task

    def _cancel(self, number: int) -> None:
        self._link.tell(CancelSeen(number))
        task = self._tasks.get(number)
        if task is not None:  # later, for one that was begun just now: a task has to enter its body
            self._loop.call_soon(task.cancel)

    async def _body(self, handed: Handed) -> None:
        number = handed.number
        body = Body(self._link, handed)
        try:
            outcome = await body.awaited()
        except asyncio.CancelledError:
            outcome = CANCELLED
        del self._tasks[number]
        self._link.cancelled.discard(number)
        self._link.tell(Ended(number, outcome))


class PlainBodies:
    """Plain bodies, in the main thread and in further ones when it is busy.

    A thread that takes a call wakes one more if others wait, and takes the next when it is through.
    So bodies that block each get a thread, one after the other, and a thousand that do nothing are
    done by one or two, without a switch for each.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: deque[Handed] = deque()
        self._lock = threading.Lock()
        self._go = threading.Semaphore(0)
        self._idle = 0
        self._coming = True
        self._left = False

    def run(self) -> None:
        """See `Bodies`. Also what each further thread does."""
        while not self._left:
            with self._lock:
                self._coming = False
            while (handed := self._next()) is not None:
                self._body(handed)
            self._go.acquire()
        self._go.release()  # for the next thread

    def begin(self, calls: Sequence[Handed]) -> None:
        """See `Bodies`."""
        self._waiting.extend(calls)
        self._wake_another()

    def cancel(self, number: int) -> None:
        """See `Bodies`. A plain body can only look (`ctx.cancelled()`); a coroutine that has the
        process for itself is told."""
        self._link.tell(CancelSeen(number))
        cancel = self._link.cancels.get(number)
        if cancel is not None:
            cancel()

    def leave(self) -> None:
        """See `Bodies`."""
        self._left = True
        self._go.release()

    def _next(self) -> Handed | None:
        with self._lock:
            if not self._waiting:
                self._idle += 1
                return None
            handed = self._waiting.popleft()
        if self._waiting:
            self._wake_another()
        return handed

    def _wake_another(self) -> None:
        """One at a time: until it is there, no further one is woken."""
        with self._lock:
            if self._coming:
                return
            self._coming = True
            is_idle = self._idle > 0
            self._idle -= is_idle
        if is_idle:
            self._go.release()
        else:
            threading.Thread(target=self.run, name="tulip-tool", daemon=True).start()

    def _body(self, handed: Handed) -> None:
        outcome = contextvars.Context().run(Body(self._link, handed).called)
        self._link.cancelled.discard(handed.number)
        self._link.tell(Ended(handed.number, outcome))


class Body:
    """One body: its start mark, its run, its outcome with the value packed for a parent."""

    def __init__(self, link: Link, handed: Handed) -> None:
        self._link = link
        self._number = handed.number
        self._request = handed.request
        self._is_late = handed.number in link.cancelled
        if not self._is_late:
            link.marks.begun(handed.place, handed.number)
        queued_ms = max(0.0, time.time() - handed.queued_at_s) * 1000
        self._watch = Stopwatch(link.node_id, queued_ms)

    async def awaited(self) -> ToolOutcome:
        """The outcome of a coroutine."""
        return await self._awaited(WorkerChildren(self._link, self._request, self._number))

    def called(self) -> ToolOutcome:
        """The outcome of a plain body, or of a coroutine that has this process for itself."""
        if self._is_late:
            return CANCELLED
        try:
            tool = self._tool()
            if tool.is_async:
                return beside_main_thread(self._link, self._request, self._number, self._awaited)
            children = WorkerChildren(self._link, self._request, self._number)
            return self._to_travel(run_plain(tool, self._request, children, self._watch))
        except Exception as error:  # whatever a user's module or class does when it is unpacked
            return self._watch.raised(error)

    async def _awaited(self, children: ChildCaller) -> ToolOutcome:
        if self._is_late:
            return CANCELLED
        try:
            outcome = await run_async(self._tool(), self._request, children, self._watch)
            return self._to_travel(outcome)
        except Exception as error:
            return self._watch.raised(error)

    def _tool(self) -> Tool:
        return self._link.tools(self._request.toolset)[self._request.tool_name]

    def _to_travel(self, outcome: ToolOutcome) -> ToolOutcome:
        """A parent gets the value; a model has the text."""
        if not self._request.key.index or outcome.error is not None:
            return outcome._replace(value=None)
        return outcome._replace(value=pack(outcome.value, "a tool's return value"))
