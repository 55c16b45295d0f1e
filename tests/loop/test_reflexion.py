"""Reflect in its place in the loop: when it runs, what it emits, who reads its guidance."""

from __future__ import annotations

from typing import Any

import pytest

from tests.loop.support import Puppet, Run, inline, ran
from tulip_actors import Agent, ReflexionConfig, Role
from tulip_actors.core.termination import ConfidenceMet

ADDS: Any = [["add", {"a": 1, "b": 2}]]
SAYS: Any = [["say", {"text": "x"}]]


def fails(message: str) -> Any:
    return [["fails", {"message": message}]]


def by_turns(turns: int) -> list[Any]:
    """Turns whose tools alternate, so that nothing looks like a loop."""
    return [ADDS if n % 2 else SAYS for n in range(turns)]


def guidance(messages: Any) -> list[str]:
    return [one.content for one in messages if one.role is Role.SYSTEM]


async def shown(agent: Agent) -> list[list[str]]:
    """The system messages of each request to the model."""
    return [guidance(request.messages) for request in await agent.model_trace()]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("every", "reflected"), [(1, [0, 1, 2, 3, 4]), (2, [1, 3]), (3, [2]), (5, [4]), (6, [])]
)
async def test_c5_every_nth_turn_is_reflected_on_counted_from_1(
    every: int, reflected: list[int]
) -> None:
    config = ReflexionConfig(evaluate_every_n_iterations=every)
    run = await ran(inline(*by_turns(5), "done", reflexion=config), "x")
    assert [one.iteration for one in run.reflections] == reflected
    assert run.ok.metrics.reflexion_evaluations == len(reflected)


@pytest.mark.parametrize("off", [False, None])
async def test_reflexion_is_off_by_default_and_when_told_so(off: Any) -> None:
    for agent in (inline(ADDS, "done"), inline(ADDS, "done", reflexion=off)):
        run = await ran(agent, "x")
        assert (run.reflections, run.end.final_confidence) == ([], 0.0)


async def test_a_turn_without_calls_is_not_reflected_on() -> None:
    done: Any = [["task_complete", {"summary": "x"}]]
    agent = inline("thinking", ADDS, "thinking", done, completion_mode="explicit", reflexion=True)
    assert [one.iteration for one in (await ran(agent, "x")).reflections] == [1, 3]


async def test_failed_calls_do_not_trigger_a_reflection_that_is_not_due() -> None:
    config = ReflexionConfig(evaluate_every_n_iterations=3)
    run = await ran(inline(fails("a"), fails("b"), "done", reflexion=config), "x")
    assert run.reflections == []


async def test_c23_the_confidence_of_a_run_worked_by_hand() -> None:
    turns = [ADDS, [*ADDS, *SAYS], fails("x"), [*SAYS, *fails("y")], ADDS]
    run = await ran(inline(*turns, "done", reflexion=True), "x")
    # 0 + .15;  .15 + .3 * .85;  .405 - .2;  .205 - .05;  .155 + .15 * .845
    assert [one.new_confidence for one in run.reflections] == pytest.approx(
        [0.15, 0.405, 0.205, 0.155, 0.28175]
    )
    assert [one.confidence_delta for one in run.reflections] == pytest.approx(
        [0.15, 0.255, -0.2, -0.05, 0.12675]
    )
    assert run.end.final_confidence == run.ok.confidence == run.reflections[-1].new_confidence
    assert list(run.ok.state.confidence_history) == [one.new_confidence for one in run.reflections]


async def test_c23_diminishing_returns_can_be_switched_off() -> None:
    config = ReflexionConfig(diminishing_returns=False)
    run = await ran(inline(*by_turns(4), "done", reflexion=config), "x")
    assert [one.new_confidence for one in run.reflections] == pytest.approx([0.15, 0.3, 0.45, 0.6])


async def test_c23_confidence_alone_ends_no_run() -> None:
    config = ReflexionConfig(diminishing_returns=False)
    run = await ran(inline(*by_turns(9), "done", reflexion=config), "x")
    assert run.end.final_confidence == 1.0
    assert run.end.reason == "complete"
    agent = inline(*by_turns(9), "done", reflexion=config, termination=ConfidenceMet(0.45))
    run = await ran(agent, "x")
    assert (run.end.stop_reason, run.end.iterations_used) == ("confidence_met", 3)


async def test_c24_a_loop_is_detected_at_the_agents_own_threshold() -> None:
    turns = [[["say", {"text": str(n)}]] for n in range(4)]
    run = await ran(inline(*turns, "done", reflexion=True, tool_loop_threshold=4), "x")
    assert [one.assessment for one in run.reflections] == ["on_track"] * 3 + ["loop_detected"]
    assert "say" in str(run.reflections[-1].guidance)
    assert run.end.reason == "complete", "other arguments: no tool loop"


async def test_c24_a_long_result_is_a_new_finding() -> None:
    run = await ran(inline([["say", {"text": "x" * 101}]], "done", reflexion=True), "x")
    assert run.reflections[0].assessment == "new_findings"


# guidance


async def test_guidance_reaches_the_next_think() -> None:
    agent = inline(fails("out of paper"), "done", reflexion=True)
    run = await ran(agent, "x")
    (told,) = guidance(run.ok.messages)
    assert told == run.reflections[0].guidance
    assert "out of paper" in told
    assert await shown(agent) == [[], [told]]


async def test_guidance_is_a_system_message_after_the_results() -> None:
    run = await ran(inline(fails("x"), "done", reflexion=True), "x")
    assert [message.role for message in run.ok.messages] == [
        *(Role.USER, Role.ASSISTANT, Role.TOOL, Role.SYSTEM, Role.ASSISTANT)
    ]


async def test_c24_all_notes_stay_in_the_state_and_only_the_latest_is_sent() -> None:
    agent = inline(fails("1"), [*fails("2"), *SAYS, *fails("3")], ADDS, "done", reflexion=True)
    run = await ran(agent, "x")
    first, second = guidance(run.ok.messages)
    assert "1" in first
    assert "3" in second
    assert await shown(agent) == [[], [first], [second], [second]]


async def test_c24_the_summary_at_the_cap_is_asked_for_with_the_latest_note_alone() -> None:
    agent = inline(fails("1"), fails("2"), "so far", reflexion=True, max_iterations=2)
    run = await ran(agent, "x")
    first, second = guidance(run.ok.messages)
    assert await shown(agent) == [[], [first], [second]]


async def test_c24_the_agents_own_prompt_is_sent_beside_the_latest_note() -> None:
    agent = inline(fails("1"), fails("2"), "done", reflexion=True, system_prompt="Be brief.")
    run = await ran(agent, "x")
    prompt, first, second = guidance(run.ok.messages)
    assert prompt == "Be brief."
    assert await shown(agent) == [[prompt], [prompt, first], [prompt, second]]


async def test_c24_notes_of_earlier_runs_are_not_sent_once_there_is_a_newer_one(
    thread: str,
) -> None:
    await ran(inline(fails("1"), "done", reflexion=True), "x", thread_id=thread)
    agent = inline(fails("2"), "done", reflexion=True)
    run = await ran(agent, "y", thread_id=thread)
    first, second = guidance(run.ok.messages)
    assert (await shown(agent))[-1] == [second]
    assert "1" in first


async def test_without_include_guidance_the_event_has_it_and_the_model_does_not() -> None:
    agent = inline(fails("x"), "done", reflexion=ReflexionConfig(include_guidance=False))
    run = await ran(agent, "x")
    assert run.reflections[0].guidance
    assert guidance(run.ok.messages) == []
    assert await shown(agent) == [[], []]
    assert run.ok.state.confidence_history == (0.0,)


async def test_a_turn_that_went_well_leaves_no_note() -> None:
    run = await ran(inline(ADDS, "done", reflexion=True), "x")
    assert guidance(run.ok.messages) == []
    assert run.reflections[0].guidance is None


async def test_hooks_see_the_messages_without_the_old_notes() -> None:
    class Counts(Puppet):
        """Nothing but the puppet's telling."""

    agent = inline(fails("1"), fails("2"), "done", reflexion=True, hooks=[Counts()])
    run: Run = await ran(agent, "x")
    told = [
        getattr(event, "label", "")
        for event in run.events
        if getattr(event, "node_id", "") == "on_before_model_call"
    ]
    assert [one.count("system") for one in told] == [0, 1, 1]


async def test_a_system_message_of_a_hook_is_not_taken_for_a_note() -> None:
    agent = inline(fails("1"), fails("2"), "done", reflexion=True, hooks=[Puppet()])
    run = await ran(agent, "x", metadata={"note": "Be kind."})
    assert "Be kind." in (await shown(agent))[-1]
    assert len(guidance(run.ok.messages)) == 3


async def test_a_model_is_never_asked_to_reflect() -> None:
    agent = inline(ADDS, fails("x"), "done", reflexion=True)
    await ran(agent, "x")
    assert len(await agent.model_trace()) == 3


async def test_c23_reflexion_reads_the_results_as_the_hooks_left_them() -> None:
    plan = {"puppet": {"on_after_tool_call": [{"result": "never mind"}]}}
    agent = inline(fails("x"), "done", reflexion=True, hooks=[Puppet()])
    run = await ran(agent, "x", metadata=plan)
    assert run.reflections[0].new_confidence == 0.15
