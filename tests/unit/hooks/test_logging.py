"""LoggingHook and StructuredLoggingHook: what happened, never what was said."""

from __future__ import annotations

import json
import logging
import pickle
from typing import Any

import pytest

from tulip_actors import (
    Agent,
    HookProvider,
    InterruptEvent,
    ModelChunkEvent,
    ReflectEvent,
    SpecialistStartEvent,
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    tool,
)
from tulip_actors.core.messages import ToolCall
from tulip_actors.hooks import HookPriority
from tulip_actors.hooks.builtin import LoggingHook, StructuredLoggingHook
from tulip_actors.testing import ScriptedModel, tool_call, tool_calls

SECRET = "4929-1234"


@tool
def look_up(card: str) -> str:
    """Find a card."""
    return f"card {SECRET} of {card}"


@tool
def refuses(card: str) -> str:
    """Fail, and say why."""
    raise ValueError(f"no card {SECRET}")


def an_agent(*hooks: HookProvider) -> Agent:
    turns: list[Any] = [
        tool_calls(("look_up", {"card": SECRET}), ("refuses", {"card": SECRET})),
        tool_call("look_up", number=SECRET),
        f"your card is {SECRET}",
    ]
    return Agent(
        ScriptedModel(turns),
        [look_up, refuses],
        f"The card is {SECRET}.",
        hooks=hooks,
        reflexion=True,
        name="clerk",
    )


@pytest.mark.parametrize("hook", [LoggingHook(), StructuredLoggingHook()], ids=type)
async def test_no_argument_result_error_or_text_is_ever_logged(
    hook: HookProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await an_agent(hook).arun(f"my card is {SECRET}", metadata={"card": SECRET}, stream_tokens=True)
    assert len(caplog.records) >= 10
    assert SECRET not in caplog.text
    assert all(SECRET not in str(record.__dict__) for record in caplog.records)


async def test_a_run_is_one_line_per_step_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    result = await an_agent(LoggingHook()).arun("x")
    lines = [record.getMessage() for record in caplog.records if record.name == "tulip_actors.run"]
    assert all(result.run_id in line for line in lines)
    assert [line.split()[1] for line in lines] == [
        *("think", "tool_start", "tool_start", "tool_complete", "tool_complete", "reflect"),
        *("think", "tool_start", "tool_complete", "reflect", "think", "terminate"),
    ]
    assert "stop_reason=complete" in lines[-1]
    assert "turns=3" in lines[-1]


async def test_a_structured_line_is_a_json_object(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    result = await an_agent(StructuredLoggingHook()).arun("x")
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert {line["run_id"] for line in lines} == {result.run_id}
    assert lines[0] == {
        "event": "think",
        "run_id": result.run_id,
        "iteration": 0,
        "tool_calls": ["look_up", "refuses"],
    }
    done = [line for line in lines if line["event"] == "tool_complete"]
    assert {line["tool"]: line["ok"] for line in done[:2]} == {"look_up": True, "refuses": False}
    assert all(line["ms"] >= 0 for line in done)
    assert {k: v for k, v in lines[-1].items() if k != "run_id"} == {
        "event": "terminate",
        "reason": "complete",
        "stop_reason": "complete",
        "turns": 3,
    }


async def test_lines_come_at_info_by_default_and_at_the_level_that_is_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    await an_agent(StructuredLoggingHook()).arun("x")
    assert {record.levelno for record in caplog.records if "run_id" in record.getMessage()} == {
        logging.INFO
    }
    caplog.clear()
    await an_agent(LoggingHook("mine", logging.WARNING)).arun("x")
    mine = [record for record in caplog.records if record.name == "mine"]
    assert mine
    assert {record.levelno for record in mine} == {logging.WARNING}


async def test_a_logger_that_is_off_costs_the_run_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    assert (await an_agent(LoggingHook()).arun("x")).stop_reason == "complete"
    assert not caplog.records


EVENTS: list[tuple[Any, dict[str, object] | None]] = [
    (
        ThinkEvent(
            iteration=1, reasoning=SECRET, tool_calls=(ToolCall("c", "add", {"a": SECRET}),)
        ),
        {"iteration": 1, "tool_calls": ["add"]},
    ),
    (
        ToolStartEvent(tool_name="add", tool_call_id="c", arguments={"a": SECRET}),
        {"tool": "add", "call": "c"},
    ),
    (
        ToolCompleteEvent(tool_name="add", tool_call_id="c", result=SECRET, duration_ms=1.26),
        {"tool": "add", "call": "c", "ok": True, "ms": 1.3},
    ),
    (
        ToolCompleteEvent(tool_name="add", tool_call_id="c", error=SECRET),
        {"tool": "add", "call": "c", "ok": False, "ms": 0.0},
    ),
    (
        ReflectEvent(
            iteration=0, assessment="stuck", confidence_delta=0, new_confidence=0.1, guidance=SECRET
        ),
        {"assessment": "stuck", "confidence": 0.1},
    ),
    (InterruptEvent(question=SECRET, interrupt_id="i"), {"interrupt": "i"}),
    (
        TerminateEvent(reason="complete", final_message=SECRET, iterations_used=2),
        {"reason": "complete", "stop_reason": "complete", "turns": 2},
    ),
    (ModelChunkEvent(content=SECRET), None),
    (SpecialistStartEvent(specialist_id="s", task=SECRET, member_run_id="r"), None),
]


@pytest.mark.parametrize(("event", "facts"), EVENTS, ids=lambda one: type(one).__name__)
def test_what_is_logged_of_an_event(event: Any, facts: dict[str, object] | None) -> None:
    from tulip_actors.hooks.builtin.logging import facts_of

    assert facts_of(event) == facts


def test_outside_of_a_run_a_line_has_no_run_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    LoggingHook().on_event(ToolStartEvent(tool_name="add", tool_call_id="c"))
    assert caplog.records[0].getMessage() == "- tool_start tool=add call=c"


def test_logging_hooks_come_last_and_can_travel_to_an_actor() -> None:
    for kind in (LoggingHook, StructuredLoggingHook):
        hook = pickle.loads(pickle.dumps(kind("mine", logging.DEBUG)))
        assert (hook.logger, hook.level, hook.priority) == ("mine", 10, HookPriority.LAST)
