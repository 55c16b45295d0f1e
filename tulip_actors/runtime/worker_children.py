"""How a body in a worker makes calls of its own: through the dispatcher that owns the body."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import queue
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import ray
from ray.exceptions import RayError

from tulip_actors.core.calls import CallReport, Child, ToolOutcome, ToolRequest
from tulip_actors.runtime.failures import translated
from tulip_actors.runtime.pickling import pack, unpack
from tulip_actors.runtime.tool_work import ChildCalls, unpacked
from tulip_actors.tools.children import ChildCall, ChildCaller
from tulip_actors.tools.decorator import Tool

if TYPE_CHECKING:
    from tulip_actors.runtime.tool_worker import Link

WHAT = "the dispatcher"


class WorkerChildren:
    """ChildCaller of one body."""

    def __init__(self, link: Link, request: ToolRequest, number: int) -> None:
        self._link = link
        self._request = request
        self._number = number
        self._made = 0
        self._foreign: dict[Tool, str] = {}

    def next_position(self) -> int:
        """See `ChildCaller`."""
        position = self._made
        self._made += 1
        return position

    async def exchange(
        self, ticket: str, tool: Tool, calls: Sequence[ChildCall]
    ) -> Sequence[Child]:
        """See `ChildCaller`."""
        try:
            return _children(await self._exchanged(ticket, tool, calls))
        except RayError as error:
            raise translated(error, WHAT) from None

    def exchange_blocking(
        self, ticket: str, tool: Tool, calls: Sequence[ChildCall]
    ) -> Sequence[Child]:
        """See `ChildCaller`. Waiting in `ray.get`, in a task's main thread, gives the task's CPUs
        back meanwhile."""
        try:
            return _children(ray.get(self._exchanged(ticket, tool, calls)))
        except RayError as error:
            raise translated(error, WHAT) from None

    def abandon(self, ticket: str) -> None:
        """See `ChildCaller`."""
        self._link.dispatcher.abandon.remote(self._request.key, ticket)

    def tell(self, report: CallReport) -> None:
        """See `ChildCaller`."""
        self._link.tell(report)

    def is_cancelled(self) -> bool:
        """See `ChildCaller`."""
        return self._number in self._link.cancelled

    def _exchanged(
        self, ticket: str, tool: Tool, calls: Sequence[ChildCall]
    ) -> ray.ObjectRef[bytes]:
        return self._link.exchange(self._described(ticket, tool, calls))

    def _described(self, ticket: str, tool: Tool, calls: Sequence[ChildCall]) -> ChildCalls:
        toolset, content = self._request.toolset, None
        if self._link.tools(toolset).get(tool.name) is not tool:
            if tool not in self._foreign:  # sent with its first calls
                content = pack({tool.name: tool}, f"the tool {tool.name}")
                digest = hashlib.sha256(content).hexdigest()
                self._foreign[tool] = f"{tool.name}/{digest}"
            toolset = self._foreign[tool]
        return ChildCalls(
            self._request.key, ticket, toolset, content, tool.name, tool.policy, calls
        )


class BesideMainThread(WorkerChildren):
    """ChildCaller of a coroutine whose task may hold CPUs: only a task's main thread that waits in
    `ray.get` gives them back, so that thread waits along."""

    def __init__(self, link: Link, request: ToolRequest, number: int) -> None:
        super().__init__(link, request, number)
        self.waited_for: queue.SimpleQueue[ray.ObjectRef[bytes] | None] = queue.SimpleQueue()

    def _exchanged(
        self, ticket: str, tool: Tool, calls: Sequence[ChildCall]
    ) -> ray.ObjectRef[bytes]:
        sent = super()._exchanged(ticket, tool, calls)
        self.waited_for.put(sent)
        return sent


def beside_main_thread(
    link: Link,
    request: ToolRequest,
    number: int,
    body: Callable[[ChildCaller], Coroutine[object, object, ToolOutcome]],
) -> ToolOutcome:
    """Run a coroutine body in a thread of its own, to its end. Raises what ends that otherwise."""
    children = BesideMainThread(link, request, number)
    ended: Future[ToolOutcome] = Future()

    async def cancellable() -> ToolOutcome:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "in a coroutine"

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended by itself
                loop.call_soon_threadsafe(task.cancel)

        link.cancels[number] = cancel
        try:
            return await body(children)
        except asyncio.CancelledError:
            return ToolOutcome(error="cancelled", error_type="cancelled")
        finally:
            del link.cancels[number]

    def run() -> None:
        try:
            ended.set_result(asyncio.run(cancellable()))
        except BaseException as error:
            ended.set_exception(error)
        finally:
            children.waited_for.put(None)

    thread = threading.Thread(target=run, name="tulip-tool", daemon=True)
    thread.start()
    while (waited_for := children.waited_for.get()) is not None:
        with contextlib.suppress(RayError):
            ray.get(waited_for)
    return ended.result()


def _children(answer: bytes) -> Sequence[Child]:
    ended: Sequence[Child] = unpacked(answer)
    return [_with_value(child) for child in ended]


def _with_value(child: Child) -> Child:
    value = child.outcome.value
    if not isinstance(value, bytes):
        return child
    return child._replace(outcome=child.outcome._replace(value=unpack(value)))
