"""How a body in a worker makes calls of its own: through the dispatcher that owns the body."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import queue
import threading
from collections.abc import Callable, Coroutine, Sequence
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

    def __init__(self, link: Link, request: ToolRequest) -> None:
        self._link = link
        self._request = request
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
        return self._request.key in self._link.cancelled

    def _exchanged(
        self, ticket: str, tool: Tool, calls: Sequence[ChildCall]
    ) -> ray.ObjectRef[bytes]:
        return self._link.exchange(self._described(ticket, tool, calls))

    def _described(self, ticket: str, tool: Tool, calls: Sequence[ChildCall]) -> ChildCalls:
        toolset, content = self._request.toolset, None
        if self._link.tools(toolset).get(tool.name) is not tool:
            content = pack({tool.name: tool}, f"the tool {tool.name}")
            toolset = f"{tool.name}/{hashlib.sha256(content).hexdigest()}"
        return ChildCalls(
            self._request.key, ticket, toolset, content, tool.name, tool.policy, calls
        )


class BesideMainThread(WorkerChildren):
    """ChildCaller of a coroutine whose task may hold CPUs: only a task's main thread that waits in
    `ray.get` gives them back, so that thread waits along."""

    def __init__(self, link: Link, request: ToolRequest) -> None:
        super().__init__(link, request)
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
    body: Callable[[ChildCaller], Coroutine[object, object, ToolOutcome]],
) -> ToolOutcome:
    """Run a coroutine body in a thread of its own, to its end."""
    children = BesideMainThread(link, request)
    outcomes: list[ToolOutcome] = []

    def run() -> None:
        try:
            outcomes.append(asyncio.run(body(children)))
        finally:
            children.waited_for.put(None)

    thread = threading.Thread(target=run, name="tulip-tool", daemon=True)
    thread.start()
    while (waited_for := children.waited_for.get()) is not None:
        with contextlib.suppress(RayError):
            ray.get(waited_for)
    thread.join()
    return outcomes[0]


def _children(answer: bytes) -> Sequence[Child]:
    ended: Sequence[Child] = unpacked(answer)
    return [_with_value(child) for child in ended]


def _with_value(child: Child) -> Child:
    value = child.outcome.value
    if not isinstance(value, bytes):
        return child
    return child._replace(outcome=child.outcome._replace(value=unpack(value)))
