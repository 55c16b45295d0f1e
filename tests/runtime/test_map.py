"""C22: calls that a tool makes. Both runtimes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.support import (
    assert_well_formed,
    collected,
    eventually,
    exists,
    script,
    was_stopped,
    within,
)
from tulip_actors import Agent, ToolCompleteEvent, ToolStartEvent


async def value_of(agent: Agent, name: str, **arguments: Any) -> Any:
    """What a tool that makes calls returned."""
    result = await within(agent.arun(script([(name, arguments)], "done")), 60)
    (execution,) = result.tool_executions
    assert execution.error is None
    return json.loads(execution.result or "")


async def error_of(agent: Agent, name: str, **arguments: Any) -> str:
    """What a tool that makes calls failed with."""
    result = await within(agent.arun(script([(name, arguments)], "done")))
    (execution,) = result.tool_executions
    assert execution.error is not None
    return execution.error


@pytest.mark.parametrize("name", ["total", "atotal", "total_sync"])
async def test_c22_map_gives_values_in_the_items_order(agent: Agent, name: str) -> None:
    assert await value_of(agent, name, n=5) == 20


async def test_c22_the_model_sees_one_call_and_its_result(agent: Agent) -> None:
    result = await within(agent.arun(script([("total", {"n": 3})], "done")))
    assert [message.role for message in result.messages[-3:]] == ["assistant", "tool", "assistant"]
    assert (len(result.tool_executions), result.metrics.tool_calls) == (1, 1)


async def test_c22_children_have_events_of_their_own_under_their_parent(agent: Agent) -> None:
    events = await collected(agent.run(script([("total", {"n": 3})], "done")))
    assert_well_formed(events)
    starts = [event for event in events if isinstance(event, ToolStartEvent)]
    parent, *children = starts
    assert parent.parent_call_id is None
    assert {child.parent_call_id for child in children} == {parent.tool_call_id}
    assert [child.arguments for child in children] == [{"x": 0}, {"x": 1}, {"x": 2}]
    assert len({child.tool_call_id for child in children}) == 3
    completes = {e.tool_call_id: e for e in events if isinstance(e, ToolCompleteEvent)}
    assert [completes[child.tool_call_id].result for child in children] == ["0", "2", "4"]
    assert completes[children[0].tool_call_id].parent_call_id == parent.tool_call_id


@pytest.mark.parametrize("name", ["grand_total", "grand_total_sync"])
async def test_c22_a_map_may_map_again(agent: Agent, name: str) -> None:
    assert await value_of(agent, name, rows=[1, 2, 3, 4]) == 0 + 2 + 6 + 12


async def test_c22_grandchildren_name_their_own_parent(agent: Agent) -> None:
    events = await collected(agent.run(script([("grand_total", {"rows": [1, 1]})], "done")))
    assert_well_formed(events)
    starts = [event for event in events if isinstance(event, ToolStartEvent)]
    (root,) = [start for start in starts if start.tool_name == "grand_total"]
    middle = [start for start in starts if start.tool_name == "total"]
    leaves = [start for start in starts if start.tool_name == "double"]
    assert {start.parent_call_id for start in middle} == {root.tool_call_id}
    assert {leaf.parent_call_id for leaf in leaves} == {start.tool_call_id for start in middle}


async def test_c22_more_waiting_parents_than_slots_do_not_lock_up(agent: Agent) -> None:
    assert await value_of(agent, "grand_total_sync", rows=[1] * 12) == 0


async def test_c22_an_item_may_be_a_mapping_of_arguments(agent: Agent) -> None:
    pairs = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert await value_of(agent, "sums", pairs=pairs) == [3, 7]


async def test_c22_an_item_may_be_a_mapping_that_is_the_one_argument(agent: Agent) -> None:
    mappings = [{"k": 1}, {"k": 1, "l": 2}]
    assert await value_of(agent, "keys_of", mappings=mappings) == [1, 2]


async def test_c22_an_empty_mapping_may_be_the_one_argument(agent: Agent) -> None:
    assert await value_of(agent, "keys_of", mappings=[{}, {"k": 1}]) == [0, 1]


async def test_c22_a_map_over_nothing_gives_nothing(agent: Agent) -> None:
    assert await value_of(agent, "keys_of", mappings=[]) == []


async def test_c22_three_hundred_items_are_three_hundred_calls(agent: Agent) -> None:
    events = await collected(agent.run(script([("atotal", {"n": 300})], "done")))
    assert_well_formed(events)
    starts = [event for event in events if isinstance(event, ToolStartEvent)]
    assert len(starts) == 301
    parent = next(e for e in events if isinstance(e, ToolCompleteEvent) and e.tool_name == "atotal")
    assert parent.result == str(299 * 300)


@pytest.mark.parametrize("name", ["one_call", "one_call_sync"])
async def test_c22_a_single_call_gives_the_value(agent: Agent, name: str) -> None:
    assert await value_of(agent, name, x=4) == 8


async def test_c22_the_first_failure_of_a_map_is_raised(agent: Agent) -> None:
    error = await error_of(agent, "fail_all", messages=["one", "two"])
    assert "fails: ValueError: one" in error


async def test_c22_failures_stand_in_their_items_place_when_asked_for(agent: Agent) -> None:
    values = await value_of(agent, "fail_all", messages=["one", "two"], keep=True)
    assert values == ["ToolError: fails: ValueError: one", "ToolError: fails: ValueError: two"]


async def test_c22_an_item_that_does_not_fit_stands_in_its_place_too(agent: Agent) -> None:
    values = await value_of(agent, "doubles", items=[1, "many", 3], keep=True)
    assert (values[0], values[2]) == ("int: 2", "int: 6")
    assert "valid integer" in values[1]


async def test_c22_an_item_that_does_not_fit_is_named(agent: Agent) -> None:
    assert "valid integer" in await error_of(agent, "doubles", items=[1, "many"])


async def test_a_body_that_ends_before_its_children_leaves_none_open(
    agent: Agent, tmp_path: Path
) -> None:
    mark = tmp_path / "child"
    events = await collected(
        agent.run(script([("leaves_children", {"mark": str(mark)})], "went on"))
    )
    assert_well_formed(events)
    if exists(f"{mark}.started"):
        await eventually(lambda: was_stopped(mark), "the child that was left is stopped")
