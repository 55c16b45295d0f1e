"""ToolExecutor inside the calling process: coroutines on the run's loop, plain bodies in threads.

The in-memory implementation of the port, and the reference for what others must do. A plain body
cannot be stopped from outside, only abandoned: its result is discarded.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tulip_actors.core.calls import (
    CallFinished,
    CallKey,
    CallReport,
    CallStarted,
    CallStatus,
    CallSubmitted,
    ToolOutcome,
    ToolRequest,
    ToolUpdate,
)
from tulip_actors.core.defaults import RandomIds
from tulip_actors.core.frozen import Json
from tulip_actors.errors import ToolError
from tulip_actors.host.portal import running_loop
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.invoke import Stopwatch, run_async, run_plain

THREADS_PER_LEVEL = 32
"""Plain bodies at once, per nesting level: a parent that waits never takes its children's place."""


@dataclass(slots=True)
class _Call:
    request: ToolRequest
    task: asyncio.Task[None]
    begun: bool = False
    outcome: ToolOutcome | None = None


@dataclass(slots=True)
class _Children:
    """The child calls that one body waits for."""

    count: int = 0
    waiting: dict[CallKey, asyncio.Future[ToolOutcome]] = field(default_factory=dict)


class InlineExecutor:
    """Runs calls here. `tools_of(toolset)` finds the tools of a request."""

    def __init__(self, tools_of: Callable[[str], Mapping[str, Tool]], node_id: str) -> None:
        self._incarnation = RandomIds().new("executor")
        self._tools_of = tools_of
        self._node_id = node_id
        self._calls: dict[CallKey, _Call] = {}
        self._children: dict[CallKey, _Children] = {}
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
        return sum(not call.begun for call in self._calls.values())

    def submit(self, requests: Sequence[ToolRequest]) -> None:
        """See `ToolExecutor`. A known key is adopted: its outcome is told again."""
        for request in requests:
            known = self._calls.get(request.key)
            if known is None or request.attempt > known.request.attempt:
                self._launch(request, self._tools_of(request.toolset)[request.tool_name])
            elif known.outcome is not None:
                self._tell(CallFinished(request.key, known.outcome))

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
        return {key: self._status(key) for key in keys}

    async def cancel(self, keys: Sequence[CallKey]) -> None:
        """See `ToolExecutor`."""
        known = (self._calls.get(key) for key in self._with_descendants(keys))
        tasks = [call.task for call in known if call is not None and not call.task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def release(self, keys: Sequence[CallKey]) -> None:
        """See `ToolExecutor`."""
        for key in list(self._with_descendants(keys)) if self._children else keys:
            self._calls.pop(key, None)
            self._children.pop(key, None)

    async def close(self) -> None:
        """See `ToolExecutor`."""
        await self.cancel(list(self._calls))
        self._closed = True
        if self._wake is not None:
            self._wake.set()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    # child calls, made by the bodies

    async def call(
        self, parent: CallKey, tool: Tool, arguments: Sequence[Mapping[str, Json]]
    ) -> Sequence[ToolOutcome]:
        """See `ChildCaller`."""
        made = self._calls.get(parent)
        if made is None:
            raise ToolError(f"the call {parent} has ended and can make no further calls")
        siblings = self._children.setdefault(parent, _Children())
        futures: list[asyncio.Future[ToolOutcome]] = []
        keys: list[CallKey] = []
        for one in arguments:
            key = parent.child(siblings.count)
            siblings.count += 1
            request = made.request._replace(
                key=key,
                tool_name=tool.name,
                tool_call_id=f"{made.request.tool_call_id}.{key.index[-1]}",
                arguments=one,
                parent_call_id=made.request.tool_call_id,
                policy=tool.policy,
            )
            future: asyncio.Future[ToolOutcome] = asyncio.get_running_loop().create_future()
            siblings.waiting[key] = future
            futures.append(future)
            self._tell(CallSubmitted(request))
            self._launch(request, tool)
            keys.append(key)
        try:
            return await asyncio.gather(*futures)
        except asyncio.CancelledError:
            await self.cancel(keys)
            raise

    def call_blocking(
        self, parent: CallKey, tool: Tool, arguments: Sequence[Mapping[str, Json]]
    ) -> Sequence[ToolOutcome]:
        """See `ChildCaller`. Called in the body's thread."""
        loop = self._calls[parent].task.get_loop()
        return asyncio.run_coroutine_threadsafe(self.call(parent, tool, arguments), loop).result()

    def tell(self, report: CallReport) -> None:
        """See `ChildCaller`. A plain body may tell in a thread, also when it was abandoned."""
        call = self._calls.get(report.key)
        if call is None or call.outcome is not None:
            return
        loop = call.task.get_loop()
        if running_loop() is loop:
            self._tell(report)
        else:
            loop.call_soon_threadsafe(self._tell, report)

    # one call

    def _launch(self, request: ToolRequest, tool: Tool) -> None:
        task = asyncio.create_task(self._run(request, tool, time.perf_counter()))
        self._calls[request.key] = _Call(request, task)

    async def _run(self, request: ToolRequest, tool: Tool, queued_at_s: float) -> None:
        def begun() -> Stopwatch:
            self._calls[request.key].begun = True
            return Stopwatch(self._node_id, (time.perf_counter() - queued_at_s) * 1000)

        def plain() -> ToolOutcome:
            return run_plain(tool, request, self, begun())

        try:
            self._tell(CallStarted(request.key, os.getpid(), self._node_id))
            if tool.is_async:
                outcome = await run_async(tool, request, self, begun())
            else:
                pool = self._pool(len(request.key.index))
                context = contextvars.copy_context()
                loop = asyncio.get_running_loop()
                outcome = await loop.run_in_executor(pool, context.run, plain)
        except asyncio.CancelledError:
            outcome = ToolOutcome(error="cancelled", error_type="cancelled")
        if request.key in self._children:  # those it did not wait for end with it, before it
            count = self._children[request.key].count
            await self.cancel([request.key.child(position) for position in range(count)])
        self._settle(request.key, outcome)

    def _settle(self, key: CallKey, outcome: ToolOutcome) -> None:
        if key in self._calls:
            self._calls[key].outcome = outcome
        self._tell(CallFinished(key, outcome))
        parent = key.parent
        if parent is not None and parent in self._children:
            future = self._children[parent].waiting.pop(key, None)
            if future is not None and not future.done():
                future.set_result(outcome)

    def _with_descendants(self, keys: Iterable[CallKey]) -> Iterator[CallKey]:
        for key in keys:
            yield key
            if key in self._children:
                count = self._children[key].count
                yield from self._with_descendants(key.child(position) for position in range(count))

    def _status(self, key: CallKey) -> CallStatus:
        call = self._calls.get(key)
        if call is None:
            return CallStatus.NEVER_SEEN
        return CallStatus.RUNNING if call.outcome is None else CallStatus.FINISHED

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
