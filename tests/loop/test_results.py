"""What a run gives back (C8), and a model that names a tool that is not there (F33)."""

from __future__ import annotations

import pytest

from tulip_actors import Agent, ModelResponse, tool
from tulip_actors.testing import ScriptedModel, text, tool_call, tool_calls

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


@tool
def half(n: int) -> int:
    """Halve an even number."""
    if n % 2:
        raise ValueError("odd")
    return n // 2


async def test_c8_a_result_says_what_was_done_and_what_it_cost() -> None:
    turns = [
        ModelResponse(tool_calls(("half", {"n": 4}), ("half", {"n": 3})), USAGE),
        ModelResponse(text("two"), USAGE),
    ]
    result = await Agent(ScriptedModel(turns), [half], runtime="inline").arun("go")
    assert (result.message, result.text, result.success) == ("two", "two", True)
    assert (result.stop_reason, result.iterations) == ("complete", 2)
    metrics = result.metrics
    assert (metrics.tool_calls, metrics.tool_errors) == (2, 1)
    assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.total_tokens) == (6, 4, 10)
    assert metrics.duration_ms > 0
    assert [one.success for one in result.tool_executions] == [True, False]
    assert result.messages[-1].content == "two"
    assert result.thread_id == result.run_id
    assert result.interrupts == ()


@pytest.mark.parametrize(
    ("options", "stop_reason", "success"),
    [({}, "complete", True), ({"terminal_tools": ["half"]}, "terminal_tool", True)],
)
async def test_c8_success_follows_from_the_stop_reason(
    options: dict[str, list[str]], stop_reason: str, success: bool
) -> None:
    model = ScriptedModel([tool_call("half", n=4), text("two")])
    result = await Agent(model, [half], runtime="inline", **options).arun("go")  # type: ignore[arg-type]
    assert (result.stop_reason, result.success) == (stop_reason, success)


async def test_c8_a_run_stopped_by_its_cap_is_no_success() -> None:
    model = ScriptedModel([tool_call("half", n=4), text("I gave up")])
    result = await Agent(model, [half], runtime="inline", max_iterations=1).arun("go")
    assert (result.stop_reason, result.success, result.text) == (
        "max_iterations",
        False,
        "I gave up",
    )


async def test_f33_an_unknown_tool_name_is_an_error_that_lists_the_tools(runtime: str) -> None:
    model = ScriptedModel([tool_call("quarter", n=4), text("then not")])
    async with Agent(model, [half], runtime=runtime) as agent:
        result = await agent.arun("go")
    (told,) = [message.content for message in result.messages if message.is_error]
    assert "quarter" in told
    assert "half" in told
    assert (result.stop_reason, result.metrics.tool_calls) == ("complete", 0)


async def test_f33_a_model_that_never_stops_naming_it_is_stopped() -> None:
    model = ScriptedModel([tool_call("quarter", n=4)], repeat_last=True)
    result = await Agent(model, [half], runtime="inline").arun("go")
    assert (result.stop_reason, result.iterations) == ("tool_loop", 3)
