"""C27: the order in which hooks are called, and what a chain costs that nobody listens to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulip_actors import AgentState, HookProvider, Message, ModelResponse, ThinkEvent
from tulip_actors.core.frozen import EMPTY
from tulip_actors.hooks import AfterModelCallEvent, BeforeModelCallEvent, BeforeToolCallEvent
from tulip_actors.hooks.chain import HookChain

STATE = AgentState("run", "thread", "agent")


class Named(HookProvider):
    """Tells that it was called, in a shared list."""

    def __init__(self, name: Any, log: list[Any], priority: Any = 50) -> None:
        self.name, self.log, self.priority = name, log, priority

    def on_iteration_start(self, iteration: int, state: AgentState) -> None:
        self.log.append(self.name)

    async def on_iteration_end(self, iteration: int, state: AgentState) -> None:
        await asyncio.sleep(0)
        self.log.append(self.name)

    def on_event(self, event: object) -> None:
        self.log.append(self.name)


async def called(hooks: list[HookProvider], log: list[Any], which: str) -> list[Any]:
    log.clear()
    chain = HookChain(hooks)
    if which == "event":
        chain.saw(ThinkEvent(iteration=0))
    else:
        await getattr(chain, which)(0, STATE)
    return list(log)


@given(st.lists(st.integers(-5, 105), max_size=8))
def test_c27_priorities_sort_stably_and_ends_are_reversed(priorities: list[int]) -> None:
    log: list[Any] = []
    hooks: list[HookProvider] = [
        Named(position, log, priority) for position, priority in enumerate(priorities)
    ]
    order = [n for _, n in sorted((priority, n) for n, priority in enumerate(priorities))]
    assert asyncio.run(called(hooks, log, "iteration_start")) == order
    assert asyncio.run(called(hooks, log, "iteration_end")) == order[::-1]
    assert asyncio.run(called(hooks, log, "event")) == order


async def test_c27_a_veto_ends_the_chain_and_keeps_its_reason() -> None:
    asked: list[str] = []

    class Asks(HookProvider):
        def __init__(self, name: str, cancel: object) -> None:
            self.name, self.answer = name, cancel

        def on_before_tool_call(self, event: BeforeToolCallEvent) -> None:
            asked.append(self.name)
            event.cancel = self.answer  # type: ignore[assignment]

    event = BeforeToolCallEvent("add", "c", EMPTY, 0, STATE)
    chain = HookChain([Asks("a", False), Asks("b", "no"), Asks("c", False)])
    await chain.before_tool_call(event)
    assert (asked, event.cancel) == (["a", "b"], "no")


async def test_c27_a_new_state_goes_to_the_next_hook_and_none_leaves_it() -> None:
    class Counts(HookProvider):
        def __init__(self, by: int | None) -> None:
            self.by = by

        def on_before_invocation(self, prompt: str, state: AgentState) -> AgentState | None:
            return None if self.by is None else state.with_metadata("n", self.told(state) + self.by)

        def told(self, state: AgentState) -> int:
            n = state.metadata.get("n", 0)
            assert isinstance(n, int)
            return n

    chain = HookChain([Counts(1), Counts(None), Counts(2)])
    assert (await chain.before_invocation("x", STATE)).metadata == {"n": 3}
    assert await HookChain([Counts(None)]).before_invocation("x", STATE) is STATE
    assert await HookChain().before_invocation("x", STATE) is STATE


@pytest.mark.parametrize("answer", ["x", 0, False, [], EMPTY])
async def test_c27_an_answer_that_is_no_state_is_refused(answer: Any) -> None:
    class Wrong(HookProvider):
        async def on_before_invocation(self, prompt: str, state: AgentState) -> Any:
            return answer

    with pytest.raises(TypeError, match="return an AgentState or None"):
        await HookChain([Wrong()]).before_invocation("x", STATE)


async def test_c29_what_a_hook_raises_is_raised_and_later_ones_are_not_called() -> None:
    log: list[Any] = []

    class Raises(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            raise LookupError("x")

    chain = HookChain([Named("a", log), Raises(), Named("b", log)])
    with pytest.raises(LookupError):
        await chain.iteration_start(0, STATE)
    assert log == ["a"]


async def test_an_awaitable_that_is_no_coroutine_is_awaited_too() -> None:
    class Gives(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> Any:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(LookupError("awaited"))
            return future

    with pytest.raises(LookupError, match="awaited"):
        await HookChain([Gives()]).iteration_start(0, STATE)


async def test_a_callback_that_is_inherited_is_called() -> None:
    log: list[Any] = []

    class Below(Named):
        pass

    await HookChain([Below("below", log)]).iteration_start(0, STATE)
    assert log == ["below"]


async def test_both_model_callbacks_are_handed_one_event_each() -> None:
    seen: list[object] = []

    class Sees(HookProvider):
        def on_before_model_call(self, event: BeforeModelCallEvent) -> None:
            seen.append(event)

        def on_after_model_call(self, event: AfterModelCallEvent) -> None:
            seen.append(event)

    response = ModelResponse(Message.assistant("x"))
    chain = HookChain([Sees(), Sees()])
    assert await chain.before_model_call([], STATE) == []
    assert await chain.after_model_call(response, 1, STATE) == (response, False)
    before, after = seen[0], seen[2]
    assert isinstance(before, BeforeModelCallEvent)
    assert isinstance(after, AfterModelCallEvent)
    assert seen == [before, before, after, after]


def test_a_chain_says_what_nobody_listens_to() -> None:
    class Plain(HookProvider):
        pass

    class Tools(HookProvider):
        def on_after_tool_call(self, event: object) -> None:
            """Look."""

    for hooks, events, tools in (([], False, False), ([Plain()], False, False)):
        chain = HookChain(hooks)
        assert (chain.sees_events, chain.steers_tools) == (events, tools)
    chain = HookChain([Named("a", []), Tools()])
    assert (chain.sees_events, chain.steers_tools) == (True, True)
