"""Messages and tool calls."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from tulip_actors import Message, NotSerialisable, Role, ToolCall, ToolResult


def test_each_role_has_its_constructor() -> None:
    assert Message.system("a") == Message(Role.SYSTEM, "a")
    assert Message.user("b") == Message(Role.USER, "b")
    call = ToolCall("id", "add", {"a": 1})
    assert Message.assistant("c", (call,), "because") == Message(
        Role.ASSISTANT, "c", (call,), reasoning="because"
    )


def test_a_tool_message_answers_its_call() -> None:
    message = Message.tool(ToolResult("id", "add", "3", is_error=True))
    assert (message.role, message.tool_call_id, message.name) == (Role.TOOL, "id", "add")
    assert (message.content, message.is_error) == ("3", True)


def test_a_role_is_the_text_that_providers_use() -> None:
    assert [str(role) for role in Role] == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize(
    "value", [Message.user("a"), ToolCall("id", "add"), ToolResult("id", "add", "3")]
)
def test_nothing_of_a_message_can_be_changed(value: Any) -> None:
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, None)


def test_a_calls_arguments_are_read_only_and_a_copy() -> None:
    arguments: dict[str, Any] = {"items": [1]}
    kept: Any = ToolCall("id", "add", arguments).arguments
    arguments["items"].append(2)
    assert kept == {"items": [1]}
    with pytest.raises(TypeError, match="read-only"):
        kept["items"].append(3)


def test_arguments_that_json_cannot_hold_are_refused_with_tool_and_path() -> None:
    with pytest.raises(NotSerialisable, match=r"arguments of add\.a\.b is a builtins\.object"):
        ToolCall("id", "add", {"a": {"b": object()}})  # type: ignore[dict-item]


def test_messages_survive_pickle() -> None:
    message = Message.assistant("ü", (ToolCall("1", "add", {"a": [1]}, malformed="{"),), "why")
    assert pickle.loads(pickle.dumps(message)) == message


def test_a_message_is_light() -> None:
    assert not hasattr(Message.user("x"), "__dict__")
    assert not hasattr(ToolCall("1", "add"), "__dict__")
