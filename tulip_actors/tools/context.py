"""What a tool body is given: who calls, and the means to call further tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tulip_actors.core.calls import CallKey, CallScope, ToolOutcome
from tulip_actors.core.frozen import FrozenDict, Json
from tulip_actors.errors import NotSerialisable, ToolError

if TYPE_CHECKING:
    from tulip_actors.tools.decorator import Tool


class ChildCaller(Protocol):
    """How a body's child calls reach the executor, from a coroutine or from a plain function."""

    async def call(
        self, parent: CallKey, tool: Tool, arguments: Sequence[Mapping[str, Json]]
    ) -> Sequence[ToolOutcome]:
        """Outcomes in the order of the arguments, with their values."""
        ...

    def call_blocking(
        self, parent: CallKey, tool: Tool, arguments: Sequence[Mapping[str, Json]]
    ) -> Sequence[ToolOutcome]:
        """The same for a body that is not a coroutine."""
        ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Take a parameter of this type in a tool and it is filled in; models do not see it.

    `key` names this call for ever, also when the body runs again: pass `idempotency_key` on to
    whatever has an effect.
    """

    key: CallKey
    tool_call_id: str
    scope: CallScope
    children: ChildCaller
    attempt: int = 1

    @property
    def run_id(self) -> str:
        """The run that made the call."""
        return self.scope.run_id

    @property
    def thread_id(self) -> str:
        """The run's thread."""
        return self.scope.thread_id

    @property
    def agent(self) -> str:
        """The agent's label."""
        return self.scope.agent

    @property
    def iteration(self) -> int:
        """The turn, from 0."""
        return self.scope.iteration

    @property
    def metadata(self) -> Mapping[str, Json]:
        """The run's metadata, read-only."""
        return self.scope.metadata

    @property
    def idempotency_key(self) -> str:
        """The same text for the same call, in every attempt and after every restart."""
        return str(self.key)

    async def call(self, tool: Tool, arguments: object = None, /) -> object:
        """Call a tool and return what its body returned. Raises `ToolError` when it failed."""
        return (await self.map(tool, [{} if arguments is None else arguments]))[0]

    async def map(
        self, tool: Tool, items: Iterable[object], *, return_exceptions: bool = False
    ) -> list[object]:
        """Call a tool once per item, in parallel over the cluster; values in the items' order.

        An item is the tool's one argument, or a mapping of its arguments. A failed item does not
        end the others. When all have ended the first failure is raised as a `ToolError`, or, with
        `return_exceptions=True`, each failure stands in its item's place.
        """
        batch = Batch.of(tool, items)
        made = await self.children.call(self.key, tool, batch.valid) if batch.valid else ()
        return batch.values(made, return_exceptions)

    def call_sync(self, tool: Tool, arguments: object = None, /) -> object:
        """`call` for a plain (not `async def`) tool."""
        return self.map_sync(tool, [{} if arguments is None else arguments])[0]

    def map_sync(
        self, tool: Tool, items: Iterable[object], *, return_exceptions: bool = False
    ) -> list[object]:
        """`map` for a plain (not `async def`) tool."""
        batch = Batch.of(tool, items)
        made = self.children.call_blocking(self.key, tool, batch.valid) if batch.valid else ()
        return batch.values(made, return_exceptions)


@dataclass(frozen=True, slots=True)
class Batch:
    """The items of one `map`: arguments for each, or the error that keeps it from being called."""

    tool: Tool
    items: Sequence[FrozenDict | ToolError]

    @classmethod
    def of(cls, tool: Tool, items: Iterable[object]) -> Batch:
        """Check every item; one that does not fit does not keep the others."""
        checked: list[FrozenDict | ToolError] = []
        for item in items:
            try:
                checked.append(tool.arguments_from(item))
            except (ToolError, NotSerialisable) as error:
                checked.append(ToolError(f"{tool.name}: {error.message}"))
        return cls(tool, checked)

    @property
    def valid(self) -> Sequence[FrozenDict]:
        """The arguments of the items that can be called."""
        return [item for item in self.items if isinstance(item, FrozenDict)]

    def values(self, outcomes: Sequence[ToolOutcome], return_exceptions: bool) -> list[object]:
        """A value per item, in their order. Raises the first failure, unless they are wanted."""
        made = iter(outcomes)
        values: list[object] = []
        for item in self.items:
            if isinstance(item, ToolError):
                values.append(item)
                continue
            outcome = next(made)
            failed = outcome.error is not None
            values.append(
                ToolError(f"{self.tool.name}: {outcome.error}") if failed else outcome.value
            )
        if not return_exceptions:
            for value in values:
                if isinstance(value, ToolError):
                    raise value
        return values
