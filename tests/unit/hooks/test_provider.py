"""C27: the four protected events, and the provider itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import tulip_actors.core.events
import tulip_actors.hooks
from tulip_actors import AgentState, Message, ModelResponse
from tulip_actors.core.frozen import freeze_object
from tulip_actors.hooks import (
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookPriority,
    HookProvider,
)
from tulip_actors.hooks.provider import ProtectedEvent

STATE = AgentState("run", "thread", "agent")
ARGUMENTS = freeze_object({"a": [1]}, "arguments")
RESPONSE = ModelResponse(Message.assistant("hi"))

MADE: dict[type[ProtectedEvent], Callable[[], Any]] = {
    BeforeModelCallEvent: lambda: BeforeModelCallEvent([Message.user("x")], 2, STATE),
    AfterModelCallEvent: lambda: AfterModelCallEvent(RESPONSE, 2, 1, STATE),
    BeforeToolCallEvent: lambda: BeforeToolCallEvent("add", "c1", ARGUMENTS, 2, STATE),
    AfterToolCallEvent: lambda: AfterToolCallEvent(
        tool_name="add",
        tool_call_id="c1",
        arguments=ARGUMENTS,
        result="3",
        error=None,
        duration_ms=1.5,
        attempt=1,
        iteration=2,
        state=STATE,
    ),
}
WRITABLE: dict[type[ProtectedEvent], dict[str, object]] = {
    BeforeModelCallEvent: {"messages": [Message.user("y")]},
    AfterModelCallEvent: {"retry": True, "response": ModelResponse(Message.assistant("ho"))},
    BeforeToolCallEvent: {"arguments": {"a": 2}, "cancel": "not today"},
    AfterToolCallEvent: {"retry": True, "result": "4"},
}
"""The page's writable fields, each with a value."""

READ_ONLY: dict[type[ProtectedEvent], set[str]] = {
    BeforeModelCallEvent: {"iteration", "state"},
    AfterModelCallEvent: {"iteration", "attempt", "state"},
    BeforeToolCallEvent: {"tool_name", "tool_call_id", "iteration", "state"},
    AfterToolCallEvent: {
        *("tool_name", "tool_call_id", "arguments", "error", "duration_ms"),
        *("attempt", "iteration", "state"),
    },
}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [(kind, *one) for kind, fields in WRITABLE.items() for one in fields.items()],
    ids=lambda one: one.__name__ if isinstance(one, type) else str(one)[:20],
)
def test_the_pages_writable_fields_can_be_assigned(
    kind: type[ProtectedEvent], field: str, value: object
) -> None:
    event = MADE[kind]()
    setattr(event, field, value)
    assert getattr(event, field) == value


@pytest.mark.parametrize(
    ("kind", "field"),
    [(kind, field) for kind, fields in READ_ONLY.items() for field in sorted(fields)],
    ids=lambda one: one.__name__ if isinstance(one, type) else str(one)[:20],
)
def test_any_other_field_refuses_assignment_and_keeps_its_value(
    kind: type[ProtectedEvent], field: str
) -> None:
    event = MADE[kind]()
    before = getattr(event, field)
    with pytest.raises(AttributeError, match=rf"{kind.__name__}\.{field} is read-only") as refused:
        setattr(event, field, "x")
    assert getattr(event, field) is before
    for name in WRITABLE[kind]:
        assert name in str(refused.value), "it says what may be assigned"


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("name", ["abort", "_state", "writable", "__class__", "retries"])
def test_a_name_that_is_no_field_is_refused_too(kind: type[ProtectedEvent], name: str) -> None:
    event = MADE[kind]()
    with pytest.raises(AttributeError):
        setattr(event, name, True)


@pytest.mark.parametrize("kind", MADE)
def test_a_field_cannot_be_deleted(kind: type[ProtectedEvent]) -> None:
    event = MADE[kind]()
    for field in ("state", *WRITABLE[kind]):
        with pytest.raises(AttributeError):
            delattr(event, field)
        assert hasattr(event, field)


def test_a_field_that_is_writable_elsewhere_is_not_writable_here() -> None:
    with pytest.raises(AttributeError):
        MADE[BeforeModelCallEvent]().retry = True
    with pytest.raises(AttributeError):
        MADE[AfterToolCallEvent]().cancel = True


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("method", ["retry", "cancel", "replace_arguments"])
def test_steering_is_by_assignment_there_are_no_methods(
    kind: type[ProtectedEvent], method: str
) -> None:
    assert not callable(getattr(MADE[kind](), method, None))


def test_every_field_is_either_writable_or_read_only() -> None:
    for kind, make in MADE.items():
        assert set(vars(make())) == set(WRITABLE[kind]) | READ_ONLY[kind]


def test_nothing_is_steered_until_a_hook_does() -> None:
    assert MADE[AfterModelCallEvent]().retry is False
    assert MADE[AfterToolCallEvent]().retry is False
    assert MADE[BeforeToolCallEvent]().cancel is False


def test_the_arguments_of_a_call_cannot_be_changed_in_place() -> None:
    event = MADE[BeforeToolCallEvent]()
    with pytest.raises(TypeError, match="read-only"):
        event.arguments["a"] = 2
    with pytest.raises(TypeError, match="read-only"):
        event.arguments["a"].append(2)


def test_hook_events_are_no_stream_events() -> None:
    for kind in MADE:
        assert not issubclass(kind, tulip_actors.core.events.TulipEvent)
        assert not hasattr(tulip_actors.core.events, kind.__name__)
        assert kind.__name__ in tulip_actors.hooks.__all__


def test_the_provider_has_the_pages_eight_callbacks_and_on_event() -> None:
    callbacks = {name for name in vars(HookProvider) if name.startswith("on_")}
    pairs = ("invocation", "tool_call", "model_call")
    assert callbacks == {
        *(f"on_{when}_{what}" for when in ("before", "after") for what in pairs),
        "on_iteration_start",
        "on_iteration_end",
        "on_event",
    }


def test_the_callbacks_take_what_the_page_says() -> None:
    def names(callback: str) -> list[str]:
        return list(inspect.signature(getattr(HookProvider, callback)).parameters)[1:]

    assert names("on_before_invocation") == ["prompt", "state"]
    assert names("on_after_invocation") == ["state", "success"]
    assert names("on_iteration_start") == names("on_iteration_end") == ["iteration", "state"]
    for what in ("tool", "model"):
        assert names(f"on_before_{what}_call") == names(f"on_after_{what}_call") == ["event"]


def test_a_plain_provider_does_nothing() -> None:
    hook: Any = HookProvider()
    assert hook.on_before_invocation("x", STATE) is None
    assert hook.on_after_invocation(STATE, True) is None
    assert hook.on_iteration_start(0, STATE) is None
    for kind, callback in (
        (BeforeModelCallEvent, hook.on_before_model_call),
        (AfterModelCallEvent, hook.on_after_model_call),
        (BeforeToolCallEvent, hook.on_before_tool_call),
        (AfterToolCallEvent, hook.on_after_tool_call),
    ):
        assert callback(MADE[kind]()) is None


def test_priorities_are_whole_numbers_lower_first() -> None:
    assert HookPriority.FIRST < HookPriority.EARLY < HookPriority.NORMAL
    assert HookPriority.NORMAL < HookPriority.LATE < HookPriority.LAST
    assert HookProvider.priority == HookPriority.NORMAL
    assert int(HookPriority.NORMAL) == 50
