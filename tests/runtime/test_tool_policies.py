"""What a tool's policy says of its calls. Both runtimes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.policy_tools import (
    NEVER_S,
    POLICY_TOOLS,
    bodies,
    executions,
    most_at_once,
    narrow,
    rests,
)
from tests.runtime.support import collected, eventually, play, script, within
from tulip_actors import Agent, ToolCompleteEvent, ToolProgressEvent
from tulip_actors.testing import FunctionModel


@pytest.fixture(scope="module")
def worker(runtime: str) -> Iterator[Agent]:
    """An agent that plays the script in its prompt, with every tool that has a policy."""
    made = Agent(FunctionModel(play), POLICY_TOOLS, name="worker", runtime=runtime)
    yield made
    asyncio.run(made.stop())


@pytest.mark.parametrize("name", ["flaky", "aflaky"])
async def test_a_tool_with_retries_is_called_again_after_an_error_it_raised(
    worker: Agent, log: Path, name: str
) -> None:
    (done,) = await executions(worker, (name, {"log": str(log), "good_from": 3}))
    assert done.result is not None
    assert done.result.startswith(f"attempt 3, key {done.run_id}:0.0")
    assert len(bodies(log)) == 3


async def test_after_its_retries_the_last_error_is_the_result(worker: Agent, log: Path) -> None:
    (done,) = await executions(worker, ("flaky", {"log": str(log), "good_from": 9}))
    assert done.error == "ValueError: try 3"
    assert len(bodies(log)) == 3


async def test_a_coroutine_whose_time_is_up_may_clean_up(worker: Agent, log: Path) -> None:
    (done,) = await executions(worker, ("cleans_up", {"log": str(log)}))
    assert done.error == "timed out after 0.3 s; its effect may have happened"
    (body,) = bodies(log)
    assert body.ended_at_s - body.began_at_s < 20


async def test_a_coroutine_that_will_not_end_is_left_behind_after_its_grace(
    worker: Agent, log: Path
) -> None:
    (done,) = await executions(worker, ("will_not_end", {"log": str(log)}))
    assert "timed out after 0.3 s" in (done.error or "")


async def test_a_plain_body_sees_that_it_was_cancelled(worker: Agent, log: Path) -> None:
    handle = worker.start(script([("looks", {"log": str(log)})], "never"))
    await eventually(lambda: bool(bodies(log)), "the body has begun")
    handle.cancel()
    assert (await within(handle.result())).stop_reason == "cancelled"
    await eventually(lambda: bodies(log)[0].ended_at_s < NEVER_S, "the body has ended by itself")


async def test_c35_a_tools_bound_holds_over_all_runs_of_its_agent(worker: Agent, log: Path) -> None:
    calls = [("narrow", {"log": str(log)})] * 4
    await asyncio.gather(*(executions(worker, *calls) for _ in range(3)))
    assert len(bodies(log)) == 12
    assert most_at_once(bodies(log)) == 2


async def test_c35_an_agents_bound_holds_over_all_its_tools(runtime: str, log: Path) -> None:
    async with Agent(
        FunctionModel(play), [narrow, rests], runtime=runtime, max_concurrency=1
    ) as agent:
        rest = ("rests", {"log": str(log), "seconds": 0.05})
        through = ("narrow", {"log": str(log)})
        await asyncio.gather(*(executions(agent, rest, through, rest) for _ in range(2)))
    assert len(bodies(log)) == 6
    assert most_at_once(bodies(log)) == 1


async def test_c22_a_call_that_waits_for_calls_gives_its_place_back(
    worker: Agent, log: Path
) -> None:
    (done,) = await executions(worker, ("nested", {"log": str(log), "depth": 3}))
    assert done.result == "ground"


async def test_a_tool_tells_how_far_it_is_and_knows_when_its_time_is_up(worker: Agent) -> None:
    events = await collected(worker.run(script([("tells", {})], "done")))
    (progress,) = [event for event in events if isinstance(event, ToolProgressEvent)]
    (complete,) = [event for event in events if isinstance(event, ToolCompleteEvent)]
    assert (progress.tool_name, progress.tool_call_id) == ("tells", complete.tool_call_id)
    assert (progress.fraction, progress.message) == (0.5, "half way")
    assert events.index(progress) < events.index(complete)
    assert 30 < float(complete.result or 0) <= 60


async def test_c20_fifty_duplicates_of_an_idempotent_call_in_a_turn_execute_once(
    worker: Agent, log: Path
) -> None:
    thread = f"thread {log}"
    turn = [("pays", {"log": str(log), "amount": 1})] * 50
    first = await within(worker.arun(script(turn, "done"), thread_id=thread), 60)
    assert {one.result for one in first.tool_executions} == {"paid 1"}
    assert len(bodies(log)) == 1
    again = await within(worker.arun(script(turn, "done"), thread_id=thread), 60)
    assert {one.result for one in again.tool_executions[-50:]} == {"paid 1"}
    assert len(bodies(log)) == 1


async def test_c20_so_do_fifty_children_and_a_second_run_of_the_thread_executes_none(
    worker: Agent, log: Path
) -> None:
    thread = f"thread {log}"
    turn = [("pays_often", {"log": str(log), "times": 25})] * 2
    for _ in range(2):
        result = await within(worker.arun(script(turn, "done"), thread_id=thread), 60)
        assert result.tool_executions[-1].error is None
        assert result.tool_executions[-1].result.count("paid 1") == 25  # type: ignore[union-attr]
    assert len(bodies(log)) == 1


async def test_c22_a_map_takes_items_from_its_iterator_as_calls_end(
    worker: Agent, log: Path
) -> None:
    arguments = {"log": str(log), "items": 40, "wide": 4}
    (done,) = await executions(worker, ("maps_lazily", arguments))
    assert done.result in ("[40,4]", "[40, 4]")
    assert most_at_once(bodies(log)) <= 4


async def test_c22_a_map_that_is_left_early_stops_the_rest(worker: Agent, log: Path) -> None:
    (done,) = await executions(worker, ("leaves_a_map_early", {"log": str(log)}))
    assert done.result == "0: rested"
    await eventually(
        lambda: all(b.ended_at_s < NEVER_S for b in bodies(log)), "the other has ended"
    )
