"""Every event class: frozen, typed, and the same after any trip."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

import tulip_actors
from tulip_actors import (
    AgentRestartedEvent,
    AllEvents,
    CausalEdgeEvent,
    CausalNodeEvent,
    EventSource,
    GroundingEvent,
    InterruptEvent,
    LoopEvent,
    ModelChunkEvent,
    ModelCompleteEvent,
    NotSerialisable,
    OrchestratorDecisionEvent,
    ReflectEvent,
    RunRecoveredEvent,
    SpecialistCompleteEvent,
    SpecialistStartEvent,
    TerminateEvent,
    ThinkEvent,
    ToolCall,
    ToolCompleteEvent,
    ToolProgressEvent,
    ToolStartEvent,
    TulipEvent,
)
from tulip_actors.core.codec import pack_event, unpack_event
from tulip_actors.core.events import ToolCallDelta

SOURCE = EventSource(
    run_id="run_1",
    parent_run_id="run_0",
    parent_call_id="call_1",
    thread_id="t",
    agent="ä",
    specialist_id="s",
    seq=7,
    node_id="n",
    pid=1,
)
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
CALL = ToolCall("c1", "add", {"a": [1, {"b": None}]}, malformed="{")

FULL: list[TulipEvent] = [
    ThinkEvent(iteration=1, reasoning="ü 🌷", tool_calls=(CALL,), source=SOURCE),
    ToolStartEvent(
        tool_name="add", tool_call_id="c1", arguments={"a": [1]}, parent_call_id="c0", source=SOURCE
    ),
    ToolProgressEvent(
        tool_name="add", tool_call_id="c1", fraction=0.5, message="half", source=SOURCE
    ),
    ToolCompleteEvent(
        tool_name="add",
        tool_call_id="c1",
        result="3",
        duration_ms=1.5,
        queued_ms=0.5,
        worker_pid=2,
        node_id="n",
        parent_call_id="c0",
        source=SOURCE,
    ),
    ModelChunkEvent(
        content="x",
        tool_calls=(ToolCallDelta(index=0, id="c1", name="add", arguments='{"a"'),),
        done=True,
        reasoning="r",
        usage=USAGE,
        stop_reason="stop",
        source=SOURCE,
    ),
    ModelCompleteEvent(
        content="x", tool_calls=(CALL,), usage=USAGE, stop_reason="stop", source=SOURCE
    ),
    ReflectEvent(
        iteration=0,
        assessment="stuck",
        confidence_delta=-0.1,
        new_confidence=0.4,
        guidance="g",
        source=SOURCE,
    ),
    GroundingEvent(
        score=0.5,
        claims_evaluated=2,
        ungrounded_claims=("a",),
        requires_replan=True,
        source=SOURCE,
    ),
    InterruptEvent(
        question="?", options=("y", "n"), interrupt_id="i", metadata={"k": [1]}, source=SOURCE
    ),
    TerminateEvent(
        reason="MaxIterations",
        iterations_used=3,
        final_confidence=0.5,
        total_tool_calls=2,
        final_message="bye",
        usage=USAGE,
        condition="MaxIterations(3)",
        stop_reason="max_iterations",
        source=SOURCE,
    ),
    SpecialistStartEvent(
        specialist_id="s", specialist_type="t", task="do", member_run_id="r", source=SOURCE
    ),
    SpecialistCompleteEvent(
        specialist_id="s",
        specialist_type="t",
        member_run_id="r",
        result="done",
        confidence=0.5,
        duration_ms=1.0,
        source=SOURCE,
    ),
    OrchestratorDecisionEvent(
        decision="correlate", specialists_selected=("s",), reasoning="why", source=SOURCE
    ),
    CausalNodeEvent(node_id="n", label="l", node_type="root", evidence=("e",), source=SOURCE),
    CausalEdgeEvent(
        source_id="a", target_id="b", relationship="causes", confidence=0.5, source=SOURCE
    ),
    RunRecoveredEvent(iteration=2, chunks_discarded=7, source=SOURCE),
    AgentRestartedEvent(restarts=1, runs=("r1", "r2"), source=SOURCE),
]
BARE: list[TulipEvent] = [
    ThinkEvent(iteration=0),
    ToolStartEvent(tool_name="add", tool_call_id="c"),
    ToolCompleteEvent(tool_name="add", tool_call_id="c"),
    ToolProgressEvent(tool_name="add", tool_call_id="c", fraction=0.5),
    ModelChunkEvent(),
    TerminateEvent(reason="complete"),
    SpecialistCompleteEvent(specialist_id="s", member_run_id="r"),
]
EVERY_CLASS = get_args(get_args(AllEvents)[0])
ids = [type(event).__name__ for event in FULL]


def test_the_examples_hold_every_class_of_all_events() -> None:
    assert {type(event) for event in FULL} == set(EVERY_CLASS)


def test_loop_events_are_among_all_events() -> None:
    assert set(get_args(LoopEvent)) < set(EVERY_CLASS)


@pytest.mark.parametrize("event", FULL, ids=ids)
def test_an_event_has_a_value_in_every_field(event: TulipEvent) -> None:
    unset = [name for name in type(event).model_fields if getattr(event, name) is None]
    assert unset in ([], ["error"])


@pytest.mark.parametrize("event", FULL, ids=ids)
def test_no_field_of_an_event_can_be_set(event: TulipEvent) -> None:
    for name in type(event).model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(event, name, None)


def containers(value: object) -> Iterator[Any]:
    """Every dict and list inside a value."""
    if isinstance(value, Mapping):
        yield value
        for inner in value.values():
            yield from containers(inner)
    elif isinstance(value, list | tuple):
        if isinstance(value, list):
            yield value
        for inner in value:
            yield from containers(inner)
    elif isinstance(value, ToolCall):
        yield from containers(value.arguments)


@pytest.mark.parametrize("event", FULL, ids=ids)
def test_nothing_inside_an_event_can_be_changed(event: TulipEvent) -> None:
    for name in type(event).model_fields:
        for container in containers(getattr(event, name)):
            with pytest.raises(TypeError):
                container.clear()


@pytest.mark.parametrize("event", FULL + BARE)
def test_an_event_survives_json(event: TulipEvent) -> None:
    adapter: TypeAdapter[TulipEvent] = TypeAdapter(AllEvents)
    again = adapter.validate_json(event.model_dump_json())
    assert type(again) is type(event)
    assert again == event


@pytest.mark.parametrize("event", FULL + BARE)
def test_an_event_survives_messagepack(event: TulipEvent) -> None:
    again = unpack_event(pack_event(event))
    assert type(again) is type(event)
    assert again == event


@pytest.mark.parametrize("event", FULL + BARE)
def test_an_event_survives_pickle(event: TulipEvent) -> None:
    assert pickle.loads(pickle.dumps(event)) == event


@pytest.mark.parametrize("event", FULL, ids=ids)
def test_what_comes_back_is_as_read_only_as_what_left(event: TulipEvent) -> None:
    again = unpack_event(pack_event(event))
    for name in type(event).model_fields:
        for container in containers(getattr(again, name)):
            with pytest.raises(TypeError):
                container.clear()


@pytest.mark.parametrize("cls", EVERY_CLASS)
def test_every_class_has_a_discriminator_of_its_own_and_is_public(cls: type[TulipEvent]) -> None:
    tag = cls.model_fields["event_type"].default
    assert [c for c in EVERY_CLASS if c.model_fields["event_type"].default == tag] == [cls]
    assert getattr(tulip_actors, cls.__name__) is cls


def test_the_discriminators_are_stable() -> None:
    assert sorted(cls.model_fields["event_type"].default for cls in EVERY_CLASS) == [
        "agent_restarted",
        "causal_edge",
        "causal_node",
        "grounding",
        "interrupt",
        "model_chunk",
        "model_complete",
        "orchestrator_decision",
        "reflect",
        "run_recovered",
        "specialist_complete",
        "specialist_start",
        "terminate",
        "think",
        "tool_complete",
        "tool_progress",
        "tool_start",
    ]


@pytest.mark.parametrize("event", FULL, ids=ids)
def test_a_discriminator_cannot_be_another_classs(event: TulipEvent) -> None:
    with pytest.raises(ValidationError):
        type(event)(**{**event.model_dump(), "event_type": "other"})


def test_the_timestamp_is_utc_and_taken_when_the_event_is_made() -> None:
    before = datetime.now(UTC)
    event = ThinkEvent(iteration=0)
    assert before <= event.timestamp <= datetime.now(UTC)
    assert event.timestamp.utcoffset() == timedelta(0)


def test_content_reads_the_same_text_as_reasoning() -> None:
    assert ThinkEvent(iteration=0, reasoning="x").content == "x"


def test_events_are_matched_by_class_and_field() -> None:
    event: TulipEvent = ToolCompleteEvent(tool_name="add", tool_call_id="c", result="3")
    match event:
        case ToolCompleteEvent(tool_name="add", error=None, result=result):
            assert result == "3"
        case _:
            pytest.fail("not matched")


def test_only_chunks_are_provisional() -> None:
    assert [cls for cls in EVERY_CLASS if cls.provisional] == [ModelChunkEvent]


def test_json_of_an_event_needs_no_custom_encoder() -> None:
    for event in FULL:
        json.dumps(event.model_dump(mode="json"))


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        b"\x01",
        b"\x80",
        b"\x81\xaaevent_type\xa5think",
        b"\x81\xaaevent_type\xa5other",
        b"\x91\x01",
        pack_event(FULL[0])[:-3],
        pack_event(FULL[0]) + b"\x00",
    ],
)
def test_bytes_that_are_no_event_are_refused_by_name(packed: bytes) -> None:
    with pytest.raises(NotSerialisable, match="not an event"):
        unpack_event(packed)


def test_an_event_of_a_newer_release_with_more_fields_can_be_read() -> None:
    data = json.loads(pack_event(FULL[0]))
    again = unpack_event(json.dumps({**data, "field_of_the_future": 1}).encode())
    assert again == FULL[0]
