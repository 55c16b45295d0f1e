"""What a tool body is given: who calls, the run it serves, and the means to call further tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tulip_actors.core.calls import (
    CallEmitted,
    CallKey,
    CallScope,
    CallSetMetadata,
)
from tulip_actors.core.codec import pack_event, unpack_event
from tulip_actors.core.current import checked_entry, checked_event
from tulip_actors.core.events import TerminateEvent, ToolProgressEvent, TulipEvent
from tulip_actors.core.frozen import Json
from tulip_actors.errors import ConfigError
from tulip_actors.tools.children import MAX_IN_FLIGHT, ChildCaller, MappedCalls, in_order

if TYPE_CHECKING:
    from tulip_actors.tools.decorator import Tool


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
    whatever has an effect. `attempt` counts the times it runs, from 1; `deadline_s` is when it
    times out, in seconds since the epoch (`time.time()`), None without a `timeout_s`.
    """

    key: CallKey
    tool_call_id: str
    scope: CallScope
    children: ChildCaller
    tool_name: str
    attempt: int = 1
    deadline_s: float | None = None

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

    def cancelled(self) -> bool:
        """Whether this call has been asked to end (its run was cancelled, its time is up).

        A plain body that takes long should look: nothing else can stop it but the end of its
        process, `cancel_grace_s` later. A coroutine gets a CancelledError by itself.
        """
        return self.children.is_cancelled()

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far the call is, 0 to 1: a `ToolProgressEvent` on stream and bus; any thread."""
        self._run.emit(
            ToolProgressEvent(
                tool_name=self.tool_name,
                tool_call_id=self.tool_call_id,
                fraction=min(1.0, max(0.0, fraction)),
                message=message,
            )
        )

    async def call(self, tool: Tool, arguments: object = None, /) -> object:
        """Call a tool and return what its body returned. Raises `ToolError` when it failed."""
        return (await self.map(tool, [{} if arguments is None else arguments]))[0]

    async def map(
        self,
        tool: Tool,
        items: Iterable[object],
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        return_exceptions: bool = False,
    ) -> list[object]:
        """Call a tool once per item, in parallel over the cluster; values in the items' order.

        An item is the tool's one argument, or a mapping of its arguments; items are taken from the
        iterator as calls end, so that at most `max_in_flight` are under way. A failed item does not
        end the others. When all have ended the first failure is raised as a `ToolError`, or, with
        `return_exceptions=True`, each failure stands in its item's place.
        """
        mapped = MappedCalls(self.children, tool, items, max_in_flight)
        return in_order([entry async for entry in mapped.as_completed()], return_exceptions)

    def map_as_completed(
        self, tool: Tool, items: Iterable[object], *, max_in_flight: int = MAX_IN_FLIGHT
    ) -> AsyncIterator[tuple[int, object]]:
        """The same, as calls end: `(index of the item, value)`, a `ToolError` for one that failed.

        Only what is under way is held, so `items` may be endless.
        """
        return MappedCalls(self.children, tool, items, max_in_flight).as_completed()

    def call_sync(self, tool: Tool, arguments: object = None, /) -> object:
        """`call` for a plain (not `async def`) tool."""
        return self.map_sync(tool, [{} if arguments is None else arguments])[0]

    def map_sync(
        self,
        tool: Tool,
        items: Iterable[object],
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        return_exceptions: bool = False,
    ) -> list[object]:
        """`map` for a plain (not `async def`) tool."""
        mapped = MappedCalls(self.children, tool, items, max_in_flight)
        return in_order(mapped.as_completed_blocking(), return_exceptions)

    def map_as_completed_sync(
        self, tool: Tool, items: Iterable[object], *, max_in_flight: int = MAX_IN_FLIGHT
    ) -> Iterator[tuple[int, object]]:
        """`map_as_completed` for a plain (not `async def`) tool."""
        return MappedCalls(self.children, tool, items, max_in_flight).as_completed_blocking()
