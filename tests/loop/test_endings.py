"""What ends a run, what the last event says of it, and in which order it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.loop.support import (
    Calls,
    HookTrouble,
    ModelTrouble,
    Puppet,
    inline,
    plain_id,
    ran,
    records_of,
    script,
)
from tulip_actors import Agent, AgentState, HookProvider, Message, Role, ScriptExhausted, tool
from tulip_actors.core.defaults import SystemClock
from tulip_actors.core.runs import RunEnded
from tulip_actors.core.termination import (
    ConfidenceMet,
    CustomCondition,
    MaxIterations,
    NoToolCalls,
    TextMention,
    TimeLimit,
    TokenLimit,
    ToolCalled,
)
from tulip_actors.testing import FunctionModel, ScriptedModel, tool_call

ADDS: Any = {"calls": [["add", {"a": 1, "b": 2}]], "usage": [10, 2]}
FAILS: Any = [["fails", {"message": "x"}]]


def quota(state: AgentState, **ctx: object) -> tuple[bool, str]:
    return state.iteration == 1, "quota"


def budget(state: AgentState, **ctx: object) -> tuple[bool, str]:
    return state.iteration == 1, "token_budget"


def enough(state: AgentState, **ctx: object) -> bool:
    return state.iteration == 1


MENTIONS: Any = {"text": "I am done", "calls": [["add", {"a": 1, "b": 2}]]}
CONDITIONS: list[tuple[Any, list[Any], tuple[str, str, str]]] = [
    (MaxIterations(1), [ADDS], ("MaxIterations", "MaxIterations(1)", "max_iterations")),
    (TokenLimit(12), [ADDS], ("TokenLimit", "TokenLimit(12)", "token_budget")),
    (TimeLimit(1e-9), [ADDS], ("TimeLimit", "TimeLimit(1e-09)", "time_budget")),
    (ToolCalled("add"), [ADDS], ("ToolCalled", "ToolCalled('add')", "terminal_tool")),
    (ToolCalled("fails"), [FAILS], ("ToolCalled", "ToolCalled('fails')", "terminal_tool")),
    (
        ToolCalled("add", require_success=True) | ToolCalled("fails", require_success=True),
        [FAILS, ADDS],
        ("ToolCalled", "ToolCalled('add', require_success=True)", "terminal_tool"),
    ),
    (ConfidenceMet(0.1), [ADDS], ("ConfidenceMet", "ConfidenceMet(0.1)", "confidence_met")),
    (TextMention("DONE"), [MENTIONS], ("TextMention", "TextMention('DONE')", "complete")),
    (CustomCondition(enough), [ADDS], ("CustomCondition", "CustomCondition(enough)", "complete")),
    (CustomCondition(quota), [ADDS], ("quota", "CustomCondition(quota)", "complete")),
    (
        CustomCondition(budget),
        [ADDS],
        ("token_budget", "CustomCondition(budget)", "token_budget"),
    ),
    (
        (ToolCalled("add") & ConfidenceMet(0.1)) | MaxIterations(9),
        [ADDS],
        ("ToolCalled & ConfidenceMet", "ToolCalled('add') & ConfidenceMet(0.1)", "terminal_tool"),
    ),
    (
        ConfidenceMet(0.1) & ToolCalled("add") & MaxIterations(1),
        [ADDS],
        (
            "ConfidenceMet & ToolCalled & MaxIterations",
            "ConfidenceMet(0.1) & ToolCalled('add') & MaxIterations(1)",
            "confidence_met",
        ),
    ),
    (
        (ToolCalled("fails") & MaxIterations(1)) | TokenLimit(12) | MaxIterations(1),
        [ADDS],
        ("TokenLimit", "TokenLimit(12)", "token_budget"),
    ),
]


@pytest.mark.parametrize(("termination", "turns", "ending"), CONDITIONS, ids=plain_id)
async def test_c6_the_last_event_says_which_condition_fired(
    termination: Any, turns: list[Any], ending: tuple[str, str, str]
) -> None:
    run = await ran(inline(*turns, "never said", termination=termination, reflexion=True), "x")
    assert run.ending == ending
    assert run.ok.success is (ending[2] in {"complete", "terminal_tool", "confidence_met"})
    assert run.end.iterations_used == (0 if "TimeLimit" in ending[0] else len(turns))


async def test_c6_no_tool_calls_ends_an_explicit_run_at_the_next_boundary() -> None:
    agent = inline("an answer", termination=NoToolCalls(), completion_mode="explicit")
    run = await ran(agent, "x")
    assert run.ending == ("NoToolCalls", "NoToolCalls()", "no_tools")
    assert (run.end.final_message, run.ok.success) == ("an answer", False)


CAPS: list[tuple[dict[str, Any], list[Any], tuple[str, str | None, str]]] = [
    ({}, ["hi"], ("complete", None, "complete")),
    ({"max_iterations": 1}, [ADDS], ("MaxIterations", "MaxIterations(1)", "max_iterations")),
    ({"token_budget": 24}, [ADDS], ("TokenLimit", "TokenLimit(24)", "token_budget")),
    ({"time_budget_seconds": 1e-9}, ["hi"], ("TimeLimit", "TimeLimit(1e-09)", "time_budget")),
    ({"tool_loop_threshold": 2}, [ADDS], ("tool_loop", None, "tool_loop")),
    ({"terminal_tools": ["add"]}, [ADDS], ("terminal_tool", None, "terminal_tool")),
]


@pytest.mark.parametrize(("options", "turns", "ending"), CAPS, ids=plain_id)
async def test_c6_the_last_event_says_which_built_in_rule_fired(
    options: dict[str, Any], turns: list[Any], ending: tuple[str, str | None, str]
) -> None:
    run = await ran(inline(*turns, **options), "x")
    reason, condition, stop_reason = ending
    assert (run.end.reason, run.end.stop_reason) == (reason, stop_reason)
    assert condition is None or run.end.condition == condition


class CancelsItself(HookProvider):
    """Asks for the end of the run in its first turn, which finishes all the same."""

    agent: Agent

    async def on_iteration_start(self, iteration: int, state: AgentState) -> None:
        await self.agent.acancel(run_id="no such run")
        await self.agent.acancel(run_id=state.run_id)
        await asyncio.sleep(0)


async def test_c6_a_cancelled_run_says_so_at_the_next_boundary_and_is_no_failure() -> None:
    hook = CancelsItself()
    hook.agent = inline(ADDS, "never said", hooks=[hook])
    run = await ran(hook.agent, "x")
    assert (run.end.reason, run.end.stop_reason) == ("cancelled", "cancelled")
    assert (run.end.iterations_used, run.end.total_tool_calls) == (1, 1)
    assert not run.ok.success


async def test_c6_a_model_that_raises_ends_the_run_with_error_and_is_raised() -> None:
    run = await ran(inline(ADDS, ModelTrouble("overloaded")), "x")
    assert (run.end.reason, run.end.stop_reason) == ("error", "error")
    assert isinstance(run.failure, ModelTrouble)
    assert (run.end.iterations_used, run.end.total_tool_calls) == (1, 1)


async def test_c7_a_condition_that_raises_ends_the_run_with_error() -> None:
    def raises(state: AgentState, **ctx: object) -> bool:
        raise LookupError("no such thing")

    run = await ran(inline("hi", termination=CustomCondition(raises)), "x")
    assert run.end.reason == "error"
    assert isinstance(run.failure, LookupError)


async def test_c7_a_reason_that_is_no_text_ends_the_run_whole(thread: str) -> None:
    termination = CustomCondition(lambda state, **ctx: (True, 3))  # type: ignore[arg-type]
    run = await ran(inline("hi", termination=termination), "x", thread_id=thread)
    last = (await records_of(thread))[-1]
    assert isinstance(last, RunEnded)
    assert (last.reason, last.stop_reason) == (run.end.reason, run.end.stop_reason)


async def test_c6_endings_are_told_the_same_on_both_runtimes(agent: Agent) -> None:
    run = await ran(agent, script([["add", {"a": 1, "b": 2}]], "three"))
    assert (run.end.reason, run.end.stop_reason, run.ok.message) == (
        "complete",
        "complete",
        "three",
    )
    run = await ran(agent, script([["add", {"a": 1, "b": 2}]]))
    assert (run.end.reason, run.end.stop_reason) == ("tool_loop", "tool_loop")
    run = await ran(agent, script({"raise": "overloaded"}))
    assert (run.end.reason, str(run.failure)) == ("error", "overloaded")


# C10: the caps beside `termination`


async def requests_of(agent: Agent) -> list[Any]:
    return list(await agent.model_trace())


@pytest.mark.parametrize(
    ("options", "summed_up"),
    [
        ({"max_iterations": 2}, True),
        ({"max_iterations": 2, "termination": MaxIterations(50)}, True),
        ({"max_iterations": 2, "token_budget": 1000}, True),
        ({"termination": MaxIterations(2)}, False),
        ({"max_iterations": 2, "termination": MaxIterations(2)}, False),
        ({"token_budget": 24}, False),
        ({"max_iterations": 5, "termination": TokenLimit(24)}, False),
        ({"tool_loop_threshold": 2}, False),
    ],
    ids=plain_id,
)
async def test_c10_only_the_built_in_cap_on_turns_asks_for_a_summary(
    options: dict[str, Any], summed_up: bool
) -> None:
    agent = inline(ADDS, ADDS, {"text": "what I know", "usage": [3, 1]}, **options)
    run = await ran(agent, "x")
    assert run.end.iterations_used == 2
    assert len(run.thinks) == 2
    requests = await requests_of(agent)
    assert [bool(request.tools) for request in requests] == [True, True] + [False] * summed_up
    assert run.end.final_message == ("what I know" if summed_up else None)
    assert run.end.usage == {
        "prompt_tokens": 20 + 3 * summed_up,
        "completion_tokens": 4 + summed_up,
        "total_tokens": 24 + 4 * summed_up,
    }


async def test_c10_the_summary_is_the_last_message_and_what_asked_for_it_is_kept_too() -> None:
    run = await ran(inline(ADDS, "what I know", max_iterations=1), "x")
    asked, answer = run.ok.messages[-2:]
    assert asked.role is Role.USER
    assert answer == Message.assistant("what I know")


async def test_c10_hooks_do_not_see_the_summary_as_a_turn() -> None:
    hook = Calls()
    await ran(inline(ADDS, "what I know", max_iterations=1, hooks=[hook]), "x")
    assert [name for _, name in hook.log].count("on_iteration_start") == 1


async def test_c10_a_model_that_fails_to_sum_up_ends_the_run_with_error() -> None:
    run = await ran(inline(ADDS, ModelTrouble("overloaded"), max_iterations=1), "x")
    assert run.end.reason == "error"
    assert isinstance(run.failure, ModelTrouble)


async def test_the_token_budget_counts_what_was_asked_again_too() -> None:
    empty: Any = {"text": "", "usage": [10, 0]}
    answer: Any = {"calls": [["add", {"a": 1, "b": 2}]], "usage": [10, 0]}
    run = await ran(inline(empty, answer, "never said", token_budget=20), "x")
    assert run.ending == ("TokenLimit", "TokenLimit(20)", "token_budget")


async def test_the_token_budget_cannot_end_a_run_whose_model_reports_no_usage() -> None:
    run = await ran(inline([["add", {"a": 1, "b": 2}]], "three", token_budget=1), "x")
    assert (run.end.reason, run.end.usage) == ("complete", None)


async def test_the_time_budget_is_wall_clock_time_read_at_the_boundary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda self: now[0])

    def takes_five_seconds(messages: Sequence[Message], tools: object) -> Message:
        now[0] += 5
        return tool_call("add", a=1, b=2)

    agent = inline(model=FunctionModel(takes_five_seconds), time_budget_seconds=7.5)
    run = await ran(agent, "x")
    assert run.ending == ("TimeLimit", "TimeLimit(7.5)", "time_budget")
    assert run.end.iterations_used == 2
    assert run.ok.metrics.duration_ms == 10_000


async def test_a_time_limit_beside_the_caps_reads_the_same_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda self: now[0])

    @tool
    async def takes_a_minute() -> str:
        """Let a minute pass."""
        now[0] += 60
        return "done"

    agent = inline([["takes_a_minute", {}]], tools=[takes_a_minute], termination=TimeLimit(90))
    assert (await ran(agent, "x")).end.iterations_used == 2


# C15: the order at the top of a turn


class Cancels(HookProvider):
    """Asks for the end in the third turn."""

    agent: Agent

    def on_iteration_start(self, iteration: int, state: AgentState) -> None:
        if iteration == 2:
            self.agent.cancel()


LADDER = ["cancelled", "mine", "MaxIterations", "TokenLimit", "tool_loop"]


@pytest.mark.parametrize("first", range(len(LADDER)), ids=lambda n: LADDER[n])
async def test_c15_of_all_that_is_due_the_first_in_order_ends_the_run(first: int) -> None:
    """After turn 3 everything from the `first` rung on is due at once."""
    due = LADDER[first:]
    cancels = Cancels()
    options: dict[str, Any] = {"max_iterations": 3 if "MaxIterations" in due else 9}
    if "mine" in due:
        options["termination"] = CustomCondition(
            lambda state, **ctx: (state.iteration == 3, "mine")
        )
    if "TokenLimit" in due:
        options["token_budget"] = 36
    if "cancelled" in due:
        options["hooks"] = [cancels]
    agent = cancels.agent = inline(ADDS, **options)
    assert (await ran(agent, "x")).end.reason == due[0]


async def test_c15_a_turn_that_does_not_begin_is_not_announced_to_the_hooks() -> None:
    hook = Calls()
    await ran(inline(ADDS, termination=MaxIterations(1), hooks=[hook]), "x")
    names = [name for _, name in hook.log]
    assert names.count("on_iteration_start") == names.count("on_iteration_end") == 1
    hook.log.clear()
    await ran(inline(ADDS, termination=ConfidenceMet(0), hooks=[hook]), "x")
    assert [name for _, name in hook.log] == ["on_before_invocation", "on_after_invocation"]


async def test_the_page_a_condition_met_in_a_turn_ends_the_run_only_at_the_next_boundary() -> None:
    agent = inline(ADDS, "never asked for", termination=ToolCalled("add"))
    run = await ran(agent, "x")
    assert len(await requests_of(agent)) == 1
    assert run.end.iterations_used == 1


async def test_the_page_an_answer_ends_the_run_before_a_condition_can() -> None:
    run = await ran(inline("DONE", termination=TextMention("done") | NoToolCalls()), "x")
    assert run.end.reason == "complete"


async def test_c15_after_invocation_is_told_before_the_last_event(agent: Agent) -> None:
    run = await ran(agent, script("hi"))
    assert getattr(run.events[-2], "node_id", None) == "on_after_invocation"


async def test_a_script_that_ran_out_ends_the_run_with_an_error_that_says_so() -> None:
    agent = inline(model=ScriptedModel([tool_call("add", a=1, b=2)]))
    run = await ran(agent, "x")
    assert run.end.reason == "error"
    assert isinstance(run.failure, ScriptExhausted)


# cancelling, three ways, and what the state holds then


async def test_a_hook_that_raises_lets_the_node_finish_first() -> None:
    puppet = Puppet()
    agent = inline(ADDS, hooks=[puppet])
    run = await ran(agent, "x", metadata={"puppet": {"on_iteration_end": ["raise"]}})
    assert isinstance(run.failure, HookTrouble)
    assert [one.result for one in run.completes] == ["3"]
    assert run.end.total_tool_calls == 1


async def test_cancel_is_not_sticky(agent: Agent) -> None:
    agent.cancel()
    await agent.acancel()
    assert (await ran(agent, script("hi"))).end.reason == "complete"


async def test_cancel_by_thread_touches_that_thread_alone() -> None:
    class CancelsOne(HookProvider):
        agent: Agent

        def on_iteration_end(self, iteration: int, state: AgentState) -> None:
            self.agent.cancel(thread_id="nobody's")

    hook = CancelsOne()
    hook.agent = inline(ADDS, "three", hooks=[hook])
    assert (await ran(hook.agent, "x", thread_id="mine")).end.reason == "complete"


async def test_c29_the_final_state_of_a_run_that_failed_says_what_happened() -> None:
    class Last(HookProvider):
        told: tuple[AgentState, bool] | None = None

        def on_after_invocation(self, state: AgentState, success: bool) -> None:
            self.told = state, success

    last = Last()
    await ran(inline(ADDS, ModelTrouble("overloaded"), hooks=[last]), "x")
    assert last.told is not None
    state, success = last.told
    assert not success
    assert [message.role for message in state.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL]
