"""C23, C24: the Reflector's figures and words, as tables worked by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tulip_actors.reasoning
from tulip_actors import AgentState, Message, ToolCall, ToolExecution
from tulip_actors.core.history import History
from tulip_actors.reasoning import (
    AssessmentCategory,
    ReflectionResult,
    Reflector,
    evaluate_progress,
)

ON_TRACK, STUCK = AssessmentCategory.ON_TRACK, AssessmentCategory.STUCK
NEW_FINDINGS, LOOP = AssessmentCategory.NEW_FINDINGS, AssessmentCategory.LOOP_DETECTED


def ok(result: str = "ok", *, hit: bool = False, tool: str = "look") -> ToolExecution:
    return ToolExecution(tool, "c", result=result, idempotent_cache_hit=hit, run_id="run")


def failed(error: str = "no", tool: str = "try") -> ToolExecution:
    return ToolExecution(tool, "c", error=error, run_id="run")


def turn(state: AgentState, *executions: ToolExecution) -> AgentState:
    """The state in a turn whose calls ended like that, as it is when Reflect runs."""
    calls = tuple(ToolCall("c", one.tool_name) for one in executions)
    state = state.with_message(Message.assistant("", calls))
    for one in executions:
        state = state.with_tool_execution(one)
    return state


def in_turn(*executions: ToolExecution, confidence: float = 0.0) -> AgentState:
    return turn(AgentState("run", "thread", "agent", confidence=confidence), *executions)


OK, NO, HIT = ok(), failed(), ok(hit=True)
FIGURES: list[tuple[float, list[ToolExecution], float, bool]] = [
    # confidence before, the turn's calls, confidence after, diminishing returns
    (0.0, [OK], 0.15, True),
    (0.0, [OK, OK], 0.30, True),
    (0.15, [OK], 0.2775, True),  # 0.15 + 0.15 * 0.85
    (0.5, [OK], 0.575, True),
    (0.5, [OK, OK], 0.65, True),  # scaled once, not per call
    (0.9, [OK], 0.915, True),
    (0.5, [OK], 0.65, False),
    (0.9, [OK], 1.0, False),  # clamped
    (1.0, [OK], 1.0, True),
    (0.0, [OK] * 9, 1.0, True),  # 1.35, clamped
    (0.5, [NO], 0.3, True),  # a loss is not scaled
    (0.5, [NO], 0.3, False),
    (0.5, [NO, NO], 0.1, True),
    (0.5, [NO, NO, NO], 0.0, True),  # clamped
    (0.0, [NO], 0.0, True),
    (0.5, [OK, NO], 0.45, True),  # 0.15 - 0.2
    (0.5, [OK, OK, NO], 0.55, True),  # 0.1, scaled by 0.5
    (0.5, [OK, OK, NO], 0.6, False),
    (0.5, [OK, OK, OK, OK, NO, NO, NO], 0.5, True),  # they cancel out
    (0.0, [], 0.05, True),
    (0.5, [], 0.525, True),
    (0.5, [], 0.55, False),
    (0.5, [HIT], 0.525, True),  # hits count neither way: as if nothing was called
    (0.5, [HIT, HIT, NO], 0.3, True),
    (0.5, [HIT, OK], 0.575, True),
]


@pytest.mark.parametrize(("before", "calls", "after", "diminishing"), FIGURES)
def test_c23_the_figures(
    before: float, calls: list[ToolExecution], after: float, diminishing: bool
) -> None:
    found = Reflector(diminishing_returns=diminishing).reflect(in_turn(*calls, confidence=before))
    assert found.new_confidence == pytest.approx(after, abs=1e-9)
    assert found.confidence_delta == pytest.approx(after - before, abs=1e-9)


def looping(turns: int, *executions: ToolExecution, confidence: float = 0.0) -> AgentState:
    """A state in the last of so many turns that are all alike."""
    state = AgentState("run", "thread", "agent", confidence=confidence)
    for _ in range(turns):
        state = turn(state.next_iteration(), *executions)
    return state


@pytest.mark.parametrize(
    ("before", "calls", "after"),
    [
        (0.9, [OK], 0.615),  # 0.15 * 0.1 - 0.3: the loop's cost is not scaled
        (0.5, [OK], 0.275),
        (0.5, [NO], 0.0),  # -0.2 - 0.3
        (0.9, [NO], 0.4),
        (0.0, [OK], 0.0),
        (0.9, [HIT], 0.605),  # 0.05 * 0.1 - 0.3
    ],
)
def test_c23_a_detected_loop_costs_0_3(
    before: float, calls: list[ToolExecution], after: float
) -> None:
    found = Reflector().reflect(looping(3, *calls, confidence=before))
    assert found.assessment is LOOP
    assert found.new_confidence == pytest.approx(after, abs=1e-9)
    assert found.confidence_delta == pytest.approx(after - before, abs=1e-9)


LONG, SHORT = ok("x" * 101), ok("x" * 100)
WORDS: list[tuple[float, list[ToolExecution], AssessmentCategory]] = [
    (0.5, [OK], ON_TRACK),
    (0.5, [], ON_TRACK),
    (0.5, [SHORT], ON_TRACK),
    (0.5, [LONG], NEW_FINDINGS),
    (0.5, [ok("x" * 60), ok("y" * 41)], NEW_FINDINGS),
    (0.5, [ok("x" * 60), ok("y" * 40)], ON_TRACK),
    (0.5, [LONG, NO, NO], NEW_FINDINGS),
    (0.5, [ok("x" * 101, hit=True)], ON_TRACK),
    (0.5, [failed("x" * 500)], STUCK),
    (0.5, [NO], STUCK),
    (0.0, [NO], STUCK),  # errors outnumber successes, although nothing could fall
    (0.5, [OK, NO], ON_TRACK),  # -0.05 is not below -0.05
    (0.5, [OK, OK, NO, NO], STUCK),  # -0.1
    (0.02, [OK, OK, NO, NO], ON_TRACK),  # the change really made is -0.02
    (0.5, [HIT, NO], STUCK),
]


@pytest.mark.parametrize(("before", "calls", "assessment"), WORDS)
def test_c24_the_words(
    before: float, calls: list[ToolExecution], assessment: AssessmentCategory
) -> None:
    assert Reflector().reflect(in_turn(*calls, confidence=before)).assessment is assessment


def test_c24_the_words_are_those_of_the_event() -> None:
    from typing import get_args

    from tulip_actors.core.events import Assessment

    assert {one.value for one in AssessmentCategory} == set(get_args(Assessment))


# loops


def told(*turns: list[str], threshold: int = 3, opening: int = 0) -> ReflectionResult:
    """What the Reflector says in the last of these turns, each a list of tool names."""
    state = AgentState("run", "thread", "agent")
    for position, names in enumerate(turns):
        state = turn(state.next_iteration(), *[ok(tool=name) for name in names])
        if position + 1 == opening:
            from dataclasses import replace

            state = replace(state, opening_length=len(state.messages))
    return Reflector(tool_loop_threshold=threshold).reflect(state)


@pytest.mark.parametrize(
    ("turns", "is_loop"),
    [
        ([["a"]] * 2, False),
        ([["a"]] * 3, True),
        ([["a"]] * 4, True),
        ([["b"], ["a"], ["a"], ["a"]], True),
        ([["a"], ["a"], ["b"]], False),
        ([["a"], ["b"], ["a"]], False),
        ([["a"], ["a"], [], ["a"]], True),  # a turn without tools does not count
        ([["a", "b"]] * 3, True),
        ([["a", "b"], ["a"], ["a"]], False),
        ([["a"], ["a", "a"], ["a"]], False),
    ],
    ids=str,
)
def test_c24_a_loop_is_the_same_tools_in_the_last_three_turns_with_tools(
    turns: list[list[str]], is_loop: bool
) -> None:
    assert (told(*turns).assessment is LOOP) is is_loop


def test_c24_arguments_may_differ() -> None:
    state = AgentState("run", "thread", "agent")
    for n in range(3):
        calls = (ToolCall("c", "look", {"n": n}),)
        state = state.next_iteration().with_message(Message.assistant("", calls))
        state = state.with_tool_execution(
            ToolExecution("look", "c", {"n": n}, result="ok", run_id="run")
        )
    assert Reflector().reflect(state).assessment is LOOP


@pytest.mark.parametrize("threshold", [2, 3, 5])
def test_c24_the_threshold_is_a_number_of_turns(threshold: int) -> None:
    assert told(*[["a"]] * (threshold - 1), threshold=threshold).assessment is ON_TRACK
    assert told(*[["a"]] * threshold, threshold=threshold).assessment is LOOP


def test_c11_turns_of_earlier_runs_are_no_loop() -> None:
    assert told(["a"], ["a"], ["a"], opening=1).assessment is ON_TRACK
    assert told(["a"], ["a"], ["a"], ["a"], opening=1).assessment is LOOP


def test_c24_a_loop_is_said_before_anything_else() -> None:
    assert Reflector().reflect(looping(3, LONG)).assessment is LOOP
    assert Reflector().reflect(looping(3, NO)).assessment is LOOP


# guidance


def test_c24_guidance_of_a_loop_names_the_tools_and_the_count() -> None:
    guidance = told(["search", "fetch"], ["search", "fetch"], ["search", "fetch"]).guidance or ""
    assert "search" in guidance
    assert "fetch" in guidance
    assert "3" in guidance
    assert guidance.count("search") == 1


def test_c24_guidance_when_stuck_names_the_tools_the_count_and_the_last_error() -> None:
    calls = [failed("first trouble", "fetch"), failed("last trouble", "parse"), OK]
    guidance = Reflector().reflect(in_turn(*calls, confidence=0.5)).guidance or ""
    assert "fetch" in guidance
    assert "parse" in guidance
    assert "2" in guidance
    assert "last trouble" in guidance
    assert "first trouble" not in guidance


@pytest.mark.parametrize("calls", [[OK], [LONG], [], [HIT]])
def test_there_is_no_guidance_when_nothing_is_wrong(calls: list[ToolExecution]) -> None:
    assert Reflector().reflect(in_turn(*calls, confidence=0.5)).guidance is None


# what holds for every turn

executions: st.SearchStrategy[list[ToolExecution]] = st.lists(
    st.sampled_from([OK, NO, HIT, LONG, ok(tool="other"), failed("x", "other")]), max_size=8
)


@given(executions, st.floats(0, 1), st.booleans(), st.integers(1, 5))
def test_c23_confidence_stays_within_0_and_1_and_the_delta_is_the_change_made(
    calls: list[ToolExecution], before: float, diminishing: bool, turns: int
) -> None:
    state = looping(turns, *calls, confidence=before)
    found = Reflector(diminishing_returns=diminishing).reflect(state)
    assert 0 <= found.new_confidence <= 1
    assert found.new_confidence - before == pytest.approx(found.confidence_delta, abs=1e-9)
    assert found == Reflector(diminishing_returns=diminishing).reflect(state), "it is pure"


@given(executions, st.floats(0, 1))
def test_c23_served_results_count_neither_way(calls: list[ToolExecution], before: float) -> None:
    with_hits = Reflector().reflect(in_turn(*calls, HIT, HIT, confidence=before))
    without = Reflector().reflect(in_turn(*calls, confidence=before))
    assert with_hits.new_confidence == without.new_confidence
    assert with_hits.assessment == without.assessment


@given(st.floats(0, 1), st.integers(0, 6))
def test_c23_a_rise_never_passes_1_and_diminishing_returns_never_raise_it(
    before: float, successes: int
) -> None:
    state = in_turn(*[OK] * successes, confidence=before)
    scaled, plain = (Reflector(diminishing_returns=on).reflect(state) for on in (True, False))
    assert before - 1e-9 <= scaled.new_confidence <= plain.new_confidence + 1e-9


def test_only_the_calls_of_the_present_turn_are_weighed() -> None:
    state = in_turn(NO, NO, NO, confidence=0.5).next_iteration()
    assert Reflector().reflect(turn(state, OK)).new_confidence == 0.575


def test_calls_of_earlier_runs_are_not_weighed() -> None:
    earlier = ToolExecution("look", "c", error="no", run_id="an earlier run")
    state = AgentState(
        "run",
        "thread",
        "agent",
        tool_executions=History([earlier]),
        executions_before_turn=1,
    )
    assert Reflector().reflect(turn(state, OK)).new_confidence == 0.15


def test_evaluate_progress_is_one_evaluation_with_the_defaults() -> None:
    state = in_turn(OK, confidence=0.5)
    assert evaluate_progress(state) == Reflector().reflect(state)


@pytest.mark.parametrize("field", ["assessment", "new_confidence", "guidance"])
def test_a_result_is_frozen(field: str) -> None:
    result: Any = evaluate_progress(in_turn(OK))
    with pytest.raises(AttributeError):
        setattr(result, field, None)


def test_the_public_names_are_the_contracts() -> None:
    names = {"Reflector", "ReflectionResult", "AssessmentCategory", "evaluate_progress"}
    assert names <= set(tulip_actors.reasoning.__all__)
