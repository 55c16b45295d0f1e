"""Conditions and their algebra."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tulip_actors import AgentState
from tulip_actors.core.termination import (
    STOP_REASONS,
    SUCCESSES,
    AndCondition,
    MaxIterations,
    OrCondition,
    StopReason,
    TerminationCondition,
)


def at(iteration: int) -> AgentState:
    """A state after so many turns."""
    return AgentState("r", "t", "a", iteration=iteration)


class Fires(TerminationCondition):
    """Fires, or not, and counts how often it was asked."""

    stop_reason = "token_budget"

    def __init__(self, fires: bool, reason: str | None = None) -> None:
        self.fires, self.reason, self.asked = fires, reason, 0

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        self.asked += 1
        return self.fires, self.reason

    def __repr__(self) -> str:
        return f"Fires({self.fires})"


def test_max_iterations_fires_at_its_limit_and_not_before() -> None:
    condition = MaxIterations(3)
    assert [condition.check(at(n))[0] for n in range(5)] == [False, False, False, True, True]


def test_the_ending_names_the_class_the_literal_and_the_repr() -> None:
    ending = MaxIterations(2).ending(at(2))
    assert ending is not None
    assert (ending.reason, ending.stop_reason, ending.condition) == (
        "MaxIterations",
        "max_iterations",
        "MaxIterations(2)",
    )
    assert not ending.at_cap


@pytest.mark.parametrize("limit", [0, -1, 1.5, "3", None, True])
def test_max_iterations_refuses_what_is_no_number_of_turns(limit: Any) -> None:
    with pytest.raises(ValueError, match="MaxIterations needs a whole number"):
        MaxIterations(limit)


def test_and_joins_the_reasons_and_takes_the_first_leafs_literal() -> None:
    ending = (MaxIterations(1) & Fires(True, "enough")).ending(at(1))
    assert ending is not None
    assert ending.reason == "MaxIterations & enough"
    assert ending.stop_reason == "max_iterations"
    assert ending.condition == "MaxIterations(1) & Fires(True)"


def test_and_of_three_joins_all_leaves() -> None:
    ending = (Fires(True, "a") & Fires(True, "b") & Fires(True, "c")).ending(at(0))
    assert ending is not None
    assert ending.reason == "a & b & c"


def test_or_reports_the_side_that_fired() -> None:
    ending = (MaxIterations(9) | Fires(True, "tired")).ending(at(1))
    assert ending is not None
    assert (ending.reason, ending.stop_reason) == ("tired", "token_budget")


def test_or_reports_the_left_side_when_both_fire() -> None:
    ending = (Fires(True, "left") | Fires(True, "right")).ending(at(1))
    assert ending is not None
    assert ending.reason == "left"


def test_and_does_not_ask_the_right_side_in_vain() -> None:
    right = Fires(True)
    assert (Fires(False) & right).ending(at(0)) is None
    assert right.asked == 0


def test_or_does_not_ask_the_right_side_in_vain() -> None:
    right = Fires(True)
    assert (Fires(True) | right).ending(at(0)) is not None
    assert right.asked == 0


def test_a_side_is_asked_once_per_check() -> None:
    left, right = Fires(True), Fires(True)
    (left & right).ending(at(0))
    assert (left.asked, right.asked) == (1, 1)


def test_the_page_example_composes() -> None:
    condition = (Fires(True, "ToolCalled") & Fires(False)) | MaxIterations(10) | Fires(False)
    assert condition.ending(at(9)) is None
    ending = condition.ending(at(10))
    assert ending is not None
    assert ending.reason == "MaxIterations"


def test_operators_make_the_published_classes() -> None:
    assert isinstance(MaxIterations(1) & MaxIterations(2), AndCondition)
    assert isinstance(MaxIterations(1) | MaxIterations(2), OrCondition)


def test_the_repr_shows_the_tree() -> None:
    condition = (MaxIterations(1) & MaxIterations(2)) | MaxIterations(3)
    assert repr(condition) == "((MaxIterations(1) & MaxIterations(2)) | MaxIterations(3))"


def test_check_of_a_composite_says_the_same_as_ending() -> None:
    assert (MaxIterations(1) & Fires(True, "x")).check(at(1)) == (True, "MaxIterations & x")
    assert (MaxIterations(1) | Fires(False)).check(at(0)) == (False, None)


def test_a_condition_of_ones_own_needs_only_check() -> None:
    class Always(TerminationCondition):
        def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
            return True, None

    ending = Always().ending(at(0))
    assert ending is not None
    assert (ending.reason, ending.stop_reason, ending.condition) == (
        "Always",
        "complete",
        "Always()",
    )


def test_the_stop_reasons_are_the_pages_twelve() -> None:
    assert set(get_args(StopReason)) == STOP_REASONS
    assert len(STOP_REASONS) == 12
    assert {"complete", "terminal_tool", "confidence_met"} == SUCCESSES
