"""Runs of one host that wait for their threads: in line behind one another, then for other hosts.

Within a host the thread goes from one run to the next without asking anybody. Another host's run is
not known here: the first in line asks the store again, after a pause that grows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tulip_actors.core.ports import Clock
from tulip_actors.errors import ThreadBusy

PAUSE_MIN_S = 0.02
PAUSE_MAX_S = 1.0
PAUSE_GROWTH = 1.5


class Place:
    """A run's place in the line for its thread. It is kept until the run has ended."""

    def __init__(self, line: deque[Place], clock: Clock) -> None:
        self._line = line
        self._clock = clock
        self._called_up: asyncio.Future[None] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._given_up = False

    async def acquired(self, acquire: Callable[[], Awaitable[int]]) -> int:
        """The thread's epoch, once every run in front has ended and `acquire` is not refused.

        Raises CancelledError when the wait was given up, and all that `acquire` raises beside
        `ThreadBusy`.
        """
        if self._line[0] is not self:
            self._called_up = asyncio.get_running_loop().create_future()
            await self._wait(_result(self._called_up))
        pause_s = PAUSE_MIN_S
        while True:
            try:
                return await acquire()
            except ThreadBusy:
                await self._wait(self._clock.sleep(pause_s))
                pause_s = min(pause_s * PAUSE_GROWTH, PAUSE_MAX_S)

    def call_up(self) -> None:
        """Nobody is in front any more."""
        if self._called_up is not None and not self._called_up.done():
            self._called_up.set_result(None)

    def give_up(self) -> None:
        """Stop waiting, now and later; from any thread. What is being asked is not torn."""
        self._given_up = True
        waiting = self._waiting
        if waiting is not None:
            waiting.get_loop().call_soon_threadsafe(waiting.cancel)

    async def _wait(self, what: Coroutine[Any, Any, None]) -> None:
        # in a task of its own, so that giving up cancels the wait and nothing else
        self._waiting = waiting = asyncio.ensure_future(what)
        if self._given_up:
            waiting.cancel()
        try:
            await waiting
        finally:
            self._waiting = None


class ThreadLines:
    """Per thread the runs that want it and would wait, in the order in which they came."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[str, deque[Place]] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def join(self, thread_id: str) -> Place:
        """A place behind all others."""
        line = self._lines.setdefault(thread_id, deque())
        place = Place(line, self._clock)
        line.append(place)
        return place

    def leave(self, thread_id: str, place: Place) -> None:
        """Let the next one have its turn; the place may have been anywhere in the line."""
        line = self._lines[thread_id]
        line.remove(place)
        if line:
            line[0].call_up()
        else:
            del self._lines[thread_id]


async def _result(future: asyncio.Future[None]) -> None:
    await future
