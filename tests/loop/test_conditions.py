"""C6: every condition alone, and the laws of `&` and `|`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loop.support import plain_id
from tulip_actors import AgentState, Message, ToolCall, ToolExecution
from tulip_actors.core.termination import (
    STOP_REASONS,
    AndCondition,
    ConfidenceMet,
    CustomCondition,
    Ending,
    MaxIterations,
    NoToolCalls,
    OrCondition,
    StopReason,
    TerminationCondition,
    TextMention,
    TimeLimit,
    TokenLimit,
    ToolCalled,
)

EMPTY = AgentState("run", "thread", "agent")
CALLED = ToolExecution("add", "c", result="3", run_id="run")
FAILED = ToolExecution("add", "c", error="no", run_id="run")


def said(text: str, *calls: str) -> AgentState:
    """A state whose last answer says that, and calls those."""
    made = tuple(ToolCall("c", name) for name in calls)
    return EMPTY.with_messages(Message.user("x"), Message.assistant(text, made))


def used(prompt: int, completion: int) -> AgentState:
    return EMPTY.with_token_usage({"prompt_tokens": prompt, "completion_tokens": completion})


FIRES: list[tuple[TerminationCondition, AgentState, bool]] = [
    (TokenLimit(12), EMPTY, False),
    (TokenLimit(12), used(10, 1), False),
    (TokenLimit(12), used(10, 2), True),
    (TokenLimit(12), used(100, 2), True),
    (NoToolCalls(), EMPTY, False),
    (NoToolCalls(), said("done"), True),
    (NoToolCalls(), said("hm", "add"), False),
    (ToolCalled("add"), EMPTY, False),
    (ToolCalled("add"), EMPTY.with_tool_execution(CALLED), True),
    (ToolCalled("add"), EMPTY.with_tool_execution(FAILED), True),
    (ToolCalled("ad"), EMPTY.with_tool_execution(CALLED), False),
    (ToolCalled("add", require_success=True), EMPTY.with_tool_execution(FAILED), False),
    (ToolCalled("add", require_success=True), EMPTY.with_tool_execution(CALLED), True),
    (
        ToolCalled("add", require_success=True),
        EMPTY.with_tool_execution(FAILED).with_tool_execution(CALLED),
        True,
    ),
    (ConfidenceMet(0.5), EMPTY.with_confidence(0.49), False),
    (ConfidenceMet(0.5), EMPTY.with_confidence(0.5), True),
    (ConfidenceMet(0), EMPTY, True),
    (TextMention("done"), EMPTY, False),
    (TextMention("done"), said("All DONE."), True),
    (TextMention("done"), said("All do ne."), False),
    (TextMention("straße"), said("STRASSE"), True),
    (TextMention("DONE", case_sensitive=True), said("done"), False),
    (TextMention("DONE", case_sensitive=True), said("DONE"), True),
    (TextMention("done"), said("done").with_message(Message.user("done?")), True),
    (TextMention("a+b"), said("aab"), False),
    (CustomCondition(lambda state, **ctx: state.iteration == 0), EMPTY, True),
    (CustomCondition(lambda state, **ctx: (False, "no matter")), EMPTY, False),
]


@pytest.mark.parametrize(("condition", "state", "fires"), FIRES, ids=plain_id)
def test_c6_a_condition_fires_when_the_page_says(
    condition: TerminationCondition, state: AgentState, fires: bool
) -> None:
    assert condition.check(state)[0] is fires
    assert (condition.ending(state) is not None) is fires


def test_text_mention_looks_at_the_models_words_alone() -> None:
    state = EMPTY.with_messages(Message.system("say done"), Message.user("done?"))
    assert TextMention("done").ending(state) is None
    assert TextMention("done").ending(state.with_message(Message.assistant("not yet"))) is None


def test_tool_called_does_not_count_calls_of_earlier_runs() -> None:
    earlier = ToolExecution("add", "c", result="3", run_id="an earlier run")
    assert ToolCalled("add").ending(EMPTY.with_tool_execution(earlier)) is None


@pytest.mark.parametrize(("elapsed_s", "fires"), [(0, False), (1.9, False), (2, True), (9, True)])
def test_the_time_limit_reads_the_seconds_it_is_told(elapsed_s: float, fires: bool) -> None:
    assert TimeLimit(2).check(EMPTY, elapsed_s=elapsed_s) == (fires, None)
    assert not TimeLimit(2).check(EMPTY)[0], "without a clock no time has passed"


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        (True, ("CustomCondition", "complete")),
        ((True, None), ("CustomCondition", "complete")),
        ((True, "quota used up"), ("quota used up", "complete")),
        *[((True, literal), (literal, literal)) for literal in sorted(STOP_REASONS)],
        ((True, "an error"), ("an error", "complete")),
        (False, None),
        ((False, "error"), None),
    ],
    ids=plain_id,
)
def test_c6_a_custom_condition_gives_its_reason_and_a_literal_if_it_is_one(
    answer: Any, ending: tuple[str, str] | None
) -> None:
    found = CustomCondition(lambda state, **ctx: answer).ending(EMPTY)
    assert (found and (found.reason, found.stop_reason)) == ending


def test_a_custom_condition_is_given_the_state_and_the_rest() -> None:
    seen: list[object] = []

    def fn(state: AgentState, **ctx: object) -> bool:
        seen.extend([state, ctx])
        return False

    CustomCondition(fn).ending(EMPTY, elapsed_s=3.0)
    assert seen == [EMPTY, {"elapsed_s": 3.0}]


BAD: list[Callable[[], object]] = [
    *[lambda v=v: TokenLimit(v) for v in (0, -1, 1.5, "3", None, True)],
    *[lambda v=v: TimeLimit(v) for v in (0, -1, "3", None, True, float("nan"))],
    *[lambda v=v: ToolCalled(v) for v in ("", None, 3, ["add"])],
    *[lambda v=v: ConfidenceMet(v) for v in (-0.1, 1.1, "1", None, True, float("nan"))],
    *[lambda v=v: TextMention(v) for v in ("", None, 3)],
    *[lambda v=v: CustomCondition(v) for v in (None, 3, "fn", True)],
]


@pytest.mark.parametrize("make", BAD)
def test_a_condition_refuses_what_it_cannot_check(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"needs .*, not "):
        make()


def test_an_async_custom_condition_is_refused_since_its_answer_would_always_be_true() -> None:
    async def fn(state: AgentState, **ctx: object) -> bool:
        return False

    with pytest.raises(ValueError, match="CustomCondition needs"):
        CustomCondition(fn)  # type: ignore[arg-type]


def test_an_answer_that_would_have_to_be_awaited_is_not_taken_for_true() -> None:
    class Asks:
        async def __call__(self, state: AgentState, **ctx: object) -> bool:
            return False

    with pytest.raises((TypeError, ValueError)):
        CustomCondition(Asks()).ending(EMPTY)  # type: ignore[arg-type]


@pytest.mark.parametrize("other", [3, None, True, MaxIterations, lambda state: True])
def test_only_conditions_can_be_combined(other: Any) -> None:
    with pytest.raises(TypeError):
        MaxIterations(1) & other
    with pytest.raises(TypeError):
        MaxIterations(1) | other


REPRS = [
    "TokenLimit(15000)",
    "TimeLimit(2.5)",
    "NoToolCalls()",
    "ToolCalled('issue_refund')",
    "ToolCalled('issue_refund', require_success=True)",
    "ConfidenceMet(0.9)",
    "TextMention('done')",
    "TextMention('DONE', case_sensitive=True)",
    "((ToolCalled('issue_refund') & ConfidenceMet(0.9)) | MaxIterations(10))",
]


@pytest.mark.parametrize("text", REPRS)
def test_a_repr_is_the_code_that_makes_it(text: str) -> None:
    assert repr(eval(text)) == text


def test_c6_the_pages_example_reports_the_leaves_that_fired() -> None:
    condition = (ToolCalled("issue_refund") & ConfidenceMet(0.9)) | MaxIterations(10)
    refunded = EMPTY.with_tool_execution(
        ToolExecution("issue_refund", "c", result="RF", run_id="run")
    )
    assert condition.ending(refunded.with_confidence(0.15)) is None
    ending = condition.ending(refunded.with_confidence(0.95))
    assert ending == Ending(
        "ToolCalled & ConfidenceMet",
        "terminal_tool",
        "ToolCalled('issue_refund') & ConfidenceMet(0.9)",
    )


# the laws, over random trees


class Leaf(TerminationCondition):
    """Fires or not; tells whom it asked."""

    def __init__(self, name: str, fires: bool, literal: StopReason, asked: list[str]) -> None:
        self.name, self.fires, self.asked = name, fires, asked
        self.literal: StopReason = literal

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        self.asked.append(self.name)
        return self.fires, self.name if self.fires else None

    def ending(self, state: AgentState, **ctx: object) -> Ending | None:
        fires, reason = self.check(state, **ctx)
        return Ending(reason or "", self.literal, repr(self)) if fires else None

    def __repr__(self) -> str:
        return f"<{self.name}>"


@dataclass(frozen=True)
class Node:
    """A tree of conditions, as data: an operator and two sides, or a leaf."""

    operator: str = ""
    left: Any = None
    right: Any = None
    fires: bool = False
    literal: StopReason = "complete"


leaves = st.builds(
    Node, fires=st.booleans(), literal=st.sampled_from(["complete", "error", "tool_loop"])
)
trees = st.recursive(
    leaves, lambda sides: st.builds(Node, st.sampled_from("&|"), sides, sides), max_leaves=8
)


def built(node: Node, asked: list[str], place: str = "r") -> TerminationCondition:
    """The tree as conditions."""
    if not node.operator:
        return Leaf(place, node.fires, node.literal, asked)
    left, right = built(node.left, asked, place + "0"), built(node.right, asked, place + "1")
    return left & right if node.operator == "&" else left | right


def expected(node: Node, asked: list[str], place: str = "r") -> list[tuple[str, StopReason]]:
    """The leaves that are to be reported, none if it does not fire; fills who has to be asked."""
    if not node.operator:
        asked.append(place)
        return [(place, node.literal)] if node.fires else []
    left = expected(node.left, asked, place + "0")
    if node.operator == "&":
        right = expected(node.right, asked, place + "1") if left else []
        return left + right if right else []
    return left or expected(node.right, asked, place + "1")


@given(trees)
def test_c6_the_algebra_reports_exactly_the_leaves_that_fired(node: Node) -> None:
    asked: list[str] = []
    should_ask: list[str] = []
    condition = built(node, asked)
    ending = condition.ending(EMPTY)
    reported = expected(node, should_ask)
    assert asked == should_ask, "it short-circuits, and asks nobody twice"
    if not reported:
        assert ending is None
        return
    assert ending is not None
    assert ending.reason == " & ".join(name for name, _ in reported)
    assert ending.condition == " & ".join(f"<{name}>" for name, _ in reported)
    assert ending.stop_reason == reported[0][1]


@given(trees)
def test_check_of_a_tree_agrees_with_its_ending(node: Node) -> None:
    condition = built(node, [])
    ending = condition.ending(EMPTY)
    assert condition.check(EMPTY) == (ending is not None, ending and ending.reason)


@given(trees, trees, trees, st.sampled_from("&|"))
def test_both_operators_are_associative(a: Node, b: Node, c: Node, operator: str) -> None:
    def told(shape: Callable[[Any, Any, Any], Any]) -> tuple[Ending | None, list[str]]:
        asked: list[str] = []
        made = [built(node, asked, name) for node, name in ((a, "a"), (b, "b"), (c, "c"))]
        return shape(*made).ending(EMPTY), asked

    if operator == "&":
        assert told(lambda x, y, z: (x & y) & z) == told(lambda x, y, z: x & (y & z))
    else:
        assert told(lambda x, y, z: (x | y) | z) == told(lambda x, y, z: x | (y | z))


@given(trees, trees)
def test_whether_a_tree_fires_does_not_depend_on_the_order_of_its_sides(a: Node, b: Node) -> None:
    def fires(condition: TerminationCondition) -> bool:
        return condition.ending(EMPTY) is not None

    x, y = built(a, [], "a"), built(b, [], "b")
    assert fires(x & y) == fires(y & x) == (fires(x) and fires(y))
    assert fires(x | y) == fires(y | x) == (fires(x) or fires(y))
    assert fires(x & (x | y)) == fires(x | (x & y)) == fires(x), "absorption"


@given(trees)
def test_the_repr_of_a_tree_shows_its_shape(node: Node) -> None:
    def shown(one: Node, place: str) -> str:
        if not one.operator:
            return f"<{place}>"
        left, right = shown(one.left, place + "0"), shown(one.right, place + "1")
        return f"({left} {one.operator} {right})"

    assert repr(built(node, [])) == shown(node, "r")


def test_the_operators_make_the_published_classes() -> None:
    assert isinstance(NoToolCalls() & NoToolCalls(), AndCondition)
    assert isinstance(NoToolCalls() | NoToolCalls(), OrCondition)
