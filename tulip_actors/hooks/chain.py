"""The hooks of one agent, called in order: "before" and "start" first to last, "after" and "end"
last to first. A callback that a hook did not override costs nothing."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast

from tulip_actors.core.events import TulipEvent
from tulip_actors.core.messages import Message
from tulip_actors.core.runs import ModelResponse
from tulip_actors.core.state import AgentState
from tulip_actors.hooks.provider import (
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookProvider,
)
from tulip_actors.models.accumulate import as_response

Callback: TypeAlias = Callable[..., object]


class HookChain:
    """Calls the hooks of an agent. What a hook raises is raised to the node that called.

    `sees_events` tells whether any hook wants every event, `steers_tools` whether any looks at tool
    calls, and so on: what nobody looks at need not be told, and then costs nothing.
    """

    def __init__(self, hooks: Sequence[HookProvider] = ()) -> None:
        ordered = _ordered(hooks)
        self._before_invocation = _overriding(ordered, "on_before_invocation")
        self._after_invocation = _overriding(ordered, "on_after_invocation")[::-1]
        self._iteration_start = _overriding(ordered, "on_iteration_start")
        self._iteration_end = _overriding(ordered, "on_iteration_end")[::-1]
        self._before_model = _overriding(ordered, "on_before_model_call")
        self._after_model = _overriding(ordered, "on_after_model_call")[::-1]
        self._before_tool = _overriding(ordered, "on_before_tool_call")
        self._after_tool = _overriding(ordered, "on_after_tool_call")[::-1]
        self._event = _overriding(ordered, "on_event")
        self.sees_events = bool(self._event)
        self.steers_tools = bool(self._before_tool or self._after_tool)
        self.steers_models = bool(self._before_model or self._after_model)

    async def before_invocation(self, prompt: str, state: AgentState) -> AgentState:
        """The state a run begins with."""
        for callback in self._before_invocation:
            answer = await _called(callback, prompt, state)
            if answer is not None and not isinstance(answer, AgentState):
                raise TypeError(
                    f"on_before_invocation returned {type(answer).__name__}; return an AgentState "
                    "or None"
                )
            if answer is not None and answer.run_id != state.run_id:
                raise ValueError(
                    f"on_before_invocation returned a state with another run_id ({answer.run_id}); "
                    "return a changed copy of the one it was given"
                )
            state = state if answer is None else answer
        return state

    async def after_invocation(self, state: AgentState, success: bool) -> None:
        """A run ends."""
        for callback in self._after_invocation:
            await _called(callback, state, success)

    async def iteration_start(self, iteration: int, state: AgentState) -> None:
        """A turn begins."""
        for callback in self._iteration_start:
            await _called(callback, iteration, state)

    async def iteration_end(self, iteration: int, state: AgentState) -> None:
        """A turn ends."""
        for callback in self._iteration_end:
            await _called(callback, iteration, state)

    async def before_model_call(
        self, messages: Sequence[Message], state: AgentState
    ) -> Sequence[Message]:
        """The model is about to be asked; returns what it is to be shown."""
        if not self._before_model:
            return messages
        event = BeforeModelCallEvent(messages, state.iteration, state)
        for callback in self._before_model:
            await _called(callback, event)
        return event.messages

    async def after_model_call(
        self, response: ModelResponse, attempt: int, state: AgentState
    ) -> tuple[ModelResponse, bool]:
        """The model answered; returns the answer to go on with, and whether to ask again."""
        if not self._after_model:
            return response, False
        event = AfterModelCallEvent(response, state.iteration, attempt, state)
        for callback in self._after_model:
            await _called(callback, event)
        answer: object = event.response
        if not isinstance(answer, ModelResponse | Message):
            raise TypeError(
                f"a hook set response to {type(answer).__name__}; give it a ModelResponse"
            )
        return as_response(answer), event.retry

    async def before_tool_call(self, event: BeforeToolCallEvent) -> None:
        """A tool is about to run; a veto ends the chain."""
        for callback in self._before_tool:
            await _called(callback, event)
            if event.cancel:
                return

    async def after_tool_call(self, event: AfterToolCallEvent) -> None:
        """A tool ended."""
        for callback in self._after_tool:
            await _called(callback, event)

    def saw(self, event: TulipEvent) -> None:
        """Show an event to those who want every one."""
        for callback in self._event:
            callback(event)


def observers(hooks: Sequence[HookProvider]) -> list[Callback]:
    """The `on_event` of those that have one, in the order in which they are called."""
    return _overriding(_ordered(hooks), "on_event")


def overrides(hook: HookProvider, name: str) -> bool:
    """Whether a hook has a callback of its own."""
    plain = getattr(HookProvider, name)
    return getattr(type(hook), name, plain) is not plain


def _ordered(hooks: Sequence[HookProvider]) -> list[HookProvider]:
    return sorted(hooks, key=lambda hook: hook.priority)


def _overriding(hooks: Sequence[HookProvider], name: str) -> list[Callback]:
    return [getattr(hook, name) for hook in hooks if overrides(hook, name)]


async def _called(callback: Callback, *arguments: object) -> object:
    answer = callback(*arguments)
    return await cast(Awaitable[object], answer) if inspect.isawaitable(answer) else answer
