"""Laws of the values, for any input."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pydantic import TypeAdapter

from tulip_actors import (
    AgentState,
    AllEvents,
    ConfigError,
    EventSource,
    Message,
    NotSerialisable,
    Role,
    ToolCall,
    ToolExecution,
    TulipEvent,
)
from tulip_actors.agent.event_bus import _cursor, _position
from tulip_actors.agent.handle import Cursor
from tulip_actors.core.calls import CallKey
from tulip_actors.core.codec import pack_event, pack_record, unpack_event, unpack_record
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.events import ThinkEvent
from tulip_actors.core.frozen import freeze
from tulip_actors.core.history import History
from tulip_actors.core.runs import (
    Intent,
    ModelTurn,
    Record,
    RunRequest,
    RunStarted,
    StepDone,
    ToolFinished,
    ToolIntents,
)
from tulip_actors.core.state import ReasoningStep
from tulip_actors.core.termination import Ending, TerminationCondition

texts = st.text(max_size=20)
names = st.text(min_size=1, max_size=8)
integers = st.integers(-(2**63), 2**64 - 1)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
json_objects = st.dictionaries(texts, json_values, max_size=4)
times = st.datetimes(timezones=st.just(UTC))
usages = st.none() | st.dictionaries(
    st.sampled_from(["prompt_tokens", "completion_tokens", "total_tokens"]),
    st.integers(0, 10**9),
)
calls = st.builds(ToolCall, texts, texts, json_objects, st.none() | texts)
messages = st.builds(
    Message,
    st.sampled_from(Role),
    texts,
    st.lists(calls, max_size=3).map(tuple),
    st.none() | texts,
    st.none() | texts,
    st.none() | texts,
    st.booleans(),
)
executions = st.builds(
    ToolExecution,
    texts,
    texts,
    json_objects,
    st.none() | texts,
    st.none() | texts,
    st.floats(0, 1e9),
    times,
    st.booleans(),
    texts,
)
keys = st.builds(
    CallKey,
    names,
    st.integers(0, 99),
    st.integers(0, 99),
    st.lists(st.integers(0, 9), max_size=3).map(tuple),
)


# freeze


@given(json_values)
def test_freeze_takes_everything_json_can_say_and_keeps_it(value: Any) -> None:
    frozen = freeze(value)
    assert frozen == value
    assert json.loads(json.dumps(frozen)) == value
    assert msgpack.unpackb(msgpack.packb(frozen)) == value


anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.characters(categories=["Cs", "L"]).map(str)
    | st.binary(max_size=3)
    | st.complex_numbers()
    | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=3)
        | st.frozensets(st.integers(), max_size=2)
    ),
    max_leaves=6,
)


@given(anything)
def test_freeze_takes_exactly_what_can_be_stored_and_read_back(value: Any) -> None:
    path: str | None = None
    try:
        frozen = freeze(value)
    except NotSerialisable as refused:
        path = refused.path or "none"
    else:
        assert msgpack.unpackb(msgpack.packb(frozen)) == frozen
    assert (path is None) == storable(value)
    assert path is None or path.startswith("value")


def storable(value: Any) -> bool:
    """What JSON and MessagePack can both say, by another way of thinking."""
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, list | tuple):
        return all(storable(one) for one in value)
    if isinstance(value, dict):
        return all(isinstance(k, str) and storable(k) and storable(v) for k, v in value.items())
    return False


# events, records, states: any trip


def fields_of(cls: type[TulipEvent]) -> st.SearchStrategy[TulipEvent]:
    """Events of a class with any values."""
    by_type: dict[str, st.SearchStrategy[Any]] = {
        "arguments": json_objects,
        "metadata": json_objects,
        "tool_calls": st.lists(calls, max_size=2).map(tuple),
        "usage": usages,
        "timestamp": times,
        "assessment": st.sampled_from(["on_track", "stuck", "new_findings", "loop_detected"]),
        "decision": st.sampled_from(["invoke_specialist", "correlate", "summarize", "finalize"]),
        "source": st.none()
        | st.builds(
            EventSource,
            run_id=texts,
            parent_run_id=st.none() | texts,
            thread_id=texts,
            agent=texts,
            seq=st.integers(0, 2**31),
            node_id=texts,
            pid=st.integers(0, 2**22),
        ),
    }
    chosen: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in cls.model_fields.items():
        if name == "event_type" or (name == "tool_calls" and cls.__name__ == "ModelChunkEvent"):
            continue
        if name in by_type:
            chosen[name] = by_type[name]
        elif field.annotation is bool:
            chosen[name] = st.booleans()
        elif field.annotation is int or "int" in str(field.annotation):
            chosen[name] = st.integers(0, 2**31)
        elif "float" in str(field.annotation):
            chosen[name] = st.floats(0, 1e9)
        elif "tuple" in str(field.annotation):
            chosen[name] = st.lists(texts, max_size=3).map(tuple)
        else:
            chosen[name] = texts
    return st.builds(cls, **chosen)


all_events = st.one_of([fields_of(cls) for cls in get_args(get_args(AllEvents)[0])])
adapter: TypeAdapter[TulipEvent] = TypeAdapter(AllEvents)


@given(all_events)
def test_any_event_survives_messagepack(event: TulipEvent) -> None:
    assert unpack_event(pack_event(event)) == event


@given(all_events)
def test_any_event_survives_json(event: TulipEvent) -> None:
    assert adapter.validate_json(event.model_dump_json()) == event


@given(all_events)
def test_an_emitted_event_is_the_same_from_either_side(event: TulipEvent) -> None:
    sent = Emitted("r", 0, event=event)
    assert Emitted("r", 0, packed=sent.packed).event == event


@given(st.binary(max_size=60))
def test_any_other_bytes_are_refused_by_name(packed: bytes) -> None:
    for unpack in (unpack_event, unpack_record):
        try:
            unpack(packed)
        except NotSerialisable:
            continue


@given(all_events, st.data())
def test_a_torn_event_is_refused_by_name(event: TulipEvent, data: st.DataObject) -> None:
    packed = pack_event(event)
    with pytest.raises(NotSerialisable):
        unpack_event(packed[: data.draw(st.integers(0, len(packed) - 1))])


requests = st.builds(
    RunRequest,
    texts,
    texts,
    texts,
    json_objects,
    st.booleans(),
    json_objects,
    st.none() | texts,
    st.none() | texts,
    st.none() | texts,
)
seqs = st.integers(0, 2**31)
records: st.SearchStrategy[Record] = st.one_of(
    st.builds(RunStarted, texts, seqs, times, requests),
    st.builds(ModelTurn, texts, seqs, times, texts, messages, usages, st.none() | texts),
    st.builds(
        ToolIntents,
        texts,
        seqs,
        times,
        st.lists(st.builds(Intent, keys, texts, texts, json_objects), max_size=3).map(tuple),
        texts,
    ),
    st.builds(ToolFinished, texts, seqs, times, keys, executions),
    st.builds(StepDone, texts, seqs, times, texts, json_objects),
)


@given(records)
def test_any_record_survives_its_bytes(record: Record) -> None:
    assert unpack_record(pack_record(record)) == record


# state


updates = st.lists(
    st.one_of(
        st.tuples(st.just("with_message"), messages),
        st.tuples(st.just("with_tool_execution"), executions),
        st.tuples(
            st.just("with_reasoning_step"),
            st.builds(ReasoningStep, st.integers(0, 9), texts, st.lists(texts).map(tuple)),
        ),
        st.tuples(st.just("next_iteration")),
        st.tuples(st.just("with_confidence"), st.floats(-2, 2)),
        st.tuples(st.just("adjust_confidence"), st.floats(-2, 2)),
        st.tuples(st.just("with_error"), texts),
        st.tuples(st.just("with_metadata"), texts, json_values),
        st.tuples(st.just("with_token_usage"), usages),
    ),
    max_size=12,
)


def updated(state: AgentState, update: tuple[Any, ...]) -> AgentState:
    """The state after one drawn update."""
    name, *arguments = update
    changed: AgentState = getattr(state, name)(*arguments)
    return changed


def sizes(state: AgentState) -> tuple[int, ...]:
    return (
        len(state.messages),
        len(state.tool_executions),
        len(state.reasoning_steps),
        len(state.errors),
        len(state.confidence_history),
        len(state.metadata),
        state.iteration,
        state.total_tokens_used,
        state.prompt_tokens_used,
        state.completion_tokens_used,
    )


@given(updates)
def test_c1_updates_never_shrink_a_state(drawn: list[tuple[Any, ...]]) -> None:
    state = AgentState("r", "t", "a")
    for update in drawn:
        after = updated(state, update)
        assert all(b >= a for a, b in zip(sizes(state), sizes(after), strict=True))
        assert after.messages[: len(state.messages)] == tuple(state.messages)
        assert 0.0 <= after.confidence <= 1.0
        state = after


@given(updates)
def test_c1_any_state_survives_its_checkpoint(drawn: list[tuple[Any, ...]]) -> None:
    state = AgentState("r", "t", "a", metadata={"k": [1]})
    for update in drawn:
        state = updated(state, update)
    checkpoint = state.to_checkpoint()
    assert AgentState.from_checkpoint(checkpoint) == state
    assert AgentState.from_checkpoint(json.loads(json.dumps(checkpoint))) == state
    assert AgentState.from_checkpoint(msgpack.unpackb(msgpack.packb(checkpoint))) == state


# history, against a model: tuples


class HistoryModel(RuleBasedStateMachine):
    """Any number of histories that share storage, each beside the tuple that it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[History[int], tuple[int, ...]]] = [(History(), ())]

    @rule(which=st.integers(0, 10**6), items=st.lists(st.integers(), max_size=3))
    def append(self, which: int, items: list[int]) -> None:
        history, expected = self.pairs[which % len(self.pairs)]
        self.pairs.append((history.with_items(*items), (*expected, *items)))

    @rule(
        which=st.integers(0, 10**6),
        where=st.builds(
            slice, st.integers(-5, 5), st.none() | st.integers(-5, 5), st.sampled_from([1, -1, 2])
        ),
    )
    def cut(self, which: int, where: slice) -> None:
        history, expected = self.pairs[which % len(self.pairs)]
        assert history[where] == expected[where]

    @invariant()
    def each_is_its_tuple(self) -> None:
        for history, expected in self.pairs:
            assert len(history) == len(expected)
            assert tuple(history) == expected
            assert tuple(reversed(history)) == expected[::-1]
            assert history == expected
            assert hash(history) == hash(expected)
            if expected:
                assert (history[0], history[-1]) == (expected[0], expected[-1])


HistoryModel.TestCase.settings = settings(max_examples=30, stateful_step_count=20)
test_histories_behave_like_tuples = HistoryModel.TestCase


# termination


class Fixed(TerminationCondition):
    """A leaf with a given answer."""

    def __init__(self, name: str, fires: bool) -> None:
        self.name, self.fires = name, fires

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        return self.fires, self.name

    def __repr__(self) -> str:
        return self.name


leaves = st.builds(Fixed, st.sampled_from("abcd"), st.booleans())
trees: st.SearchStrategy[TerminationCondition] = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(inner, inner).map(lambda two: two[0] & two[1])
        | st.tuples(inner, inner).map(lambda two: two[0] | two[1])
    ),
    max_leaves=8,
)
STATE = AgentState("r", "t", "a")


def ending(condition: TerminationCondition) -> Ending | None:
    return condition.ending(STATE)


def fires(condition: TerminationCondition) -> bool:
    return ending(condition) is not None


@given(trees, trees, trees)
def test_and_and_or_obey_the_laws_of_logic(
    a: TerminationCondition, b: TerminationCondition, c: TerminationCondition
) -> None:
    assert fires(a & b) == (fires(a) and fires(b))
    assert fires(a | b) == (fires(a) or fires(b))
    assert fires(a & b) == fires(b & a)
    assert fires(a | b) == fires(b | a)
    assert fires(a & (b | c)) == fires((a & b) | (a & c))
    assert fires(a | (a & b)) == fires(a)


@given(trees, trees, trees)
def test_brackets_change_neither_reason_nor_literal(
    a: TerminationCondition, b: TerminationCondition, c: TerminationCondition
) -> None:
    for left, right in (((a & b) & c, a & (b & c)), ((a | b) | c, a | (b | c))):
        one, two = ending(left), ending(right)
        assert (one and (one.reason, one.stop_reason)) == (two and (two.reason, two.stop_reason))


@given(trees)
def test_check_and_ending_agree(tree: TerminationCondition) -> None:
    found = ending(tree)
    fired, reason = tree.check(STATE)
    assert fired == (found is not None)
    assert found is None or reason == found.reason


@given(trees)
def test_a_reason_names_only_leaves_that_fired(tree: TerminationCondition) -> None:
    def fired(node: Any) -> set[str]:
        if isinstance(node, Fixed):
            return {node.name} if node.fires else set()
        return fired(node.left) | fired(node.right)

    found = ending(tree)
    if found is not None:
        assert set(found.reason.split(" & ")) <= fired(tree)


# cursors


def encoded(content: bytes) -> str:
    """The form in which cursors travel."""
    return base64.urlsafe_b64encode(content).decode()


@given(st.lists(st.tuples(st.sampled_from(["r1", "r2", "ü"]), st.integers(0, 9)), max_size=30))
def test_a_cursor_remembers_what_it_has_passed_after_any_trip(
    entries: list[tuple[str, int]],
) -> None:
    cursor = Cursor()
    seen: dict[str, int] = {}
    for run_id, seq in entries:
        entry = Emitted(run_id, seq, event=ThinkEvent(iteration=0))
        assert cursor.passes(entry) == (seq > seen.get(run_id, -1))
        seen[run_id] = max(seq, seen.get(run_id, -1))
        cursor = Cursor(str(cursor))


@given(st.integers(0, 2**62))
def test_a_bus_cursor_leads_back_to_its_position(position: int) -> None:
    assert _position(_cursor(position)) == position


@given(st.text(max_size=30) | st.binary(max_size=20).map(encoded))
def test_any_other_text_is_no_cursor(text: str) -> None:
    for read in (Cursor, _position):
        with pytest.raises(ConfigError, match="cursor"):
            read(text)


@given(json_values)
def test_a_cursor_with_other_contents_is_refused_by_name(value: Any) -> None:
    try:
        Cursor(encoded(b"r1:" + msgpack.packb(value)))
    except ConfigError:
        return
    assert isinstance(value, dict)


@given(st.datetimes(timezones=st.just(timezone(timedelta(hours=5)))))
def test_a_time_in_another_zone_is_the_same_moment_after_a_trip(moment: datetime) -> None:
    event = ThinkEvent(iteration=0, timestamp=moment)
    assert unpack_event(pack_event(event)).timestamp == moment
