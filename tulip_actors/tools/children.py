"""Calls that a tool makes: `ctx.call`, `ctx.map` and their plain forms, and what they stand on.

What may live here: which items are under way and whose turn is next. Where the calls run is the
executor's, reached through `ChildCaller`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tulip_actors.core.calls import CallReport, Child
from tulip_actors.core.defaults import RandomIds
from tulip_actors.core.frozen import JsonObject
from tulip_actors.errors import ConfigError, NotSerialisable, ToolError

if TYPE_CHECKING:
    from tulip_actors.tools.decorator import Tool

MAX_IN_FLIGHT = 1000
"""Calls of one map that are submitted and have not ended: enough to keep a cluster busy, few enough
that neither it nor the object store is flooded by a map over millions."""


class ChildCall(NamedTuple):
    """A call to be made: which of its parent's it is, and its validated arguments."""

    position: int
    arguments: JsonObject


class ChildCaller(Protocol):
    """How one body reaches the executor that runs it, from a coroutine or from a plain function.

    `ticket` names the calls of one map.
    """

    def next_position(self) -> int:
        """Counts the body's calls, from 0: the same ones when it runs again."""
        ...

    async def exchange(
        self, ticket: str, tool: Tool, calls: Sequence[ChildCall]
    ) -> Sequence[Child]:
        """Make calls; returns those of the ticket that ended since the last time, waiting for one
        unless none is left. Their outcomes have their values."""
        ...

    def exchange_blocking(
        self, ticket: str, tool: Tool, calls: Sequence[ChildCall]
    ) -> Sequence[Child]:
        """The same for a body that is not a coroutine."""
        ...

    def abandon(self, ticket: str) -> None:
        """Stop the calls of the ticket; returns without waiting."""
        ...

    def tell(self, report: CallReport) -> None:
        """Pass on what a body tells of its run, in order; from any thread, without waiting.

        What comes after the call's end is dropped.
        """
        ...

    def is_cancelled(self) -> bool:
        """Whether the body has been asked to end."""
        ...


class MappedCalls:
    """One tool called once per item, so many at a time. Yields `(index, value)` as they end;
    a failed item's value is a `ToolError`."""

    def __init__(
        self, children: ChildCaller, tool: Tool, items: Iterable[object], max_in_flight: int
    ) -> None:
        if not isinstance(max_in_flight, int) or max_in_flight < 1:
            raise ConfigError(
                f"max_in_flight is a whole number of at least 1, not {max_in_flight!r:.80}"
            )
        self._children = children
        self._tool = tool
        self._items = enumerate(items)
        self._max_in_flight = max_in_flight
        self._ticket = RandomIds().new("map")
        self._indices: dict[int, int] = {}
        self._unfit: list[tuple[int, ToolError]] = []

    async def as_completed(self) -> AsyncIterator[tuple[int, object]]:
        """For coroutines. Left early, the calls that are under way are cancelled."""
        try:
            while (calls := self._next_calls()) or self._indices or self._unfit:
                ended: Sequence[Child] = ()
                if calls or self._indices:
                    ended = await self._children.exchange(self._ticket, self._tool, calls)
                for entry in self._entries(ended):
                    yield entry
        finally:
            self._leave()

    def as_completed_blocking(self) -> Iterator[tuple[int, object]]:
        """For plain functions."""
        try:
            while (calls := self._next_calls()) or self._indices or self._unfit:
                ended: Sequence[Child] = ()
                if calls or self._indices:
                    ended = self._children.exchange_blocking(self._ticket, self._tool, calls)
                yield from self._entries(ended)
        finally:
            self._leave()

    def _next_calls(self) -> list[ChildCall]:
        """Items up to the bound; one that does not fit does not keep the others."""
        calls: list[ChildCall] = []
        while len(self._indices) < self._max_in_flight and len(self._unfit) < self._max_in_flight:
            following = next(self._items, None)
            if following is None:
                break
            index, item = following
            try:
                arguments = self._tool.arguments_from(item)
            except (ToolError, NotSerialisable) as error:
                self._unfit.append((index, ToolError(f"{self._tool.name}: {error.message}")))
                continue
            position = self._children.next_position()
            self._indices[position] = index
            calls.append(ChildCall(position, arguments))
        return calls

    def _entries(self, ended: Sequence[Child]) -> Iterator[tuple[int, object]]:
        unfit, self._unfit = self._unfit, []
        yield from unfit
        for child in ended:
            index = self._indices.pop(child.position)
            if child.outcome.error is None:
                yield index, child.outcome.value
            else:
                yield index, ToolError(f"{self._tool.name}: {child.outcome.error}")

    def _leave(self) -> None:
        if self._indices:
            self._children.abandon(self._ticket)


def in_order(entries: Iterable[tuple[int, object]], return_exceptions: bool) -> list[object]:
    """The values in their items' order. Raises the first failure, unless they are wanted."""
    values = [value for _, value in sorted(entries, key=lambda entry: entry[0])]
    if not return_exceptions:
        for value in values:
            if isinstance(value, ToolError):
                raise value
    return values
