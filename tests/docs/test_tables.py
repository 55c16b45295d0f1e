"""Every row of the two pages' tables, on both runtimes: a test's id is its row.

Not here: the rows of the grounding pass, of `checkpointer=` and of `conversation_manager=`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeAlias, assert_never, get_args

import pytest
from pydantic import ValidationError

from tests.docs.tour import KEEPER, SYSTEM_PROMPT, Agents, Tour, nodes, order, travel
from tests.loop.support import ModelTrouble, Run, told_by
from tulip_actors import (
    AllEvents,
    CausalEdgeEvent,
    CausalNodeEvent,
    GroundingEvent,
    InterruptEvent,
    LoopEvent,
    ModelChunkEvent,
    ModelCompleteEvent,
    OrchestratorDecisionEvent,
    ReflectEvent,
    Role,
    SpecialistCompleteEvent,
    SpecialistStartEvent,
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
)
from tulip_actors.core.events import ToolCallDelta
from tulip_actors.core.termination import STOP_REASONS, TextMention
from tulip_actors.hooks import BeforeToolCallEvent

Row: TypeAlias = tuple[str, Callable[[Tour], object], object]
"""A row's name, what is read from the tour, and what it has to be."""


def rows(table: Sequence[Row]) -> pytest.MarkDecorator:
    """One test per row."""
    values = [pytest.param(read, expected, id=name) for name, read, expected in table]
    return pytest.mark.parametrize(("read", "expected"), values)


@pytest.fixture(scope="module")
def tour(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Tour:
    return asyncio.run(travel(Agents.on(runtime), tmp_path_factory.mktemp("tour")))


def steps(run: Run, before: str, after: str) -> int:
    """How often a run went from one node to the other."""
    return list(pairwise(nodes(run))).count((before, after))


# the router


@rows(
    [
        (
            "iteration start -> Terminate: a condition fires",
            lambda tour: nodes(tour["TimeLimit"]),
            ["Terminate"],
        ),
        (
            "iteration start -> Think: otherwise",
            lambda tour: steps(tour["long"], "iteration start", "Think"),
            5,
        ),
        (
            "Think -> Execute: the model made tool calls",
            lambda tour: steps(tour["long"], "Think", "Execute"),
            4,
        ),
        (
            "Think -> Terminate: it made none, in auto mode",
            lambda tour: nodes(tour["long"])[-2:],
            ["Think", "Terminate"],
        ),
        (
            "Think -> next iteration: it made none, in explicit mode",
            lambda tour: (nodes(tour["in order"])[-2:], tour["in order"].end.reason),
            (["Think", "Terminate"], "NoToolCalls"),
        ),
        (
            "Execute -> Reflect: Reflexion is configured and the iteration is due",
            lambda tour: [steps(tour[run], "Execute", "Reflect") for run in ("long", "TokenLimit")],
            [2, 1],
        ),
        (
            "Execute -> next iteration: otherwise",
            lambda tour: steps(tour["long"], "Execute", "iteration start"),
            2,
        ),
        (
            "Reflect -> next iteration: always",
            lambda tour: [b for a, b in pairwise(nodes(tour["long"])) if a == "Reflect"],
            ["iteration start"] * 2,
        ),
        (
            "a condition that becomes true in Execute waits for the boundary",
            lambda tour: (nodes(tour["ConfidenceMet"])[-2:], len(tour["ConfidenceMet"].completes)),
            (["Reflect", "Terminate"], 7),
        ),
    ]
)
def test_the_router_goes_where_its_table_says(
    read: Callable[[Tour], object], expected: object, tour: Tour
) -> None:
    assert read(tour) == expected


# who emits what


@rows(
    [
        (
            "ThinkEvent: Think, once per iteration",
            lambda tour: [event.iteration for event in tour["long"].thinks],
            [0, 1, 2, 3, 4],
        ),
        (
            "ModelChunkEvent: Think, per streamed chunk",
            lambda tour: order(tour["long"])[:4],
            ["model_chunk"] * 4,
        ),
        (
            "ToolStartEvent: Execute, before each tool fires",
            lambda tour: order(tour["plain"]),
            ["think", "tool_start", "tool_complete", "think", "terminate"],
        ),
        (
            "ToolCompleteEvent: Execute, after each tool returns, with error on failure",
            lambda tour: {event.tool_name: event.error for event in tour["long"].completes},
            {"add": None, "fails": "ValueError: dropped", "say": None},
        ),
        (
            "ReflectEvent: Reflect, after each self-evaluation",
            lambda tour: [event.iteration for event in tour["long"].reflections],
            [1, 3],
        ),
        (
            "InterruptEvent: Execute, when a tool requests human input",
            lambda tour: order(tour["question"]),
            ["think", "tool_start", "interrupt", "terminate"],
        ),
        (
            "TerminateEvent: Terminate, when the loop exits",
            lambda tour: {order(run).count("terminate") for run in tour.runs.values()},
            {1},
        ),
    ]
)
def test_each_event_is_emitted_by_the_node_in_its_row(
    read: Callable[[Tour], object], expected: object, tour: Tour
) -> None:
    assert read(tour) == expected


# why a run stopped

REASONS: list[tuple[str, str, str, int]] = [
    ("MaxIterations", "MaxIterations", "max_iterations", 4),
    ("TokenLimit", "TokenLimit", "token_budget", 1),
    ("TimeLimit", "TimeLimit", "time_budget", 0),
    ("NoToolCalls", "NoToolCalls", "no_tools", 1),
    ("ToolCalled", "ToolCalled", "terminal_tool", 2),
    ("ConfidenceMet", "ConfidenceMet", "confidence_met", 1),
    ("TextMention", "TextMention", "complete", 1),
    ("CustomCondition", "the quota is used up", "complete", 2),
    ("cancelled", "cancelled", "cancelled", 1),
    ("error", "error", "error", 1),
]


@pytest.mark.parametrize(
    ("row", "reason", "stop_reason", "turns"), REASONS, ids=[one[0] for one in REASONS]
)
def test_a_run_ends_with_the_reason_of_its_row(
    row: str, reason: str, stop_reason: str, turns: int, tour: Tour
) -> None:
    end = tour[row].end
    assert (end.reason, end.stop_reason, end.iterations_used) == (reason, stop_reason, turns)
    assert stop_reason in STOP_REASONS


def test_the_error_row_raises_what_the_model_raised(tour: Tour) -> None:
    assert isinstance(tour["error"].failure, ModelTrouble)
    assert [name for name, run in tour.runs.items() if run.failure is not None] == ["error"]


def test_the_tool_called_row_counts_a_failed_call_unless_success_is_required(tour: Tour) -> None:
    first, second = tour["ToolCalled"].completes
    assert (first.error is None, second.error is None) == (False, True)


def test_the_text_mention_row_may_be_told_to_look_at_the_case(tour: Tour) -> None:
    state = tour["TextMention"].ok.state
    assert TextMention("enough said").check(state)[0]
    assert not TextMention("enough said", case_sensitive=True).check(state)[0]


# what can be configured


def starts_and_completes(run: Run) -> list[str]:
    return [kind for kind in order(run) if kind.startswith("tool_")]


@rows(
    [
        (
            "model: which provider Think calls",
            lambda tour: len(tour.asked_in("long")),
            5,
        ),
        (
            "tools: what Execute can dispatch",
            lambda tour: [
                "choose" in [spec.name for spec in tour.asked_in("plain")[0].tools],
                "choose" in str(tour["unknown tool"].completes[0].error),
            ],
            [True, True],
        ),
        (
            "system_prompt: prepended before the first Think",
            lambda tour: [
                (message.role, message.content)
                for message in tour.asked_in("plain")[0].messages[:2]
            ],
            [(Role.SYSTEM, SYSTEM_PROMPT), (Role.USER, KEEPER["plain"][0])],
        ),
        (
            "reflexion=True: Reflect on every iteration",
            lambda tour: [event.iteration for event in tour["MaxIterations"].reflections],
            [0, 1, 2, 3],
        ),
        (
            "reflexion=ReflexionConfig(evaluate_every_n_iterations=2): every second",
            lambda tour: [event.iteration for event in tour["twenty"].reflections],
            list(range(1, 20, 2)),
        ),
        (
            "hooks: observe and steer",
            lambda tour: told_by(tour["plain"].events)[-1],
            ("on_after_invocation", "2 True"),
        ),
        (
            "termination: checked at the start of each iteration",
            lambda tour: (tour["CustomCondition"].end.condition, len(tour["TokenLimit"].thinks)),
            ("CustomCondition(quota)", 1),
        ),
        (
            "max_iterations: 20 by default, then one last call without tools",
            lambda tour: (
                tour["twenty"].end.iterations_used,
                tour["twenty"].end.final_message,
                [bool(request.tools) for request in tour.asked_in("twenty")][-2:],
            ),
            (20, "So far.", [True, False]),
        ),
        (
            "tool_execution='concurrent', the default",
            lambda tour: starts_and_completes(tour["long"])[:4],
            ["tool_start", "tool_start", "tool_complete", "tool_complete"],
        ),
        (
            "tool_execution='sequential'",
            lambda tour: starts_and_completes(tour["in order"]),
            ["tool_start", "tool_complete"] * 3,
        ),
    ]
)
def test_an_argument_of_an_agent_does_what_its_row_says(
    read: Callable[[Tour], object], expected: object, tour: Tour
) -> None:
    assert read(tour) == expected


# the fields of events


def every_event(tour: Tour) -> list[TulipEvent]:
    return [event for run in tour.runs.values() for event in run.events] + tour.team


def test_the_common_field_event_type_tells_every_class_apart(tour: Tour) -> None:
    pairs = {(type(event), event.event_type) for event in every_event(tour)}
    assert len(pairs) == len({kind for kind, _ in pairs}) == len({tag for _, tag in pairs})


def test_the_common_field_timestamp_is_utc_and_in_the_order_of_the_run(tour: Tour) -> None:
    assert {event.timestamp.utcoffset() for event in every_event(tour)} == {timedelta(0)}
    first, last = tour["long"].events[0], tour["long"].end
    assert first.timestamp <= last.timestamp


def first(tour: Tour, run: str, kind: type[TulipEvent]) -> Any:
    """The first event of a class in a run."""
    return tour[run].of(kind)[0]


def chunks(tour: Tour) -> list[ModelChunkEvent]:
    """The chunks of the first turn."""
    seen = tour["long"].of(ModelChunkEvent)
    return seen[: 1 + [chunk.done for chunk in seen].index(True)]


FIELDS: list[Row] = [
    (
        "ThinkEvent.iteration: 0-based",
        lambda tour: [event.iteration for event in tour["plain"].thinks],
        [0, 1],
    ),
    (
        "ThinkEvent.reasoning: the text, None on a turn of calls alone",
        lambda tour: [event.reasoning for event in tour["plain"].thinks],
        [None, "three"],
    ),
    (
        "ThinkEvent.reasoning: also readable as content",
        lambda tour: [event.content for event in tour["plain"].thinks],
        [None, "three"],
    ),
    (
        "ThinkEvent.reasoning: a separate channel goes first",
        lambda tour: [event.reasoning for event in tour["in a channel of its own"].thinks],
        ["Silently."],
    ),
    (
        "ThinkEvent.tool_calls: what the model decided to call",
        lambda tour: [call.name for call in first(tour, "long", ThinkEvent).tool_calls],
        ["add", "fails"],
    ),
    (
        "ToolStartEvent.tool_name",
        lambda tour: [event.tool_name for event in tour["long"].starts],
        ["add", "fails", "say", "say", "add", "fails"],
    ),
    (
        "ToolStartEvent.tool_call_id: the provider's",
        lambda tour: [event.tool_call_id for event in tour["long"].starts[2:4]],
        ["s1", "s2"],
    ),
    (
        "ToolStartEvent.arguments: validated",
        lambda tour: dict(first(tour, "plain", ToolStartEvent).arguments),
        {"a": 1, "b": 2},
    ),
    (
        "ToolCompleteEvent.tool_name: the same as at the start",
        lambda tour: [event.tool_name for event in tour["in order"].completes],
        ["count", "add", "fails"],
    ),
    (
        "ToolCompleteEvent.tool_call_id: pairs with the start",
        lambda tour: sorted(event.tool_call_id for event in tour["long"].completes[2:4]),
        ["s1", "s2"],
    ),
    (
        "ToolCompleteEvent.result: serialised, None on error",
        lambda tour: [event.result for event in tour["in order"].completes],
        ["1", "3", None],
    ),
    (
        "ToolCompleteEvent.error: the message, None on success",
        lambda tour: [event.error for event in tour["in order"].completes],
        [None, None, "ValueError: dropped"],
    ),
    (
        "ToolCompleteEvent.duration_ms: how long the body ran",
        lambda tour: [event.duration_ms > 0 for event in tour["in order"].completes],
        [True, True, True],
    ),
    (
        "ModelChunkEvent.content: a piece of text, None for pieces of calls",
        lambda tour: [chunk.content for chunk in chunks(tour)],
        ["First I ", "count.", None, None, None],
    ),
    (
        "ModelChunkEvent.tool_calls: pieces of calls",
        lambda tour: [delta.name for chunk in chunks(tour) for delta in chunk.tool_calls],
        ["add", "fails"],
    ),
    (
        "ModelChunkEvent.done: True on the last chunk of a turn",
        lambda tour: [chunk.done for chunk in chunks(tour)],
        [False, False, False, False, True],
    ),
    (
        "ReflectEvent.iteration: the turn it concerns",
        lambda tour: [event.iteration for event in tour["long"].reflections],
        [1, 3],
    ),
    (
        "ReflectEvent.assessment",
        lambda tour: [event.assessment for event in tour["long"].reflections],
        ["on_track", "stuck"],
    ),
    (
        "ReflectEvent.confidence_delta: against the last",
        lambda tour: [round(event.confidence_delta, 9) for event in tour["long"].reflections],
        [0.3, -0.2],
    ),
    (
        "ReflectEvent.new_confidence: the present value",
        lambda tour: [round(event.new_confidence, 9) for event in tour["long"].reflections],
        [0.3, 0.1],
    ),
    (
        "ReflectEvent.guidance: advice for the next turn",
        lambda tour: [
            event.guidance and "dropped" in event.guidance for event in tour["long"].reflections
        ],
        [None, True],
    ),
    (
        "InterruptEvent.question",
        lambda tour: first(tour, "question", InterruptEvent).question,
        "Which book?",
    ),
    (
        "InterruptEvent.options: the allowed answers",
        lambda tour: first(tour, "question", InterruptEvent).options,
        ("red", "blue"),
    ),
    (
        "InterruptEvent.interrupt_id: what to pass back",
        lambda tour: [one.interrupt_id for one in tour["question"].ok.interrupts],
        lambda tour: [first(tour, "question", InterruptEvent).interrupt_id],
    ),
    (
        "InterruptEvent.metadata: for the UI",
        lambda tour: dict(first(tour, "question", InterruptEvent).metadata),
        {"shelf": 3},
    ),
    (
        "TerminateEvent.reason: what fired, its repr in condition",
        lambda tour: (tour["ConfidenceMet"].end.reason, tour["ConfidenceMet"].end.condition),
        ("ConfidenceMet", "ConfidenceMet(0.9)"),
    ),
    (
        "TerminateEvent.iterations_used: how many turns ran",
        lambda tour: tour["long"].end.iterations_used,
        5,
    ),
    (
        "TerminateEvent.final_confidence: at the end of the run",
        lambda tour: round(tour["long"].end.final_confidence, 9),
        0.1,
    ),
    (
        "TerminateEvent.total_tool_calls",
        lambda tour: tour["long"].end.total_tool_calls,
        6,
    ),
    (
        "TerminateEvent.final_message: the last text, if any",
        lambda tour: [tour[run].end.final_message for run in ("long", "ConfidenceMet")],
        ["Three books.", None],
    ),
    (
        "TerminateEvent.usage: of the whole run, None when unmetered",
        lambda tour: [tour[run].end.usage for run in ("long", "plain")],
        [{"prompt_tokens": 13, "completion_tokens": 3, "total_tokens": 16}, None],
    ),
]


@rows(FIELDS)
def test_a_field_of_an_event_means_what_its_row_says(
    read: Callable[[Tour], object], expected: object, tour: Tour
) -> None:
    assert read(tour) == (expected(tour) if callable(expected) else expected)


@pytest.mark.parametrize("field", ["content", "tool_calls", "usage", "stop_reason"])
def test_a_model_complete_event_has_the_fields_of_its_rows(field: str) -> None:
    usage = {"input_tokens": 1, "output_tokens": 2}
    event = ModelCompleteEvent(content="hi", usage=usage, stop_reason="stop")
    values = {"content": "hi", "tool_calls": (), "usage": usage, "stop_reason": "stop"}
    assert getattr(event, field) == values[field]


def test_a_model_complete_event_is_among_all_events_and_never_emitted(tour: Tour) -> None:
    assert ModelCompleteEvent in get_args(LoopEvent)
    assert not [event for event in every_event(tour) if isinstance(event, ModelCompleteEvent)]


@pytest.mark.parametrize(
    "field", ["score", "claims_evaluated", "ungrounded_claims", "requires_replan"]
)
def test_a_grounding_event_has_the_fields_of_its_rows(field: str) -> None:
    values: dict[str, Any] = {
        "score": 0.5,
        "claims_evaluated": 2,
        "ungrounded_claims": ("The shelf is blue.",),
        "requires_replan": True,
    }
    assert getattr(GroundingEvent(**values), field) == values[field]


# teams and causes


def of_team(tour: Tour, kind: type[Any]) -> list[Any]:
    return [event for event in tour.team if isinstance(event, kind)]


@rows(
    [
        (
            "SpecialistStartEvent: dispatched to a specialist",
            lambda tour: [
                (event.specialist_id, event.task) for event in of_team(tour, SpecialistStartEvent)
            ],
            [("maps", "Have we got an atlas?"), ("novels", "Have we got an atlas?")],
        ),
        (
            "SpecialistCompleteEvent: the specialist returned a result",
            lambda tour: sorted(
                (event.specialist_id, event.result, event.duration_ms > 0)
                for event in of_team(tour, SpecialistCompleteEvent)
            ),
            [("maps", "maps: nothing", True), ("novels", "novels: nothing", True)],
        ),
        (
            "OrchestratorDecisionEvent: picked its next step",
            lambda tour: [event.decision for event in of_team(tour, OrchestratorDecisionEvent)],
            ["invoke_specialist", "correlate", "summarize", "finalize"],
        ),
    ]
)
def test_a_multi_agent_event_is_fired_when_its_row_says(
    read: Callable[[Tour], object], expected: object, tour: Tour
) -> None:
    assert read(tour) == expected


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(
            CausalNodeEvent(node_id="n", label="frost", node_type="root_cause"), id="node"
        ),
        pytest.param(CausalEdgeEvent(source_id="frost", target_id="loss"), id="edge"),
    ],
)
def test_a_causal_event_is_among_all_events_as_its_row_says(event: TulipEvent) -> None:
    assert type(event) in get_args(get_args(AllEvents)[0])


# what a hook may assign


def answer_to(run: Run) -> str | None:
    return run.end.final_message


@rows(
    [
        (
            "BeforeModelCallEvent.messages",
            lambda tour: answer_to(tour["BeforeModelCallEvent.messages"]),
            '["something else"]',
        ),
        (
            "AfterModelCallEvent.retry",
            lambda tour: answer_to(tour["AfterModelCallEvent.retry"]),
            "then",
        ),
        (
            "AfterModelCallEvent.response",
            lambda tour: answer_to(tour["AfterModelCallEvent.response"]),
            "the hook's",
        ),
        (
            "BeforeToolCallEvent.arguments",
            lambda tour: tour["BeforeToolCallEvent.arguments"].completes[0].result,
            "42",
        ),
        (
            "BeforeToolCallEvent.cancel: a reason",
            lambda tour: tour["BeforeToolCallEvent.cancel"].completes[0].error,
            "add was not called: not before noon",
        ),
        (
            "BeforeToolCallEvent.cancel: True",
            lambda tour: tour["BeforeToolCallEvent.cancel = True"].completes[0].error,
            "add was not called: not allowed",
        ),
        (
            "AfterToolCallEvent.retry",
            lambda tour: tour["AfterToolCallEvent.retry"].completes[0].result,
            "2",
        ),
        (
            "AfterToolCallEvent.result",
            lambda tour: tour["AfterToolCallEvent.result"].completes[0].result,
            "the hook's",
        ),
    ]
)
def test_a_hook_steers_by_assigning_to_a_writable_field(
    read: Callable[[Tour], object], expected: object, tour: Tour
) -> None:
    assert read(tour) == expected


# common gotchas


def briefly(event: LoopEvent) -> str:
    """With a fallthrough a match over some of the classes is complete for the type checker."""
    match event:
        case ThinkEvent():
            return "thought"
        case TerminateEvent():
            return "end"
        case _:
            return "something else"


def in_full(event: LoopEvent) -> str:
    """Without one every variant has to be handled, and the type checker sees to it."""
    match event:
        case ThinkEvent() | ModelChunkEvent() | ModelCompleteEvent():
            return "the model"
        case ToolStartEvent() | ToolCompleteEvent():
            return "a tool"
        case ReflectEvent() | GroundingEvent():
            return "a judgement"
        case InterruptEvent() | TerminateEvent():
            return "a stop"
        case _:
            assert_never(event)


def test_the_gotcha_of_a_match_that_is_not_exhaustive(tour: Tour) -> None:
    events: list[Any] = [
        event for event in tour["plain"].events if isinstance(event, get_args(LoopEvent))
    ]
    assert [briefly(event) for event in events] == [
        *("thought", "something else", "something else", "thought", "end")
    ]
    assert [in_full(event) for event in events] == [
        *("the model", "a tool", "a tool", "the model", "a stop")
    ]


def test_the_gotcha_that_no_chunks_arrive_unless_they_are_asked_for(tour: Tour) -> None:
    assert tour["long"].of(ModelChunkEvent)
    assert not tour["plain"].of(ModelChunkEvent)


def test_the_gotcha_that_a_chunk_of_a_call_has_no_content(tour: Tour) -> None:
    with_calls = [chunk for chunk in tour["long"].of(ModelChunkEvent) if chunk.tool_calls]
    assert {chunk.content for chunk in with_calls} == {None}
    assert isinstance(with_calls[0].tool_calls[0], ToolCallDelta)


def test_the_gotcha_that_a_reader_who_leaves_gets_no_terminate_event(tour: Tour) -> None:
    assert [event.event_type for event in tour.left_early if event.event_type != "causal_node"] == [
        "think"
    ]


def test_the_gotcha_that_streaming_events_are_frozen_and_hook_events_are_not(tour: Tour) -> None:
    start = tour["plain"].starts[0]
    with pytest.raises(ValidationError):
        start.arguments = {"a": 5}  # type: ignore[misc]
    event = BeforeToolCallEvent("add", "c", start.arguments, 0, tour["plain"].ok.state)
    event.cancel = True
    event.arguments = {"a": 5}
    with pytest.raises(AttributeError):
        event.tool_name = "say"
