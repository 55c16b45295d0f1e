"""What a caller holds of a run: a handle that outlives the caller's interest, and a stream that
does not."""

from __future__ import annotations

import base64
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar, cast

import msgpack

from tulip_actors.core.emitted import Emitted
from tulip_actors.core.events import TulipEvent
from tulip_actors.errors import ConfigError, RunCancelled
from tulip_actors.host.feed import Feed
from tulip_actors.host.ports import HostClient

EventHandler: TypeAlias = Callable[[TulipEvent], object]
"""Called with events in the caller's process; it may be async."""

ResultT = TypeVar("ResultT", covariant=True)


class Cursor:
    """How far a stream was read: per run in it, the last event's number.

    A team's stream carries several runs, and after a crash their order may differ; a number per
    run is right in any order.
    """

    def __init__(self, encoded: str | None = None) -> None:
        self._seen: dict[str, int] = {} if encoded is None else _decoded(encoded)

    def passes(self, entry: Emitted) -> bool:
        """True for an event that was not read yet; it counts as read from now on."""
        if entry.seq <= self._seen.get(entry.run_id, -1):
            return False
        self._seen[entry.run_id] = entry.seq
        return True

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(b"r1:" + msgpack.packb(self._seen)).decode()


def _decoded(encoded: str) -> dict[str, int]:
    try:
        raw = base64.urlsafe_b64decode(encoded)
        if raw.startswith(b"r1:"):
            seen = msgpack.unpackb(raw[3:])
            return {str(run_id): int(seq) for run_id, seq in seen.items()}
    except (ValueError, TypeError, OverflowError, AttributeError, msgpack.UnpackException):
        pass
    raise ConfigError(f"after: {encoded!r:.40} is not a cursor of a run; pass a handle.cursor")


class RunHandle(Generic[ResultT]):
    """A run that was started and goes on whether or not anybody follows it."""

    def __init__(
        self,
        run_id: str,
        feed: Feed,
        client: HostClient,
        after: str | None = None,
        handlers: Sequence[EventHandler] = (),
    ) -> None:
        self.run_id = run_id
        self._feed = feed
        self._client = client
        self._after = after
        self._handlers = handlers
        self._cursor = Cursor(after)

    @property
    def cursor(self) -> str:
        """Opaque: the place after the event last yielded. Pass it as `after`."""
        return str(self._cursor)

    @property
    def done(self) -> bool:
        """True when the run has ended."""
        return self._feed.closed

    async def events(self, after: str | None = None) -> AsyncIterator[TulipEvent]:
        """The run's events, from its start or after a cursor, to its TerminateEvent.

        Without `after` the handle's own is taken, if it was attached with one. Leaving the
        iteration does not touch the run. Raises what the run raised, after the TerminateEvent
        that reports it, and what a handler raises, which does not touch the run either.
        """
        cursor = self._cursor = Cursor(after or self._after)
        async for batch in self._feed.batches():
            for entry in batch:
                if cursor.passes(entry):
                    await self._tell(entry.event)
                    yield entry.event
        raise_failure(self._feed, self.run_id)

    async def told(self) -> None:
        """Hand every event to the handlers, to the run's end; what the run raised is not raised."""
        async for batch in self._feed.batches():
            for entry in batch:
                await self._tell(entry.event)

    async def _tell(self, event: TulipEvent) -> None:
        for handler in self._handlers:
            answer = handler(event)
            if inspect.isawaitable(answer):
                await answer

    async def packed_events(self, start: int = 0) -> AsyncIterator[Sequence[Emitted]]:
        """The same from a position, for a team that passes them on undecoded."""
        async for batch in self._feed.batches(start):
            yield batch

    async def result(self) -> ResultT:
        """Wait for the run's end. Raises what the run raised."""
        return cast(ResultT, await self._feed.ended())

    def cancel(self) -> None:
        """Stop the run at once, as a task cancel does; returns without waiting."""
        if not self._feed.closed:
            self._client.cancel([self.run_id], at_once=True)

    def cancel_at_boundary(self) -> None:
        """Ask the run to stop at its next turn boundary; returns without waiting."""
        if not self._feed.closed:
            self._client.cancel([self.run_id], at_once=False)

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r}, {'ended' if self.done else 'running'})"


class RunStream(Generic[ResultT]):
    """`agent.run(...)`: the events of a run that lives as long as somebody reads them.

    The run starts with the first event asked for. Breaking out of the loop, `aclose`, a cancelled
    reader, a handler that raises or losing the stream cancels it.
    """

    def __init__(self, start: Callable[[], Awaitable[RunHandle[ResultT]]]) -> None:
        self._start = start
        self._handle: RunHandle[ResultT] | None = None
        self._events: AsyncIterator[TulipEvent] | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TulipEvent:
        if self._closed:
            raise StopAsyncIteration
        if self._handle is None or self._events is None:
            self._handle = await self._start()
            self._events = self._handle.events()
        try:
            return await anext(self._events)
        except StopAsyncIteration:
            raise
        except BaseException:
            self._handle.cancel()
            raise

    async def aclose(self) -> None:
        """Cancel the run, if it has not ended; it cannot be iterated any further."""
        self._closed = True
        self._close()

    def _close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def raise_failure(feed: Feed, run_id: str) -> None:
    """Raise what a closed feed's run raised. A cancelled run has said so and is no failure."""
    _, error = feed.settled()
    if error is not None and not (isinstance(error, RunCancelled) and error.run_id == run_id):
        raise error
