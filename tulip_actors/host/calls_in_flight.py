"""One run's tool calls under way: who waits for which, and what has come for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
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

_REPORTS = (CallEmitted, CallSetMetadata)
_ENDS = (CallFinished, CallLost)


class CallsInFlight:
    """The calls of one run. `release` is given the keys of those that have ended, and whether all
    of it is recorded by now: else it will be, with what the run records next."""

    def __init__(
        self, executor: ToolExecutor, release: Callable[[Sequence[CallKey], bool], None]
    ) -> None:
        self.executor = executor
        self.release = release
        self.followed: dict[CallKey, MadeCalls] = {}

    def give_way(self) -> None:
        """Leave the calls as they are: what becomes of them is not ours to hear, nor to stop."""
        for made in self.followed.values():
            made.give_way()
        self.followed = {}

    def deliver(self, update: ToolUpdate) -> None:
        """Hand an update of the executor to whoever made the call, but for the start mark."""
        if isinstance(update, CallStarted):
            return
        key = update.key
        made = self.followed.get(key if not key.index else CallKey(key.run_id, key.turn, key.slot))
        if made is not None:
            made.put(update)


class MadeCalls:
    """Calls that were made together: entered, iterated to their last end, and left.

    `adopted` names the incarnation to which calls were submitted before. `hear` is told what bodies
    report, in order with their ends. Left before that end, they are
    cancelled. Written and read on one event loop. Not an async
    generator, whose registration with the event loop costs more than all that happens here.
    """

    def __init__(
        self,
        calls: CallsInFlight,
        requests: Sequence[ToolRequest],
        hear: Callable[[CallReport], None],
        adopted: Mapping[CallKey, str] | None,
    ) -> None:
        self._calls = calls
        self._hear = hear
        self._requests = requests
        self._adopted = adopted
        self._keys = [request.key for request in requests]
        self._pending = set(self._keys)
        self._updates: deque[ToolUpdate] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._gave_way = False

    def give_way(self) -> None:
        """Tell no more, and wait for ever, so that nothing is released that was not recorded."""
        self._gave_way = True
        self._updates.clear()

    def put(self, update: ToolUpdate) -> None:
        """Take what happened to one of the calls, or to a child of one."""
        self._updates.append(update)
        waiting = self._waiting
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def __aenter__(self) -> Self:
        for key in self._keys:
            self._calls.followed[key] = self
        executor, adopted = self._calls.executor, self._adopted
        if not adopted:
            executor.submit(self._requests)
            return self
        executor.submit([one for one in self._requests if one.key not in adopted])
        for incarnation in dict.fromkeys(adopted.values()):
            of_it = [one for one in self._requests if adopted.get(one.key) == incarnation]
            executor.adopt(of_it, incarnation)
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ToolUpdate:
        if self._gave_way:
            await asyncio.Event().wait()
        while self._pending:
            while not self._updates:
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting
            update = self._updates.popleft()
            if isinstance(update, _REPORTS):
                self._hear(update)
                continue
            if isinstance(update, _ENDS):
                self._pending.discard(update.key)
            return update
        raise StopAsyncIteration

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._gave_way:
            return
        for key in self._keys:
            self._calls.followed.pop(key, None)
        executor = self._calls.executor
        try:
            if self._pending:
                await asyncio.shield(executor.cancel(sorted(self._pending)))
        finally:
            self._calls.release(self._keys, not self._pending)
