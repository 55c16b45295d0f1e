"""What a tool body is given: who calls, the run it serves, and the means to call further tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tulip_actors.core.calls import (
    CallEmitted,
    CallKey,
    CallReport,
    CallScope,
    CallSetMetadata,
    ToolOutcome,
)
from tulip_actors.core.codec import pack_event, unpack_event
from tulip_actors.core.current import checked_entry, checked_event
from tulip_actors.core.events import TerminateEvent, TulipEvent
from tulip_actors.core.frozen import FrozenDict, Json
from tulip_actors.errors import ConfigError, NotSerialisable, ToolError

if TYPE_CHECKING:
    from tulip_actors.tools.decorator import Tool


class ChildCaller(Protocol):
    """How a body reaches the executor that runs it, from a coroutine or from a plain function."""

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

    def tell(self, report: CallReport) -> None:
        """Pass on what a body tells of its run, in order; from any thread, without waiting.

        What comes after the call's end is dropped.
        """
        ...


@dataclass(frozen=True, slots=True)
class ToolRun:
    """`current_run()` inside a tool: the run as the call was told of it. See `CurrentRun`.

    What it emits and sets reaches the run before the call's result does, wherever the body runs.
    """

    key: CallKey
    scope: CallScope
    executor: ChildCaller

    @property
    def run_id(self) -> str:
        """See `CurrentRun`."""
        return self.scope.run_id

    @property
    def thread_id(self) -> str:
        """See `CurrentRun`."""
        return self.scope.thread_id

    @property
    def agent_id(self) -> str:
        """See `CurrentRun`."""
        return self.scope.agent_id

    @property
    def metadata(self) -> Mapping[str, Json]:
        """See `CurrentRun`."""
        return self.scope.metadata

    @property
    def principal(self) -> str | None:
        """See `CurrentRun`."""
        return self.scope.principal

    def emit(self, event: TulipEvent) -> None:
        """See `CurrentRun`. Raises `NotSerialisable` for a class of event that is not ours."""
        if isinstance(checked_event(event), TerminateEvent):
            raise ConfigError("a TerminateEvent ends the stream and is the loop's own to emit")
        packed = pack_event(event)
        unpack_event(packed)  # what cannot be read at the other end is refused at this one
        self.executor.tell(CallEmitted(self.key, packed))

    def set_metadata(self, key: str, value: object) -> None:
        """See `CurrentRun`."""
        self.executor.tell(CallSetMetadata(self.key, *checked_entry(key, value)))


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
    def principal(self) -> str | None:
        """On whose behalf the run is, as it was started."""
        return self.scope.principal

    def emit(self, event: TulipEvent) -> None:
        """Put an event on the run's stream and on the bus; from any thread. See `CurrentRun`."""
        self._run.emit(event)

    def set_metadata(self, key: str, value: object) -> None:
        """Set an entry of the state's metadata, to be seen from the next turn on; any thread."""
        self._run.set_metadata(key, value)

    @property
    def _run(self) -> ToolRun:
        return ToolRun(self.key, self.scope, self.children)

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
