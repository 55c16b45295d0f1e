"""Grounding's place in the loop: when an answer is judged, sent back, and given up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.loop.interrupting import asking
from tests.loop.support import TOOLS, inline, ran
from tulip_actors import (
    Agent,
    ConfigError,
    GroundingConfig,
    GroundingEvent,
    Role,
    TerminateEvent,
    ToolExecution,
)
from tulip_actors.core.grounding import ClaimEvaluation, GroundingResult
from tulip_actors.testing import ScriptedModel, text, tool_call

ADDS: Any = [["add", {"a": 1, "b": 1}]]


class Judge:
    """Supports the claim "two" alone; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str | None]]] = []

    async def evaluate(self, answer: str, evidence: Sequence[ToolExecution]) -> GroundingResult:
        self.asked.append((answer, [one.result for one in evidence]))
        return GroundingResult((ClaimEvaluation(answer, 1.0 if answer == "two" else 0.2),))


def judged(judge: Judge, *turns: Any, **options: Any) -> Agent:
    config = GroundingConfig(evaluator=judge, **options)
    return inline(*turns, grounding=config)


async def test_an_answer_that_the_results_support_ends_the_run() -> None:
    judge = Judge()
    run = await ran(judged(judge, ADDS, "two"), "x")
    assert run.ending == ("complete", None, "complete")
    assert judge.asked == [("two", ["2"])]
    (event,) = run.of(GroundingEvent)
    assert (event.score, event.claims_evaluated, event.requires_replan) == (1.0, 1, False)
    assert isinstance(run.events[-1], TerminateEvent)
    assert run.ok.grounding_score == 1.0
    assert run.ok.ungrounded_claims == ()
    assert run.ok.metrics.grounding_evaluations == 1


async def test_an_answer_that_fails_is_sent_back_with_what_was_missed() -> None:
    run = await ran(judged(Judge(), ADDS, "three", "two"), "x")
    assert run.ending == ("complete", None, "complete")
    assert run.ok.iterations == 3
    first, second = run.of(GroundingEvent)
    assert (first.ungrounded_claims, first.requires_replan) == (("three",), True)
    assert not second.requires_replan
    (note,) = [message for message in run.ok.messages if message.role is Role.SYSTEM]
    assert "not supported" in note.content
    assert "- three" in note.content


@pytest.mark.parametrize("max_replans", [0, 1, 2])
async def test_after_max_replans_the_answer_is_returned_as_grounding_failed(
    max_replans: int,
) -> None:
    run = await ran(judged(Judge(), ADDS, "three", max_replans=max_replans), "x")
    assert run.ending == ("grounding_failed", None, "grounding_failed")
    assert not run.ok.success
    assert run.ok.text == "three"
    assert run.ok.grounding_score == 0.2
    assert run.ok.ungrounded_claims == ("three",)
    assert run.ok.metrics.grounding_evaluations == max_replans + 1


async def test_the_threshold_is_the_configs() -> None:
    run = await ran(judged(Judge(), ADDS, "three", threshold=0.1), "x")
    assert run.end.stop_reason == "complete"


async def test_a_run_that_called_no_tools_is_not_judged() -> None:
    judge = Judge()
    run = await ran(judged(judge, "three"), "x")
    assert run.end.stop_reason == "complete"
    assert judge.asked == []
    assert run.ok.grounding_score is None


async def test_c4_the_part_that_resume_continues_is_not_judged(path: str) -> None:
    judge = Judge()
    model = ScriptedModel([tool_call("asking", path=path), text("three")])
    agent = inline(model=model, tools=[*TOOLS, asking], grounding=GroundingConfig(evaluator=judge))
    paused = await agent.arun("x")
    assert paused.stop_reason == "interrupted"
    assert (await agent.aresume("yes")).stop_reason == "complete"
    assert judge.asked == []


async def test_what_else_ends_a_run_is_not_judged() -> None:
    judge = Judge()
    config = GroundingConfig(evaluator=judge)
    done: Any = [["task_complete", {"summary": "three"}]]
    agent = inline(ADDS, done, grounding=config, completion_mode="explicit")
    assert (await ran(agent, "x")).end.stop_reason == "complete"
    capped = inline(ADDS, grounding=config, max_iterations=1)
    assert (await ran(capped, "x")).end.stop_reason == "max_iterations"
    assert judge.asked == []


async def test_the_evidence_is_what_this_runs_calls_gave(thread: str) -> None:
    judge = Judge()
    await ran(inline(ADDS, "two"), "x", thread_id=thread)
    turn: Any = [["say", {"text": "mine"}], ["fails", {"message": "no"}]]
    await ran(judged(judge, turn, "two"), "x", thread_id=thread)
    assert judge.asked == [("two", ["mine"])]


@pytest.mark.parametrize("grounding", [True, "judge", {"threshold": 1}])
def test_what_is_no_grounding_config_is_refused_by_name(grounding: Any) -> None:
    with pytest.raises(ConfigError, match="grounding: give GroundingConfig"):
        inline("x", grounding=grounding)


def test_a_support_that_rounding_made_too_large_is_1() -> None:
    assert ClaimEvaluation("a claim", 1.0000000001).support == 1.0


@pytest.mark.parametrize("support", [float("nan"), float("inf"), -0.1, 1.1, "1", None])
def test_a_claim_is_supported_by_0_to_1(support: Any) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        ClaimEvaluation("a claim", support)


async def test_a_judge_that_returns_something_else_is_named() -> None:
    class Odd:
        async def evaluate(self, answer: str, evidence: Sequence[ToolExecution]) -> Any:
            return 0.9

    run = await ran(inline(ADDS, "two", grounding=GroundingConfig(evaluator=Odd())), "x")
    assert isinstance(run.failure, TypeError)
    assert "Odd.evaluate returned float" in str(run.failure)
    assert run.end.final_message == "two"


class NotAsync:
    def evaluate(self, answer: str, evidence: Sequence[ToolExecution]) -> GroundingResult:
        return GroundingResult()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"evaluator": 5}, "GroundingConfig: evaluator: .*async evaluate"),
        ({"evaluator": Judge}, "GroundingConfig: evaluator: .*async evaluate"),
        ({"evaluator": NotAsync()}, "GroundingConfig: evaluator: .*async evaluate"),
        ({"evaluator": Judge(), "threshold": 3}, "GroundingConfig: threshold: .*not 3"),
        ({"evaluator": Judge(), "foo": 1}, "GroundingConfig: foo: "),
        ({}, "GroundingConfig: evaluator: "),
    ],
)
def test_a_bad_grounding_config_is_refused_by_name(options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        GroundingConfig(**options)
