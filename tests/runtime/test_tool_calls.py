"""What becomes of a model's tool calls, right and wrong ones. Both runtimes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.runtime.support import assert_well_formed, collected, script, within
from tulip_actors import Agent, Role, ToolCompleteEvent, ToolExecution, ToolStartEvent


async def one_call(agent: Agent, name: str, **arguments: Any) -> ToolExecution:
    """The execution of a call that the model makes, in a run that has to go on after it."""
    result = await within(agent.arun(script([(name, arguments)], "went on")))
    assert result.message == "went on"
    (execution,) = result.tool_executions
    return execution


async def refused(agent: Agent, turn: object) -> str:
    """What the model is told of a call that is refused; the run has to go on."""
    events = await collected(agent.run(script(turn, "went on")))
    assert_well_formed(events)
    (complete,) = [event for event in events if isinstance(event, ToolCompleteEvent)]
    assert complete.result is None
    assert complete.error
    return complete.error


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("none", "null"),
        ("pydantic", '{"x":1,"y":2}'),
        ("dataclass", '{"left":"a","right":1}'),
        ("unicode", "grün 🌷 \u0000 日本"),
        ("nested", '{"points":[{"x":1,"y":2}],"set":[1]}'),
        ("empty", ""),
        ("set", "[1]"),
        ("date", '"2026-02-01"'),
        ("array", "[1.0,2.5]"),
    ],
)
async def test_a_tools_value_is_written_down_for_the_model(
    agent: Agent, kind: str, text: str
) -> None:
    execution = await one_call(agent, "gives", kind=kind)
    assert execution.result == text
    assert execution.success


async def test_of_a_long_result_the_model_sees_head_and_tail(agent: Agent) -> None:
    text = (await one_call(agent, "gives", kind="large")).result or ""
    head, mark, tail = text.split("\n")
    assert set(head) == set(tail) == {"ä"}
    assert mark == f"[... {1_000_000 - len(head) - len(tail)} characters left out ...]"
    assert 99_900 < len(text) <= 100_000


async def test_a_tool_without_a_limit_tells_the_model_everything(agent: Agent) -> None:
    assert (await one_call(agent, "gives_all", kind="large")).result == "ä" * 1_000_000


async def test_a_long_error_is_shortened_too(agent: Agent) -> None:
    error = (await one_call(agent, "shouts", times=1000)).error or ""
    assert error.startswith("ValueError: no! no!")
    assert error.endswith("no! ")
    assert 190 < len(error) <= 200


async def test_c22_a_parent_gets_its_childrens_values_typed_and_whole(agent: Agent) -> None:
    kinds = ["none", "bytes", "pydantic", "dataclass", "nested", "set", "date", "array", "large"]
    told = await one_call(agent, "types_of", kinds=kinds)
    types = ["NoneType", "bytes", "Point", "Pair", "dict", "set", "date", "array", "str"]
    assert json.loads(told.result or "") == [[name, True] for name in types]


async def test_bytes_come_as_base64(agent: Agent) -> None:
    assert json.loads((await one_call(agent, "gives", kind="bytes")).result or "") in (
        "_wA=",
        "/wA=",
    )


async def test_c19_a_tool_that_returns_none_succeeded(agent: Agent) -> None:
    events = await collected(agent.run(script([("gives", {"kind": "none"})], "went on")))
    (complete,) = [event for event in events if isinstance(event, ToolCompleteEvent)]
    assert (complete.result, complete.error) == ("null", None)


async def test_text_that_utf8_cannot_hold_does_not_end_the_run(agent: Agent) -> None:
    execution = await one_call(agent, "gives", kind="surrogate")
    assert "file-" in (execution.result or execution.error or "")


async def test_a_raising_tool_is_an_error_for_the_model(agent: Agent) -> None:
    execution = await one_call(agent, "fails", message="out of paper")
    assert (execution.result, execution.error) == (None, "ValueError: out of paper")


async def test_the_model_reads_the_error_in_its_place(agent: Agent) -> None:
    result = await within(agent.arun(script([("fails", {"message": "jam"})], "went on")))
    told = result.messages[-2]
    assert told.role is Role.TOOL
    assert told.is_error
    assert "ValueError: jam" in told.content


async def test_a_huge_error_text_does_not_end_the_run(agent: Agent) -> None:
    execution = await one_call(agent, "fails", message="x" * 500_000)
    assert execution.error


@pytest.mark.parametrize("how", ["exit", "interrupt", "mute", "cancelled"])
async def test_a_body_that_ends_in_an_unusual_way_ends_only_its_call(
    agent: Agent, how: str
) -> None:
    """F2: also one that is cancelled."""
    execution = await one_call(agent, "dies", how=how)
    assert execution.error
    assert "worker died" not in execution.error


async def test_c18_an_unknown_tool_is_answered_with_the_tools_there_are(agent: Agent) -> None:
    error = await refused(agent, [("launch", {})])
    assert "no tool 'launch'" in error
    assert "add, echo" in error


async def test_c18_malformed_arguments_are_answered_with_what_to_send(agent: Agent) -> None:
    error = await refused(agent, {"tool": "add", "malformed": '{"a": 1,'})
    assert "not a JSON object" in error
    assert "a, b" in error


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"a": 1}, "b: Field required"),
        ({"a": 1, "b": "many"}, "b: Input should be a valid integer"),
        ({"a": 1, "b": 2, "c": 3}, "c: Extra inputs are not permitted"),
        ({"a": None, "b": 1.5}, "a: Input should be a valid integer"),
    ],
)
async def test_c18_arguments_that_do_not_fit_are_answered_with_what_is_wrong(
    agent: Agent, arguments: dict[str, Any], problem: str
) -> None:
    error = await refused(agent, [("add", arguments)])
    assert problem in error
    assert "Send a JSON object with: a, b" in error


async def test_c18_a_refused_call_emits_both_events_with_its_raw_arguments(agent: Agent) -> None:
    events = await collected(agent.run(script([("add", {"a": "x"})], "went on")))
    start, complete = events[1:3]
    assert isinstance(start, ToolStartEvent)
    assert isinstance(complete, ToolCompleteEvent)
    assert start.arguments == {"a": "x"}
    assert complete.worker_pid is None


async def test_refused_calls_do_not_count(agent: Agent) -> None:
    turn = [("launch", {}), ("add", {"a": "x"}), ("add", {"a": 1, "b": 1})]
    result = await within(agent.arun(script(turn, "went on")))
    assert result.metrics.tool_calls == 1
    assert [one.result for one in result.tool_executions] == ["2"]


async def test_arguments_are_coerced_before_they_are_announced(agent: Agent) -> None:
    events = await collected(agent.run(script([("add", {"a": "1", "b": 2.0})], "went on")))
    start = events[1]
    assert isinstance(start, ToolStartEvent)
    assert start.arguments == {"a": 1, "b": 2}
    assert [type(value) for value in start.arguments.values()] == [int, int]


async def test_models_and_dataclasses_arrive_as_what_the_signature_names(agent: Agent) -> None:
    execution = await one_call(
        agent, "moves", origin={"x": 1, "y": 2}, by={"left": "a", "right": 3}
    )
    assert execution.result == '{"x":4,"y":2}'
    assert execution.arguments["scale"] == 1.0


async def test_a_number_that_json_cannot_hold_is_refused_to_the_model(agent: Agent) -> None:
    call = {"origin": {"x": 1, "y": 2}, "by": {"left": "a", "right": 3}, "scale": "nan"}
    assert "scale" in await refused(agent, [("moves", call)])


async def test_unicode_arguments_arrive_as_they_were_sent(agent: Agent) -> None:
    text = "日本 🌷 \u0000 \\ \" '"
    assert (await one_call(agent, "echo", text=text)).result == text


async def test_arguments_of_a_megabyte_arrive_whole(agent: Agent) -> None:
    text = "ä" * 500_000
    assert (await one_call(agent, "echo", text=text)).result == text


async def test_results_are_in_call_order_whatever_order_they_came_in(agent: Agent) -> None:
    """C19."""
    turn = [("naps", {"seconds": 0.4}), ("fails", {"message": "x"}), ("add", {"a": 1, "b": 1})]
    result = await within(agent.arun(script(turn, "went on")))
    assert [one.tool_name for one in result.tool_executions] == ["naps", "fails", "add"]
    assert [message.name for message in result.messages[-4:-1]] == ["naps", "fails", "add"]


async def test_completes_are_told_as_they_come(agent: Agent) -> None:
    turn = [("naps", {"seconds": 1.5}), ("add", {"a": 1, "b": 1})]
    events = await collected(agent.run(script(turn, "went on")))
    completes = [event for event in events if isinstance(event, ToolCompleteEvent)]
    assert [event.tool_name for event in completes] == ["add", "naps"]


async def test_f2_a_failing_call_does_not_touch_its_siblings(agent: Agent) -> None:
    """Whether it raises, is cancelled or ends otherwise; each call has its one result."""
    turn = [
        ("fails", {"message": "x"}),
        ("dies", {"how": "cancelled"}),
        ("dies", {"how": "mute"}),
        ("naps", {"seconds": 0.3}),
    ]
    result = await within(agent.arun(script(turn, "went on")))
    assert [one.success for one in result.tool_executions] == [False, False, False, True]
    asked, *told, _ = result.messages[1:][-6:]
    assert [one.tool_call_id for one in told] == [call.id for call in asked.tool_calls]


async def test_f1_plain_tools_run_side_by_side(agent: Agent) -> None:
    turn = [("blocks", {"seconds": 0.5}) for _ in range(4)]
    events = await collected(agent.run(script(turn, "went on")))
    completes = [event for event in events if isinstance(event, ToolCompleteEvent)]
    first, last = completes[0].timestamp, completes[-1].timestamp
    assert len(completes) == 4
    # one after another they would end 0.5 s apart each
    assert (last - first).total_seconds() < 1.0 or agent.runtime == "ray"


async def test_the_same_call_id_twice_in_a_turn_gives_two_results(runtime: str) -> None:
    """C19: the provider's id may repeat."""
    from tests.runtime.support import double
    from tulip_actors.testing import ScriptedModel, tool_call, tool_calls

    turn = tool_calls(
        tool_call("double", x=1, call_id="same"), tool_call("double", x=2, call_id="same")
    )
    async with Agent(ScriptedModel([turn, "done"]), [double], runtime=runtime) as agent:
        result = await within(agent.arun("x"))
        assert [one.result for one in result.tool_executions] == ["2", "4"]


async def test_twenty_calls_in_one_turn_each_get_their_own_result(agent: Agent) -> None:
    """C19."""
    turn = [("double", {"x": n}) for n in range(20)]
    result = await within(agent.arun(script(turn, "went on")), 60)
    assert [one.result for one in result.tool_executions] == [str(2 * n) for n in range(20)]


async def test_times_of_a_call_are_told(agent: Agent) -> None:
    events = await collected(agent.run(script([("naps", {"seconds": 0.2})], "went on")))
    (complete,) = [event for event in events if isinstance(event, ToolCompleteEvent)]
    assert complete.duration_ms >= 190
    assert complete.queued_ms >= 0
