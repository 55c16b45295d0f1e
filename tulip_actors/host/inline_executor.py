"""ToolExecutor inside the calling process: coroutines on the run's loop, plain bodies in threads.

The in-memory implementation of the port, and the reference for what others must do. A plain body
cannot be stopped from outside, only left behind: its call ends, and its result is discarded.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tulip_actors.core.calls import (
    CallKey,
    CallLost,
    CallReport,
    CallStarted,
    CallStatus,
    Child,
    ToolOutcome,
    ToolRequest,
    ToolUpdate,
)
from tulip_actors.core.defaults import RandomIds
from tulip_actors.errors import ToolError
from tulip_actors.host.call import Call, child_requests
from tulip_actors.host.call_book import CallBook
from tulip_actors.host.call_queue import CallQueue
from tulip_actors.host.portal import running_loop
from tulip_actors.tools.children import ChildCall
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.invoke import Stopwatch, run_async, run_plain

THREADS_PER_LEVEL = 32
"""Plain bodies at once, per nesting level: a parent that waits never takes its children's place."""
_HERE = ""
"""The one client."""


class InlineExecutor:
    """Runs calls here. `tools_of(toolset)` finds the tools of a request; `max_concurrency` bounds
    the calls in flight."""

    def __init__(
        self,
        tools_of: Callable[[str], Mapping[str, Tool]],
        node_id: str,
        max_concurrency: int | None = None,
    ) -> None:
        self._incarnation = RandomIds().new("executor")
        self._tools_of = tools_of
        self._node_id = node_id
        self._book = CallBook(self, lambda client_id, update: self._tell(update), max_concurrency)
        self._queue = CallQueue(self._book.limits)
        self._tasks: dict[CallKey, asyncio.Task[None]] = {}
        self._own_tools: dict[str, Mapping[str, Tool]] = {}
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._updates: list[ToolUpdate] = []
        self._wake: asyncio.Event | None = None
        self._listener: Callable[[ToolUpdate], None] | None = None
        self._closed = False

    async def incarnation(self) -> str:
        """See `ToolExecutor`."""
        return self._incarnation

    @property
    def queued(self) -> int:
        """Calls that have not begun."""
        return self._book.queued

    def submit(self, requests: Sequence[ToolRequest]) -> None:
        """See `ToolExecutor`. A known key is adopted: its outcome is told again."""
        for request in requests:
            self._book.submit(_HERE, request)
        self.fill()

    def adopt(self, requests: Sequence[ToolRequest], incarnation: str) -> None:
        """See `ToolExecutor`. Calls of another process ended with it."""
        if incarnation == self._incarnation:
            self.submit(requests)
            return
        loop = asyncio.get_running_loop()
        for request in requests:
            lost = CallLost(request.key, "its process ended", started=True, with_executor=True)
            loop.call_soon(self._tell, lost)

    async def updates(self) -> AsyncIterator[Sequence[ToolUpdate]]:
        """See `ToolExecutor`."""
        self._wake = asyncio.Event()
        while not self._closed:
            if self._updates:
                batch, self._updates = self._updates, []
                yield batch
            else:
                self._wake.clear()
                await self._wake.wait()

    def tell_to(self, listener: Callable[[ToolUpdate], None]) -> None:
        """See `DirectExecutor`."""
        self._listener = listener

    async def status(self, keys: Sequence[CallKey]) -> Mapping[CallKey, CallStatus]:
        """See `ToolExecutor`."""
        return {key: self._book.status(key) for key in keys}

    async def cancel(self, keys: Sequence[CallKey]) -> None:
        """See `ToolExecutor`."""
        await self._book.cancel(keys)

    def release(self, keys: Sequence[CallKey]) -> None:
        """See `ToolExecutor`."""
        self._book.release(keys)

    async def close(self) -> None:
        """See `ToolExecutor`."""
        await self.cancel(self._book.of_client(_HERE))
        self._closed = True
        if self._wake is not None:
            self._wake.set()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    # Bodies, for the book

    def queue_of(self, request: ToolRequest) -> CallQueue:
        """See `Bodies`."""
        return self._queue

    def fill(self) -> None:
        """See `Bodies`. What no bound keeps waiting begins at once."""
        while len(self._queue) and (call := self._book.begin(self._queue)) is not None:
            self._tasks[call.key] = asyncio.create_task(self._run(call))

    def stop(self, call: Call) -> None:
        """See `Bodies`."""
        task = self._tasks.get(call.key)
        if task is None:
            return
        task.cancel()
        grace_s = call.request.policy.cancel_grace_s
        asyncio.get_running_loop().call_later(grace_s, self._book.give_up, call)

    # one body

    async def _run(self, call: Call) -> None:
        key, request = call.key, call.request
        if call.tries:
            request = request._replace(attempt=call.attempt)
        children = _Children(self, call)
        tool = self._tool(request)

        def begun() -> Stopwatch:
            return Stopwatch(self._node_id, max(0.0, time.time() - call.queued_at_s) * 1000)

        def plain() -> ToolOutcome:
            return run_plain(tool, request, children, begun())

        try:
            if self._listener is None:  # a host on this loop has no use for the mark
                self._book.started(CallStarted(key, os.getpid(), self._node_id), call)
            if tool.is_async:
                outcome = await run_async(tool, request, children, begun())
            else:
                pool = self._pool(len(key.index))
                context = contextvars.copy_context()
                loop = asyncio.get_running_loop()
                outcome = await loop.run_in_executor(pool, context.run, plain)
        except asyncio.CancelledError:
            outcome = ToolOutcome(error="cancelled", error_type="cancelled")
        if self._tasks.get(key) is asyncio.current_task():
            del self._tasks[key]
        self._book.finished(call, outcome)

    def _tool(self, request: ToolRequest) -> Tool:
        tools = self._own_tools.get(request.toolset) or self._tools_of(request.toolset)
        return tools[request.tool_name]

    def toolset_with(self, tool: Tool, toolset: str) -> str:
        """The toolset that a body's call names: its own, or one for a tool that is not in it."""
        known = self._own_tools.get(toolset) or self._tools_of(toolset)
        if tool.name in known and known[tool.name] is tool:
            return toolset
        own = f"{tool.name}/{id(tool)}"
        self._own_tools[own] = {tool.name: tool}
        return own

    async def exchange(
        self, parent: Call, ticket: str, tool: Tool, calls: Sequence[ChildCall]
    ) -> Sequence[Child]:
        """Make calls of a body, and give those of the ticket that have ended. Raises `ToolError`
        for a body that was left behind."""
        if not parent.running:
            raise ToolError(f"the call {parent.key} has ended and can make no further calls")
        toolset = self.toolset_with(tool, parent.request.toolset)
        requests = child_requests(parent.request, tool.name, tool.policy, toolset, calls)
        self._book.submit_children(parent, ticket, requests)
        self.fill()
        return await self._book.children(parent, ticket)

    def abandon(self, parent: Call, ticket: str) -> None:
        """Nobody waits for the calls of a ticket any more."""
        self._book.abandon(parent, ticket)

    def hear(self, parent: Call, report: CallReport) -> None:
        """What a body tells of its run; after its call's end it is dropped."""
        if parent.ended is None:
            self._tell(report)

    def _pool(self, level: int) -> ThreadPoolExecutor:
        if level not in self._pools:
            self._pools[level] = ThreadPoolExecutor(THREADS_PER_LEVEL, f"tulip-tool-{level}")
        return self._pools[level]

    def _tell(self, update: ToolUpdate) -> None:
        if self._listener is not None:
            self._listener(update)
            return
        self._updates.append(update)
        if self._wake is not None:
            self._wake.set()


class _Children:
    """ChildCaller of one body."""

    __slots__ = ("_call", "_executor", "_loop", "_made")

    def __init__(self, executor: InlineExecutor, call: Call) -> None:
        self._executor = executor
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._made = 0

    def next_position(self) -> int:
        """See `ChildCaller`."""
        position = self._made
        self._made += 1
        return position

    async def exchange(
        self, ticket: str, tool: Tool, calls: Sequence[ChildCall]
    ) -> Sequence[Child]:
        """See `ChildCaller`."""
        return await self._executor.exchange(self._call, ticket, tool, calls)

    def exchange_blocking(
        self, ticket: str, tool: Tool, calls: Sequence[ChildCall]
    ) -> Sequence[Child]:
        """See `ChildCaller`. Called in the body's thread."""
        work = self.exchange(ticket, tool, calls)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def abandon(self, ticket: str) -> None:
        """See `ChildCaller`."""
        self._on_loop(partial(self._executor.abandon, self._call, ticket))

    def tell(self, report: CallReport) -> None:
        """See `ChildCaller`."""
        self._on_loop(partial(self._executor.hear, self._call, report))

    def is_cancelled(self) -> bool:
        """See `ChildCaller`."""
        return self._call.why is not None

    def _on_loop(self, work: Callable[[], None]) -> None:
        if running_loop() is self._loop:
            work()
        else:
            self._loop.call_soon_threadsafe(work)
