"""Running one body, in whatever process the executor chose, to exactly one outcome.

What may live here: the steps every executor shares: bind the arguments, run, serialise the result,
turn what was raised into an error text. Where and beside what a body runs is the executor's.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import cast

from pydantic_core import to_json

from tulip_actors.core.calls import ToolOutcome, ToolRequest
from tulip_actors.core.current import serving
from tulip_actors.core.frozen import clean_text
from tulip_actors.core.interrupt import Interrupted, answering
from tulip_actors.errors import ToolError, TulipError
from tulip_actors.tools.children import ChildCaller
from tulip_actors.tools.context import ToolContext, ToolRun
from tulip_actors.tools.decorator import Tool

LEFT_OUT = "\n[... {} characters left out ...]\n"
"""Stands where the middle of a long result was."""


def bound(tool: Tool, request: ToolRequest, children: ChildCaller) -> Callable[[], object]:
    """The body with its arguments, ready to be called.

    Raises `ToolArgumentsInvalid`, and `ToolError` for a child whose tool requires an approval.
    """
    if tool.requires_approval and request.key.index:
        raise ToolError(
            f"{tool.name} requires approval, which is asked for when the model calls it, not when "
            "a tool does: let the model call it, or ask with interrupt() before you call its "
            "function"
        )
    arguments = tool.signature.bind(tool.name, request.arguments)
    if tool.signature.context_parameter is not None:
        timeout_s = request.policy.timeout_s
        arguments[tool.signature.context_parameter] = ToolContext(
            key=request.key,
            tool_call_id=request.tool_call_id,
            scope=request.scope,
            children=children,
            tool_name=request.tool_name,
            attempt=request.attempt,
            deadline_s=None if timeout_s is None else time.time() + timeout_s,
        )
    return lambda: tool.fn(**arguments)


class Stopwatch:
    """Times one body and makes its outcome."""

    def __init__(self, node_id: str, queued_ms: float) -> None:
        self._started = time.perf_counter()
        self._node_id = node_id
        self._queued_ms = queued_ms

    def returned(self, value: object, limit: int | None = None) -> ToolOutcome:
        """The outcome of a body that returned. The text is shortened, the value is whole."""
        try:
            return self._outcome(result=shortened(result_text(value), limit), value=value)
        except Exception as error:  # an object that cannot be written down is the tool's error
            return self.raised(error, limit)

    def asked(self, request: ToolRequest, asked: Interrupted) -> ToolOutcome:
        """The outcome of a body that asks a human; a child has nobody to pause for it."""
        if request.key.index:
            return self.raised(
                ToolError(
                    "interrupt() works in a tool that the model called, not in one that a tool "
                    "called: ask before ctx.map or ctx.call"
                )
            )
        return self._outcome()._replace(interrupt=asked.request)

    def raised(self, error: BaseException, limit: int | None = None) -> ToolOutcome:
        """The outcome of a body that raised."""
        text = shortened(error_text(error), limit)
        return self._outcome(error=text, error_type=type(error).__name__)

    def _outcome(
        self,
        *,
        result: str | None = None,
        error: str | None = None,
        error_type: str | None = None,
        value: object = None,
    ) -> ToolOutcome:
        duration_ms, pid = (time.perf_counter() - self._started) * 1000, os.getpid()
        return ToolOutcome(  # by position: a third of the time
            result, error, error_type, None, value, duration_ms, self._queued_ms, pid, self._node_id
        )


def run_plain(
    tool: Tool, request: ToolRequest, children: ChildCaller, watch: Stopwatch
) -> ToolOutcome:
    """Run a plain body in this thread. Whatever it raises is its outcome."""
    limit = tool.policy.max_result_chars
    try:
        with answering(request.answers), serving(ToolRun(request.key, request.scope, children)):
            return watch.returned(bound(tool, request, children)(), limit)
    except Interrupted as asked:
        return watch.asked(request, asked)
    except BaseException as error:  # also sys.exit(): it ends the body, not the process
        return watch.raised(error, limit)


async def run_async(
    tool: Tool, request: ToolRequest, children: ChildCaller, watch: Stopwatch
) -> ToolOutcome:
    """Run a coroutine body in this event loop. Whatever it raises is its outcome.

    But for the CancelledError of a cancelled task; one that the body raises by itself is not that.
    """
    limit = tool.policy.max_result_chars
    try:
        with answering(request.answers), serving(ToolRun(request.key, request.scope, children)):
            made = cast(Awaitable[object], bound(tool, request, children)())
            return watch.returned(await made, limit)
    except Interrupted as asked:
        return watch.asked(request, asked)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return watch.raised(error, limit)
    except BaseException as error:  # also sys.exit(): it ends the body, not the process
        return watch.raised(error, limit)


def result_text(value: object) -> str:
    """What the model sees: text as it is, everything else as JSON; None is "null".

    Models, dataclasses, enums, dates and sets are written as their JSON, bytes in base64, arrays as
    lists, and what has no such form as its `str`.
    """
    if isinstance(value, str):
        return clean_text(value)
    return to_json(
        value,
        bytes_mode="base64",
        inf_nan_mode="constants",
        fallback=_plain,
        serialize_unknown=True,  # what contains itself, or nests too deep, ends in dots
    ).decode()


def _plain(value: object) -> object:
    """What pydantic does not know: arrays of whatever library as lists, the rest as text."""
    if isinstance(value, memoryview):
        return bytes(value)
    as_list = getattr(value, "tolist", None)
    return as_list() if callable(as_list) and not isinstance(value, type) else str(value)


def shortened(text: str, limit: int | None) -> str:
    """A text of at most `limit` characters: its head, a mark of how much is left out, its tail."""
    if limit is None or len(text) <= limit:
        return text
    room = limit - len(LEFT_OUT.format(len(text)))
    tail = room // 2
    head = room - tail
    return text[:head] + LEFT_OUT.format(len(text) - room) + text[-tail:]


def error_text(error: BaseException) -> str:
    """What the model sees of an exception: its type and text, of our own the text alone."""
    name = type(error).__name__
    try:
        text = clean_text(str(error))
    except Exception:  # an exception that cannot say what it is
        return name
    if isinstance(error, TulipError):
        return text
    return f"{name}: {text}" if text else name
