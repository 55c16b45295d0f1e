"""When a run is done: empty answers (C9), completion and terminal tools (C13), loops (C14)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.loop.support import (
    Calls,
    ModelTrouble,
    Puppet,
    Run,
    inline,
    marks,
    plain_id,
    ran,
    script,
    texts,
)
from tulip_actors import Agent, Message, Role, ToolCall, tool

EMPTY: Any = {"text": "", "usage": [5, 0]}
HI: Any = {"text": "hi", "usage": [7, 1]}
ADDS: Any = {"calls": [["add", {"a": 1, "b": 2}]], "usage": [10, 2]}


def done(summary: str = "all done") -> Any:
    return [["task_complete", {"summary": summary}]]


def veto(reason: object = True) -> dict[str, Any]:
    """Metadata with which the puppet forbids the run's first call."""
    return {"puppet": {"on_before_tool_call": [{"cancel": reason}]}}


# C9


async def test_c9_an_empty_answer_is_asked_for_again_once(agent: Agent) -> None:
    run = await ran(agent, script(EMPTY, HI))
    assert run.ok.message == "hi"
    assert (run.end.iterations_used, len(run.thinks)) == (1, 1)
    assert run.ok.metrics.total_tokens == 13, "the empty answer was paid for too"


async def test_c9_it_is_asked_for_with_the_tools_and_the_same_messages() -> None:
    agent = inline(EMPTY, HI)
    await ran(agent, "x")
    first, second = await agent.model_trace()
    assert first == second
    assert first.tools  # type: ignore[attr-defined]


async def test_c9_the_empty_answer_is_not_in_the_conversation() -> None:
    run = await ran(inline(EMPTY, HI), "x")
    assert texts(run.ok.messages, Role.ASSISTANT) == ["hi"]


async def test_c9_a_second_empty_answer_ends_the_run() -> None:
    agent = inline(EMPTY, EMPTY, HI)
    run = await ran(agent, "x")
    assert len(await agent.model_trace()) == 2
    assert (run.end.reason, run.end.final_message, run.ok.message) == ("complete", None, "")
    assert run.ok.metrics.prompt_tokens == 10


async def test_c9_reasoning_alone_is_no_answer() -> None:
    run = await ran(inline({"reasoning": "hm"}, HI), "x")
    assert run.ok.message == "hi"
    assert [think.reasoning for think in run.thinks] == ["hi"]


async def test_c9_calls_without_text_are_an_answer() -> None:
    agent = inline(ADDS, HI)
    await ran(agent, "x")
    assert len(await agent.model_trace()) == 2


async def test_c9_each_turn_may_ask_again_and_the_script_goes_on_at_the_right_place() -> None:
    run = await ran(inline(EMPTY, ADDS, EMPTY, HI), "x")
    assert (run.ok.message, run.end.iterations_used) == ("hi", 2)
    assert run.ok.metrics.prompt_tokens == 5 + 10 + 5 + 7


async def test_c9_it_holds_for_streamed_answers_too(agent: Agent) -> None:
    run = await ran(agent, script(EMPTY, HI), stream_tokens=True)
    assert (run.ok.message, run.ok.metrics.total_tokens) == ("hi", 13)
    assert sum(getattr(event, "done", False) for event in run.events) == 2


async def test_c9_what_was_paid_is_counted_when_the_second_answer_fails() -> None:
    run = await ran(inline(EMPTY, ModelTrouble("overloaded")), "x")
    assert run.end.reason == "error"
    assert run.end.usage == {"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5}


# C13


async def test_c13_task_complete_is_offered_in_explicit_mode_alone() -> None:
    for mode, offered in (("auto", False), ("explicit", True)):
        agent = inline(done() if offered else "hi", completion_mode=mode)
        await ran(agent, "x")
        request: Any = (await agent.model_trace())[0]
        assert ("task_complete" in [spec.name for spec in request.tools]) is offered


async def test_c13_in_explicit_mode_text_does_not_end_the_run() -> None:
    run = await ran(inline("thinking", "still", done(), completion_mode="explicit"), "x")
    assert (run.end.reason, run.end.stop_reason) == ("complete", "complete")
    assert (run.ok.message, run.end.iterations_used) == ("all done", 3)
    assert [think.reasoning for think in run.thinks] == ["thinking", "still", None]


async def test_c13_the_summary_is_the_final_message_and_closes_the_conversation() -> None:
    run = await ran(inline("a draft", done("the answer"), completion_mode="explicit"), "x")
    assert run.end.final_message == "the answer"
    assert run.ok.messages[-1] == Message.assistant("the answer")


async def test_c13_in_explicit_mode_the_cap_holds() -> None:
    agent = inline("thinking", completion_mode="explicit", max_iterations=3)
    run = await ran(agent, "x")
    assert (run.end.stop_reason, run.end.iterations_used) == ("max_iterations", 3)


@pytest.mark.parametrize("arguments", [{}, {"summary": 3}, {"answer": "x"}], ids=plain_id)
async def test_c13_a_task_complete_that_is_not_valid_does_not_end_the_run(arguments: Any) -> None:
    turns = ([["task_complete", arguments]], done())
    run = await ran(inline(*turns, completion_mode="explicit"), "x")
    assert (run.end.iterations_used, run.ok.message) == (2, "all done")


async def test_c13_a_task_complete_that_a_hook_forbade_does_not_end_the_run() -> None:
    agent = inline(done("too early"), done(), completion_mode="explicit", hooks=[Puppet()])
    run = await ran(agent, "x", metadata=veto("check again"))
    assert (run.end.iterations_used, run.ok.message) == (2, "all done")


async def test_c13_calls_beside_task_complete_are_made() -> None:
    turn = [["add", {"a": 1, "b": 2}], *done()]
    run = await ran(inline(turn, completion_mode="explicit"), "x")
    assert [one.result for one in run.ok.tool_executions] == ["3", "all done"]
    assert (run.end.reason, run.end.iterations_used) == ("complete", 1)


def finishes(answer: str) -> Any:
    return [["finish_up", {"answer": answer}]]


async def test_c13_a_terminal_tool_that_succeeded_ends_the_run() -> None:
    run = await ran(inline(finishes("x"), "never said", terminal_tools=["finish_up"]), "x")
    assert (run.end.reason, run.end.stop_reason) == ("terminal_tool", "terminal_tool")
    assert (run.end.iterations_used, run.end.total_tool_calls, run.ok.success) == (1, 1, True)


async def test_c13_a_terminal_tool_that_failed_does_not_end_the_run() -> None:
    run = await ran(inline(finishes(""), finishes("x"), terminal_tools=["finish_up"]), "x")
    assert run.end.iterations_used == 2
    assert [one.success for one in run.ok.tool_executions] == [False, True]


async def test_c13_a_terminal_tool_that_was_forbidden_does_not_end_the_run() -> None:
    agent = inline(finishes("x"), "went on", terminal_tools=["finish_up"], hooks=[Puppet()])
    run = await ran(agent, "x", metadata=veto())
    assert (run.end.reason, run.ok.message) == ("complete", "went on")


async def test_c13_a_terminal_tool_called_with_invalid_arguments_does_not_end_the_run() -> None:
    agent = inline([["finish_up", {}]], "went on", terminal_tools=["finish_up"])
    assert (await ran(agent, "x")).ok.message == "went on"


async def test_c13_siblings_of_a_terminal_tool_run_to_their_end(path: str) -> None:
    turn = [*finishes("x"), ["last", {"path": path}], ["fails", {"message": "x"}]]
    run = await ran(inline(turn, terminal_tools=["finish_up"]), "x")
    assert (run.end.stop_reason, marks(path)) == ("terminal_tool", 1)
    assert [one.success for one in run.ok.tool_executions] == [True, True, False]


async def test_c13_a_terminal_tool_served_from_an_earlier_call_ends_the_run(path: str) -> None:
    refunds: Any = [["refund", {"path": path}]]
    for expected in (False, True):
        run = await ran(
            inline(refunds, terminal_tools=["refund"]), "x", thread_id=f"terminal {path}"
        )
        assert run.end.stop_reason == "terminal_tool"
        assert run.ok.tool_executions[-1].idempotent_cache_hit is expected


async def test_c13_the_turn_of_a_terminal_tool_is_a_whole_turn() -> None:
    hook = Calls()
    agent = inline(finishes("x"), terminal_tools=["finish_up"], hooks=[hook], reflexion=True)
    run = await ran(agent, "x")
    assert ("", "on_iteration_end") in hook.log
    assert len(run.reflections) == 1


# C14


def turns_of(path: str) -> dict[str, list[Any]]:
    """Scripts by what repeats in them."""
    one, two = [["say", {"text": "1"}]], [["say", {"text": "2"}]]
    return {
        "the same call": [one, one, one],
        "the same calls": [one + two] * 3,
        "the same failing call": [[["fails", {"message": "x"}]]] * 3,
        "keys in another order": [
            [["add", {"a": 1, "b": 2}]],
            [["add", {"b": 2, "a": 1}]],
            [["add", {"a": 1, "b": 2}]],
        ],
        "from the second turn on": [two, one, one, one],
        "two of three": [one, one, "done"],
        "other arguments": [one, two, [["say", {"text": "3"}]], "done"],
        "a break between": [one, one, two, one, one, "done"],
        "calls in another order": [one + two, two + one, one + two, "done"],
        "one more call each time": [one, one + one, one + one + one, "done"],
        "by turns": [one, two, one, two, one, "done"],
        "changing results": [[["count", {"path": path}]]] * 3 + ["done"],
    }


REPEATS = {
    "the same call",
    "the same calls",
    "the same failing call",
    "keys in another order",
    "from the second turn on",
    "changing results",
}


@pytest.mark.parametrize("compare", ["calls", "calls+results"])
@pytest.mark.parametrize("name", list(turns_of("")))
async def test_c14_the_same_calls_in_three_turns_are_a_loop(
    name: str, compare: str, path: str
) -> None:
    looped = name in REPEATS and not (name == "changing results" and compare != "calls")
    run = await ran(inline(*turns_of(path)[name], "done", tool_loop_compare=compare), "x")
    assert run.end.reason == run.end.stop_reason == ("tool_loop" if looped else "complete")
    assert run.ok.success is not looped


@pytest.mark.parametrize("threshold", [2, 4])
async def test_c14_the_threshold_is_the_number_of_turns(threshold: int) -> None:
    run = await ran(inline(ADDS, tool_loop_threshold=threshold), "x")
    assert (run.end.stop_reason, run.end.iterations_used) == ("tool_loop", threshold)


async def test_c14_only_auto_mode_ends_with_tool_loop() -> None:
    run = await ran(inline(ADDS, ADDS, ADDS, ADDS, done(), completion_mode="explicit"), "x")
    assert (run.end.reason, run.end.iterations_used) == ("complete", 5)


async def test_c14_reflexion_has_no_say_in_it() -> None:
    ends = [await ran(inline(ADDS, reflexion=on), "x") for on in (False, True)]
    assert [run.end.stop_reason for run in ends] == ["tool_loop"] * 2
    assert [run.end.iterations_used for run in ends] == [3, 3]


async def test_c14_served_duplicates_are_a_loop_too(path: str) -> None:
    run = await ran(inline([["refund", {"path": path}]]), "x")
    assert (run.end.stop_reason, marks(path)) == ("tool_loop", 1)


async def test_c14_a_polling_tool_goes_on_until_its_results_stay_the_same() -> None:
    answers = iter(["queued", "queued", "running", "done", "done", "done"])

    @tool
    async def poll() -> str:
        """How far it is."""
        return next(answers)

    agent = inline([["poll", {}]], tools=[poll], tool_loop_compare="calls+results")
    run = await ran(agent, "x")
    assert (run.end.stop_reason, run.end.iterations_used) == ("tool_loop", 6)


async def test_c14_arguments_that_are_no_json_are_compared_as_they_are() -> None:
    def malformed(*texts: str) -> list[Message]:
        return [Message.assistant("", (ToolCall("c", "add", malformed=one),)) for one in texts]

    run = await ran(inline(*malformed('{"a": 1', '{"a": 2', '{"a": 3'), "done"), "x")
    assert run.end.reason == "complete"
    run = await ran(inline(*malformed('{"a": 1', '{"a": 1', '{"a": 1'), "done"), "x")
    assert run.end.reason == "tool_loop"


async def test_c14_a_loop_ends_the_run_without_a_summary() -> None:
    agent = inline(ADDS)
    run: Run = await ran(agent, "x")
    assert len(await agent.model_trace()) == 3
    assert run.end.final_message is None
