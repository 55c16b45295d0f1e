"""`HookProvider` and the four events it is handed.

What may live here: the callbacks a hook may have, and the write-protected events of the calls. A
hook steers in two ways: it assigns to a writable field of such an event, or it raises, which ends
the run with "error". The chain that calls hooks is `hooks/chain.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from enum import IntEnum
from typing import ClassVar, Literal

from tulip_actors.core.events import TulipEvent
from tulip_actors.core.frozen import Json
from tulip_actors.core.messages import Message
from tulip_actors.core.runs import ModelResponse
from tulip_actors.core.state import AgentState

STEERING = (
    "on_before_invocation",
    "on_after_invocation",
    "on_iteration_start",
    "on_iteration_end",
    "on_before_model_call",
    "on_after_model_call",
    "on_before_tool_call",
    "on_after_tool_call",
)
"""The callbacks that the loop waits for: it calls them where it runs."""


class HookPriority(IntEnum):
    """Names for `priority`: lower runs first before a step, last after it."""

    FIRST = 0
    EARLY = 25
    NORMAL = 50
    LATE = 75
    LAST = 100


class ProtectedEvent:
    """An event of which a hook may assign only the fields named in `writable`."""

    writable: ClassVar[frozenset[str]] = frozenset()

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self.writable:
            allowed = ", ".join(sorted(self.writable))
            raise AttributeError(
                f"{type(self).__name__}.{name} is read-only; a hook may assign: {allowed}"
            )
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be deleted")

    def _set(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)


class BeforeModelCallEvent(ProtectedEvent):
    """The model is about to be asked. Assign `messages` to change what it sees, not the state."""

    writable = frozenset({"messages"})
    messages: Sequence[Message]
    iteration: int
    state: AgentState

    def __init__(self, messages: Sequence[Message], iteration: int, state: AgentState) -> None:
        self._set(messages=messages, iteration=iteration, state=state)


class AfterModelCallEvent(ProtectedEvent):
    """The model answered. Assign `response` to replace the answer, `retry = True` to ask again.

    `attempt` counts from 1.
    """

    writable = frozenset({"retry", "response"})
    response: ModelResponse
    retry: bool
    iteration: int
    attempt: int
    state: AgentState

    def __init__(
        self, response: ModelResponse, iteration: int, attempt: int, state: AgentState
    ) -> None:
        self._set(response=response, retry=False, iteration=iteration, attempt=attempt, state=state)


class BeforeToolCallEvent(ProtectedEvent):
    """A tool is about to run. Assign `arguments` to change them, `cancel` to forbid the call.

    `cancel` is True or the reason as text; the model is told.
    """

    writable = frozenset({"arguments", "cancel"})
    tool_name: str
    tool_call_id: str
    arguments: Mapping[str, Json]
    cancel: bool | str
    iteration: int
    state: AgentState

    def __init__(
        self,
        tool_name: str,
        tool_call_id: str,
        arguments: Mapping[str, Json],
        iteration: int,
        state: AgentState,
    ) -> None:
        self._set(
            tool_name=tool_name,
            tool_call_id=tool_call_id,
            arguments=arguments,
            cancel=False,
            iteration=iteration,
            state=state,
        )


class AfterToolCallEvent(ProtectedEvent):
    """A tool ended, before its result is recorded.

    Assign `result` to replace what state, event, model and store see (an error then becomes a
    success), `retry = True` to run the call again. `attempt` counts from 1.
    """

    writable = frozenset({"retry", "result"})
    tool_name: str
    tool_call_id: str
    arguments: Mapping[str, Json]
    result: str | None
    error: str | None
    duration_ms: float
    retry: bool
    attempt: int
    iteration: int
    state: AgentState

    def __init__(
        self,
        *,
        tool_name: str,
        tool_call_id: str,
        arguments: Mapping[str, Json],
        result: str | None,
        error: str | None,
        duration_ms: float,
        attempt: int,
        iteration: int,
        state: AgentState,
    ) -> None:
        self._set(
            tool_name=tool_name,
            tool_call_id=tool_call_id,
            arguments=arguments,
            result=result,
            error=error,
            duration_ms=duration_ms,
            retry=False,
            attempt=attempt,
            iteration=iteration,
            state=state,
        )


class HookProvider:
    """Subclass it and write the callbacks you care about, `async` or plain.

    One instance serves many runs at once; `current_run()` tells which one calls. Raising from any
    callback ends the run with `TerminateEvent("error")`; calls under way run to their end and are
    recorded. `priority` (lower first) sorts hooks; among equals the order of the list holds.

    With the class attribute `runs_in = "caller"` a hook stays where the agent was made, so it may
    hold a lock, a file or a socket: its `on_event`, and nothing else, is called there, for the runs
    that are awaited or iterated there. What it raises reaches whoever awaits or iterates.
    """

    priority: int = HookPriority.NORMAL
    runs_in: Literal["actor", "caller"] = "actor"

    def on_before_invocation(
        self, prompt: str, state: AgentState
    ) -> Awaitable[AgentState | None] | AgentState | None:
        """A run begins. What is returned replaces the state; None leaves it."""

    def on_after_invocation(self, state: AgentState, success: bool) -> Awaitable[None] | None:
        """A run ends, before its last record."""

    def on_iteration_start(self, iteration: int, state: AgentState) -> Awaitable[None] | None:
        """A turn begins; `iteration` counts from 0."""

    def on_iteration_end(self, iteration: int, state: AgentState) -> Awaitable[None] | None:
        """A turn ends."""

    def on_before_model_call(self, event: BeforeModelCallEvent) -> Awaitable[None] | None:
        """The model is about to be asked."""

    def on_after_model_call(self, event: AfterModelCallEvent) -> Awaitable[None] | None:
        """The model answered."""

    def on_before_tool_call(self, event: BeforeToolCallEvent) -> Awaitable[None] | None:
        """A tool is about to run."""

    def on_after_tool_call(self, event: AfterToolCallEvent) -> Awaitable[None] | None:
        """A tool ended."""

    def on_event(self, event: TulipEvent) -> None:
        """Every typed event of the run, as it is emitted; read-only, and not awaited."""
