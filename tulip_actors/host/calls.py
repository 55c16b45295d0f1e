"""One run's tool calls under way: who waits for which, and what has come for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence

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
        self._executor = executor
        self._hear = hear
        self._inboxes: dict[CallKey, Inbox] = {}

    async def make(self, requests: Sequence[ToolRequest]) -> AsyncGenerator[ToolUpdate, None]:
        """Make calls; see `RunContext.call_tools`."""
        inbox = Inbox()
        pending = {request.key for request in requests}
        self._inboxes.update(dict.fromkeys(pending, inbox))
        try:
            self._executor.submit(requests)
            while pending:
                update = await inbox.get()
                if isinstance(update, CallEmitted | CallSetMetadata):
                    self._hear(update)
                    continue
                if isinstance(update, CallFinished | CallLost):
                    pending.discard(update.key)
                yield update
        finally:
            for request in requests:
                self._inboxes.pop(request.key, None)
            if pending:
                await asyncio.shield(self._executor.cancel(sorted(pending)))
            self._executor.release([request.key for request in requests])

    def deliver(self, update: ToolUpdate) -> None:
        """Hand an update of the executor to whoever made the call, but for the start mark."""
        key = update.key
        if isinstance(update, CallStarted):
            return
        inbox = self._inboxes.get(CallKey(key.run_id, key.turn, key.slot) if key.index else key)
        if inbox is not None:
            inbox.put(update)
