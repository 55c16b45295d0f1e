"""A run's stream, buffered: one writer, any number of readers on any event loops and threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence

from tulip_actors.core.emitted import Emitted


class Feed:
    """Grows until it is closed with the run's outcome. Readers wait on their own loops."""

    def __init__(self) -> None:
        self._entries: list[Emitted] = []
        self._closed = False
        self._result: object = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    @property
    def closed(self) -> bool:
        """True when nothing will be added any more."""
        return self._closed

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, entries: Sequence[Emitted]) -> None:
        """Add entries and wake the readers."""
        self._entries.extend(entries)
        self._wake()

    def close(self, result: object = None, error: BaseException | None = None) -> None:
        """End the stream with the run's result, or with what it raised. Later calls do nothing."""
        with self._lock:
            if self._closed:
                return
            self._result, self._error, self._closed = result, error, True
        self._wake()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener`, in the writer's thread, whenever something is added, and at the end."""
        self._listeners.append(listener)

    def settled(self) -> tuple[object, BaseException | None]:
        """The result of a closed feed, and what the run raised."""
        return self._result, self._error

    def outcome(self) -> object:
        """The result of a closed feed. Raises what the run raised."""
        if self._error is not None:
            raise self._error
        return self._result

    def peek(self, start: int) -> Sequence[Emitted]:
        """What is there from position `start` on, without waiting."""
        return self._entries[start:]

    async def batches(self, start: int = 0) -> AsyncIterator[Sequence[Emitted]]:
        """Entries from `start` on, as they come; ends when the feed is closed and read."""
        while True:
            batch = self._entries[start:]
            if batch:
                start += len(batch)
                yield batch
            elif self._closed:
                return
            else:
                await self.wait(start)

    async def ended(self) -> object:
        """Wait for the end; the result, or raises what the run raised."""
        while not self._closed:
            await self.wait(None)
        return self.outcome()

    async def wait(self, beyond: int | None) -> None:
        """Wait for an entry past position `beyond` (None: only for the end), or for the end."""
        loop = asyncio.get_running_loop()
        while not self._has(beyond):
            future: asyncio.Future[None] = loop.create_future()
            with self._lock:
                if self._has(beyond):
                    return
                self._waiting.append((loop, future))
            await future

    def _has(self, beyond: int | None) -> bool:
        return self._closed or (beyond is not None and len(self._entries) > beyond)

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for listener in self._listeners:
            listener()
        for loop, future in waiting:
            try:
                loop.call_soon_threadsafe(_finish, future)
            except RuntimeError:  # that reader's loop is closed: it no longer waits
                continue


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
