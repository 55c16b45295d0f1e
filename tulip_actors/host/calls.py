"""One run's tool calls under way: who waits for which, and what has come for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

from tulip_actors.core.calls import (
    CallEmitted,
    CallFinished,
    CallKey,
    CallLost,
    CallReport,
    CallSetMetadata,
    CallStarted,
    ToolRequest,
    ToolUpdate,
)
from tulip_actors.core.ports import ToolExecutor


class Inbox:
    """Updates for one reader, in order; written and read on one event loop."""

    def __init__(self) -> None:
        self._updates: deque[ToolUpdate] = deque()
        self._waiting: asyncio.Future[None] | None = None

    def put(self, update: ToolUpdate) -> None:
        """Add an update."""
        self._updates.append(update)
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def get(self) -> ToolUpdate:
        """The next update."""
        while not self._updates:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._updates.popleft()


class CallsInFlight:
    """The calls of one run. `hear` is told what bodies report, in order with their ends."""

    def __init__(self, executor: ToolExecutor, hear: Callable[[CallReport], None]) -> None:
        self.executor = executor
        self.hear = hear
        self._inboxes: dict[CallKey, Inbox] = {}

    def make(self, requests: Sequence[ToolRequest]) -> MadeCalls:
        """Make calls; see `RunContext.call_tools`."""
        return MadeCalls(self, requests)

    def watch(self, keys: Iterable[CallKey], inbox: Inbox) -> None:
        """Let an inbox have what happens to calls and to their children."""
        for key in keys:
            self._inboxes[key] = inbox

    def forget(self, keys: Iterable[CallKey]) -> None:
        """Nobody waits for these calls any more."""
        for key in keys:
            self._inboxes.pop(key, None)

    def deliver(self, update: ToolUpdate) -> None:
        """Hand an update of the executor to whoever made the call, but for the start mark."""
        key = update.key
        if isinstance(update, CallStarted):
            return
        inbox = self._inboxes.get(CallKey(key.run_id, key.turn, key.slot) if key.index else key)
        if inbox is not None:
            inbox.put(update)


class MadeCalls:
    """Calls that were made together: entered, iterated to their last end, and left.

    Left before that end, they are cancelled. Not an async generator, whose registration with the
    event loop costs more than all that happens here.
    """

    def __init__(self, calls: CallsInFlight, requests: Sequence[ToolRequest]) -> None:
        self._calls = calls
        self._requests = requests
        self._inbox = Inbox()
        self._pending = {request.key for request in requests}

    async def __aenter__(self) -> Self:
        self._calls.watch(self._pending, self._inbox)
        self._calls.executor.submit(self._requests)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ToolUpdate:
        while self._pending:
            update = await self._inbox.get()
            if isinstance(update, CallEmitted | CallSetMetadata):
                self._calls.hear(update)
                continue
            if isinstance(update, CallFinished | CallLost):
                self._pending.discard(update.key)
            return update
        raise StopAsyncIteration

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        keys = [request.key for request in self._requests]
        self._calls.forget(keys)
        executor = self._calls.executor
        try:
            if self._pending:
                await asyncio.shield(executor.cancel(sorted(self._pending)))
        finally:
            executor.release(keys)
