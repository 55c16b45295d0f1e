"""One tool call, in a worker process: the start mark, the body, its outcome."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import ray

from tulip_actors.core.calls import (
    CallFinished,
    CallKey,
    CallReport,
    CallStarted,
    ToolOutcome,
    ToolPolicy,
    ToolRequest,
)
from tulip_actors.core.defaults import RandomIds
from tulip_actors.core.frozen import Json
from tulip_actors.errors import TulipError
from tulip_actors.runtime.failures import ask, translated
from tulip_actors.runtime.pickling import pack, unpack
from tulip_actors.runtime.reports import Reports
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.invoke import Stopwatch, run_async, run_plain

TOOLSETS_KEPT = 32
CANCEL_NOTICED_S = 0.05
_toolsets: OrderedDict[str, Mapping[str, Tool]] = OrderedDict()


@dataclass(frozen=True, slots=True)
class SentCall:
    """A request on its way to a worker. `sent_at_s` is wall-clock time, for `queued_ms`."""

    request: ToolRequest
    sent_at_s: float


@dataclass(frozen=True, slots=True)
class ChildCalls:
    """Calls a body asks for: one tool, many arguments. `packed` is set for a tool of its own.

    `ticket` names these calls, for a body that gives up waiting for them.
    """

    ticket: str
    parent: CallKey
    toolset: str
    packed: bytes | None
    tool_name: str
    policy: ToolPolicy
    arguments: Sequence[Mapping[str, Json]]


def run_call(
    packed: bytes, sent: SentCall, dispatcher: Any
) -> Iterator[CallStarted | CallFinished]:
    """Yields the start mark, then the outcome with its value packed for a parent.

    What the body tells of its run meanwhile goes straight to the dispatcher, which has all of it
    before the outcome.
    """
    request = sent.request
    node_id = ray.get_runtime_context().get_node_id()
    watch = Stopwatch(node_id, max(0.0, time.time() - sent.sent_at_s) * 1000)
    yield CallStarted(request.key, os.getpid(), node_id)
    reports = Reports(dispatcher)
    try:
        try:
            outcome = _outcome(packed, request, dispatcher, reports, watch)
        finally:
            reports.close()
    except KeyboardInterrupt:  # a cancel; let out of here it would end the worker
        outcome = ToolOutcome(error="cancelled", error_type="cancelled")
    yield CallFinished(request.key, outcome)


def _outcome(
    packed: bytes, request: ToolRequest, dispatcher: Any, reports: Reports, watch: Stopwatch
) -> ToolOutcome:
    try:
        tools = tools_of(request.toolset, packed)
        tool = tools[request.tool_name]
    except TulipError as error:
        return watch.raised(error)
    children = WorkerChildren(dispatcher, request, tools, reports)
    if tool.is_async:
        outcome = asyncio.run(_attentively(run_async(tool, request, children, watch)))
    else:
        outcome = run_plain(tool, request, children, watch)
    if request.key.index and outcome.error is None:
        return _with_packed_value(outcome, watch)
    return outcome._replace(value=None)


async def _attentively(body: Coroutine[Any, Any, ToolOutcome]) -> ToolOutcome:
    """Run a body so that a cancel is noticed while it only waits.

    Ray cancels by a flag that Python looks at between two instructions; a loop that sleeps in the
    kernel executes none.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def tick() -> None:
        nonlocal timer
        timer = loop.call_later(CANCEL_NOTICED_S, tick)

    timer = loop.call_later(CANCEL_NOTICED_S, tick)
    try:
        return await body
    finally:
        timer.cancel()


def _with_packed_value(outcome: ToolOutcome, watch: Stopwatch) -> ToolOutcome:
    try:
        return outcome._replace(value=pack(outcome.value, "a tool's return value"))
    except TulipError as error:
        return watch.raised(error)


def tools_of(toolset: str, packed: bytes) -> Mapping[str, Tool]:
    """The tools of a toolset, unpacked once per worker."""
    if toolset not in _toolsets:
        _toolsets[toolset] = unpack(packed)
        while len(_toolsets) > TOOLSETS_KEPT:
            _toolsets.popitem(last=False)
    _toolsets.move_to_end(toolset)
    return _toolsets[toolset]


class WorkerChildren:
    """ChildCaller through the dispatcher that owns the calling body."""

    def __init__(
        self,
        dispatcher: Any,
        request: ToolRequest,
        tools: Mapping[str, Tool],
        reports: Reports,
    ) -> None:
        self._dispatcher = dispatcher
        self._reports = reports
        self._request = request
        self._tools = tools

    async def call(
        self, parent: CallKey, tool: Tool, arguments: Sequence[Mapping[str, Json]]
    ) -> Sequence[ToolOutcome]:
        """See `ChildCaller`."""
        calls = self._calls(parent, tool, arguments)
        if self._reports.used:  # what was told before stands before the children
            await asyncio.to_thread(self._reports.flush)
        ref = self._dispatcher.call.remote(calls)
        try:
            outcomes = cast(Sequence[ToolOutcome], await ask(ref, "the dispatcher"))
        except asyncio.CancelledError:
            self._dispatcher.abandon.remote(calls.ticket)
            raise
        return [_unpacked(outcome) for outcome in outcomes]

    def call_blocking(
        self, parent: CallKey, tool: Tool, arguments: Sequence[Mapping[str, Json]]
    ) -> Sequence[ToolOutcome]:
        """See `ChildCaller`. Waiting in `ray.get` gives the task's CPUs back meanwhile."""
        self._reports.flush()
        ref = self._dispatcher.call.remote(self._calls(parent, tool, arguments))
        try:
            outcomes = cast(Sequence[ToolOutcome], ray.get(ref))
        except ray.exceptions.RayError as error:
            raise translated(error, "the dispatcher") from None
        return [_unpacked(outcome) for outcome in outcomes]

    def tell(self, report: CallReport) -> None:
        """See `ChildCaller`."""
        self._reports.tell(report)

    def _calls(
        self, parent: CallKey, tool: Tool, arguments: Sequence[Mapping[str, Json]]
    ) -> ChildCalls:
        if self._tools.get(tool.name) is tool:
            toolset, packed = self._request.toolset, None
        else:
            packed = pack({tool.name: tool}, f"the tool {tool.name}")
            toolset = f"{tool.name}/{hashlib.sha256(packed).hexdigest()}"
        return ChildCalls(
            RandomIds().new("calls"), parent, toolset, packed, tool.name, tool.policy, arguments
        )


def _unpacked(outcome: ToolOutcome) -> ToolOutcome:
    if isinstance(outcome.value, bytes):
        return outcome._replace(value=unpack(outcome.value))
    return outcome
