"""C1, C2, C3: the value that flows through the loop."""

from __future__ import annotations

import dataclasses
import inspect
import json
import pickle
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgpack
import pytest

from tulip_actors import AgentState, Message, NotSerialisable, ToolCall, ToolExecution
from tulip_actors.core.history import History
from tulip_actors.core.state import ReasoningStep


def a_state(**fields: Any) -> AgentState:
    return AgentState("run", "thread", "agent", **fields)


EXECUTION = ToolExecution("add", "c1", {"a": [1]}, result="3", run_id="run")

UPDATES: dict[str, Callable[[AgentState], AgentState]] = {
    "with_message": lambda s: s.with_message(Message.user("x")),
    "with_messages": lambda s: s.with_messages(Message.user("x"), Message.user("y")),
    "with_tool_execution": lambda s: s.with_tool_execution(EXECUTION),
    "with_reasoning_step": lambda s: s.with_reasoning_step(ReasoningStep(0, "x")),
    "next_iteration": lambda s: s.next_iteration(),
    "with_confidence": lambda s: s.with_confidence(0.5),
    "adjust_confidence": lambda s: s.adjust_confidence(0.5),
    "with_error": lambda s: s.with_error("x"),
    "with_metadata": lambda s: s.with_metadata("k", 1),
    "with_token_usage": lambda s: s.with_token_usage({"prompt_tokens": 1, "completion_tokens": 2}),
}


def full_state() -> AgentState:
    state = a_state(metadata={"a": {"b": [1, None]}})
    for update in UPDATES.values():
        state = update(state)
    call = ToolCall("c1", "add", {"a": 1}, malformed="{")
    return state.with_message(Message.assistant("ü 🌷", (call,), "because"))


def test_c1_the_state_has_the_fields_of_the_contract() -> None:
    names = {field.name for field in dataclasses.fields(AgentState)}
    assert names >= {
        "run_id",
        "thread_id",
        "agent_id",
        "messages",
        "tool_executions",
        "reasoning_steps",
        "iteration",
        "confidence",
        "confidence_history",
        "total_tokens_used",
        "prompt_tokens_used",
        "completion_tokens_used",
        "errors",
        "metadata",
        "started_at",
        "updated_at",
    }


def test_c1_every_update_of_the_contract_exists() -> None:
    assert all(callable(getattr(AgentState, name)) for name in UPDATES)


@pytest.mark.parametrize("name", list(UPDATES))
def test_c1_an_update_gives_a_new_state_and_leaves_the_old_one(name: str) -> None:
    before = a_state()
    kept = pickle.dumps(before)
    after = UPDATES[name](before)
    assert after is not before
    assert after != before
    assert pickle.loads(kept) == before


def test_c1_no_field_can_be_set() -> None:
    state = a_state()
    for field in dataclasses.fields(state):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(state, field.name, None)


def test_c1_metadata_is_checked_on_entry_with_path_and_type() -> None:
    with pytest.raises(NotSerialisable, match=r"metadata\.user\.client is a builtins\.object"):
        a_state(metadata={"user": {"client": object()}})


def test_c1_metadata_set_later_is_checked_too() -> None:
    with pytest.raises(NotSerialisable, match=r"metadata\.client\[0\] is a builtins\.object") as e:
        a_state().with_metadata("client", [object()])
    assert e.value.path == "metadata.client[0]"


def test_c1_a_metadata_key_must_be_text() -> None:
    with pytest.raises(NotSerialisable, match="key"):
        a_state().with_metadata(1, "x")  # type: ignore[arg-type]


def test_c1_metadata_is_handed_out_read_only() -> None:
    state: Any = a_state(metadata={"a": {"b": [1]}})
    for change in (
        lambda: state.metadata.update(a=1),
        state.metadata["a"].clear,
        lambda: state.metadata["a"]["b"].append(2),
    ):
        with pytest.raises(TypeError, match="read-only"):
            change()


def test_c1_metadata_is_a_copy_of_what_was_given() -> None:
    given = {"a": [1]}
    state = a_state(metadata=given)
    given["a"].append(2)
    assert state.metadata == {"a": [1]}


def test_c1_arguments_of_an_execution_are_checked_and_read_only() -> None:
    with pytest.raises(NotSerialisable, match=r"arguments of add\.a is a builtins\.object"):
        ToolExecution("add", "c", {"a": object()})  # type: ignore[dict-item]
    execution: Any = EXECUTION
    with pytest.raises(TypeError, match="read-only"):
        execution.arguments["a"].append(2)


@pytest.mark.parametrize(
    ("asked", "got"), [(0.4, 0.4), (1.7, 1.0), (-3.0, 0.0), (float("inf"), 1.0)]
)
def test_c1_confidence_is_clamped(asked: float, got: float) -> None:
    state = a_state().with_confidence(asked)
    assert state.confidence == got
    assert state.confidence_history == [got]


def test_c1_adjusting_confidence_stays_within_bounds() -> None:
    state = a_state().adjust_confidence(0.7).adjust_confidence(0.7).adjust_confidence(-5)
    assert state.confidence_history == [0.7, 1.0, 0.0]


def test_with_metadata_replaces_one_entry() -> None:
    state = a_state(metadata={"a": 1, "b": 2}).with_metadata("a", [3])
    assert state.metadata == {"a": [3], "b": 2}


def test_token_usage_adds_up() -> None:
    state = a_state()
    assert state.usage is None
    for _ in range(2):
        state = state.with_token_usage({"prompt_tokens": 3, "completion_tokens": 4})
    assert state.usage == {"prompt_tokens": 6, "completion_tokens": 8, "total_tokens": 14}


def test_a_total_that_the_provider_reports_is_believed() -> None:
    state = a_state().with_token_usage(
        {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 10}
    )
    assert state.total_tokens_used == 10


def test_unmetered_is_not_zero() -> None:
    assert a_state().with_token_usage(None).usage is None
    assert a_state().with_token_usage({"prompt_tokens": 0, "completion_tokens": 0}).usage == {
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "total_tokens": 0,
    }


def test_next_iteration_counts_and_dates() -> None:
    state = a_state(updated_at=datetime(2020, 1, 1, tzinfo=UTC)).next_iteration()
    assert state.iteration == 1
    assert state.updated_at.year > 2020


def test_an_execution_without_error_succeeded_even_with_no_result() -> None:
    assert ToolExecution("a", "c", result="null").success
    assert not ToolExecution("a", "c", error="x").success


# C2


def test_c2_messages_read_as_an_ordinary_immutable_sequence() -> None:
    state = a_state().with_messages(Message.user("a"), Message.user("b"))
    assert isinstance(state.messages, Sequence)
    assert state.messages[1].content == "b"
    assert state.messages[-1:] == (Message.user("b"),)
    assert [message.content for message in state.messages] == ["a", "b"]
    assert not hasattr(state.messages, "append")


@pytest.mark.parametrize("name", [name for name in UPDATES if name != "with_confidence"])
def test_c2_an_update_copies_no_sequence(name: str) -> None:
    state = a_state(messages=History(Message.user(str(n)) for n in range(1000)))
    state = state.with_tool_execution(EXECUTION)
    after = UPDATES[name](state)
    assert after.messages._items is state.messages._items
    assert after.tool_executions._items is state.tool_executions._items


def test_c2_an_update_costs_the_same_at_message_10000_as_at_10() -> None:
    def fastest_s(length: int) -> float:
        """The best of many batches, so that a busy machine does not count."""
        message = Message.user("x")
        times = []
        for _ in range(30):
            state = a_state(messages=History([message] * length))
            began = time.perf_counter()
            for _ in range(50):
                state = state.with_message(message).with_tool_execution(EXECUTION).next_iteration()
            times.append(time.perf_counter() - began)
        return min(times)

    assert fastest_s(10_000) < 3 * fastest_s(10)


def test_two_states_of_one_origin_do_not_see_each_other() -> None:
    origin = a_state().with_message(Message.user("x"))
    left = origin.with_message(Message.user("left"))
    right = origin.with_message(Message.user("right"))
    assert [m.content for m in left.messages] == ["x", "left"]
    assert [m.content for m in right.messages] == ["x", "right"]
    assert len(origin.messages) == 1


# C3


def test_c3_the_state_has_no_rule_that_decides() -> None:
    public = {name for name, _ in inspect.getmembers(AgentState) if not name.startswith("_")}
    fields = {field.name for field in dataclasses.fields(AgentState)}
    updates = {name for name in public if name.startswith(("with_", "next_", "adjust_"))}
    views = {"usage", "executions_of_turn", "said_last"}
    assert public - fields - updates == views | {"to_checkpoint", "from_checkpoint"}


def test_c3_the_views_are_parts_of_the_data() -> None:
    state = a_state(messages=History([Message.user("earlier"), Message.user("x")]))
    state = dataclasses.replace(state, opening_length=2)
    assert (list(state.said_last()), state.executions_of_turn) == ([], ())
    state = state.with_messages(Message.assistant("a"), Message.assistant("b"))
    state = state.with_tool_execution(EXECUTION)
    assert [message.content for message in state.said_last()] == ["b", "a"]
    assert state.executions_of_turn == (EXECUTION,)
    assert state.next_iteration().executions_of_turn == ()


# checkpoints


def test_c1_a_checkpoint_reads_back_to_an_equal_state() -> None:
    state = full_state()
    assert AgentState.from_checkpoint(state.to_checkpoint()) == state


def test_c1_a_checkpoint_is_json_and_messagepack() -> None:
    state = full_state()
    checkpoint = state.to_checkpoint()
    assert AgentState.from_checkpoint(json.loads(json.dumps(checkpoint))) == state
    assert AgentState.from_checkpoint(msgpack.unpackb(msgpack.packb(checkpoint))) == state


def test_a_restored_state_goes_on() -> None:
    state = AgentState.from_checkpoint(full_state().to_checkpoint())
    longer = state.with_message(Message.user("more")).with_metadata("k", [2]).next_iteration()
    assert len(longer.messages) == len(state.messages) + 1
    assert isinstance(longer.messages, History)
    metadata: Any = longer.metadata
    with pytest.raises(TypeError, match="read-only"):
        metadata["a"]["b"].append(1)


@pytest.mark.parametrize("version", [None, 0, 2, "1"])
def test_a_checkpoint_of_another_release_is_refused_by_version(version: object) -> None:
    checkpoint: dict[str, Any] = {**full_state().to_checkpoint(), "version": version}
    with pytest.raises(NotSerialisable, match="another release"):
        AgentState.from_checkpoint(checkpoint)


def test_a_torn_checkpoint_is_refused_with_the_path_of_what_is_wrong() -> None:
    checkpoint: Any = full_state().to_checkpoint()
    checkpoint["messages"][0]["role"] = "nobody"
    with pytest.raises(NotSerialisable) as refused:
        AgentState.from_checkpoint(checkpoint)
    assert refused.value.path == "messages.0.role"


def test_a_checkpoint_with_a_missing_field_is_refused() -> None:
    checkpoint: Any = full_state().to_checkpoint()
    del checkpoint["run_id"]
    with pytest.raises(NotSerialisable, match="run_id"):
        AgentState.from_checkpoint(checkpoint)


def test_a_state_survives_pickle() -> None:
    state = full_state()
    assert pickle.loads(pickle.dumps(state)) == state
