"""A run's stream, buffered: one writer, any number of readers on any event loops and threads."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Sequence

from tulip_actors.core.emitted import Emitted
from tulip_actors.host.waiters import Waiters


class Feed:
    """Grows until it is closed with the run's outcome. Readers wait on their own loops.

    `segment_start` is the number of the first event of the run's present segment: before it there
    may be those of earlier ones, in the feed of a run that was taken up.
    """

    def __init__(self) -> None:
        self.segment_start = 0
        self._entries: list[Emitted] = []
        self._closed = False
        self._result: object = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._waiting_for_more = Waiters()
        self._waiting_for_the_end = Waiters()

    @property
    def closed(self) -> bool:
        """True when nothing will be added any more."""
        return self._closed

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """What its events take, packed."""
        return sum(len(entry.packed) for entry in self._entries)

    def append(self, entries: Sequence[Emitted]) -> None:
        """Add entries and wake the readers."""
        self._entries.extend(entries)
        if self._listeners:
            self._tell()
        self._waiting_for_more.wake()

    def close(self, result: object = None, error: BaseException | None = None) -> None:
        """End the stream with the run's result, or with what it raised. Later calls do nothing."""
        with self._lock:
            if self._closed:
                return
            self._result, self._error, self._closed = result, error, True
        self._tell()
        self._listeners.clear()  # they know the feed: without them it goes with its last reader
        self._waiting_for_more.wake()
        self._waiting_for_the_end.wake()

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
        if beyond is None:
            await self._waiting_for_the_end.wait_until(lambda: self._closed)
        else:
            await self._waiting_for_more.wait_until(
                lambda: self._closed or len(self._entries) > beyond
            )

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()
