"""Tools that cannot be stopped by asking, and processes that die under their calls. On Ray."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.policy_tools import NEVER_S, POLICY_TOOLS, bodies, executions
from tests.runtime.support import eventually, play, script, within
from tulip_actors import Agent
from tulip_actors.testing import FunctionModel

pytestmark = pytest.mark.usefixtures("ray_cluster")

SOON_S = 20.0
"""`At once`, on a machine that is busy with other things."""


@pytest.fixture(scope="module")
def worker(ray_cluster: str) -> Iterator[Agent]:
    """An agent that plays the script in its prompt, with every tool that has a policy."""
    made = Agent(FunctionModel(play), POLICY_TOOLS, name="worker", runtime="ray")
    yield made
    asyncio.run(made.stop())


def is_gone(pid: int) -> bool:
    """Whether a process has ended."""
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("name", ["sleeps_on", "blocks_in_c", "holds_the_lock", "blocks_its_loop"])
async def test_f15_a_stuck_call_times_out_and_its_process_ends(
    worker: Agent, log: Path, name: str
) -> None:
    began_s = time.monotonic()
    (done,) = await executions(worker, (name, {"log": str(log)}))
    assert time.monotonic() - began_s < SOON_S
    assert done.error == "timed out after 1 s; its effect may have happened"
    (body,) = bodies(log)
    await eventually(lambda: is_gone(body.pid), "its process is gone", SOON_S)


async def test_f15_the_siblings_of_a_stuck_plain_call_are_not_harmed(
    worker: Agent, log: Path
) -> None:
    rest = ("rests", {"log": str(log), "seconds": 3})
    stuck, *others = await executions(worker, ("sleeps_on", {"log": str(log)}), *[rest] * 6)
    assert "timed out" in (stuck.error or "")
    assert [one.result for one in others] == ["rested"] * 6
    assert len(bodies(log)) == 7
    (left,) = [body for body in bodies(log) if body.ended_at_s == NEVER_S]
    await eventually(lambda: is_gone(left.pid), "the stuck one's process is gone", SOON_S)


async def test_c44_a_body_whose_process_dies_is_lost_and_not_called_again(
    worker: Agent, log: Path
) -> None:
    (done,) = await executions(worker, ("dies_once", {"log": str(log)}))
    assert "its effect may have happened" in (done.error or "")
    assert len(bodies(log)) == 1


async def test_a_call_that_can_pass_its_key_on_is_repeated_when_its_process_dies(
    worker: Agent, log: Path
) -> None:
    (done,) = await executions(worker, ("dies_once_with_key", {"log": str(log)}))
    assert done.result == "lived, attempt 2"
    assert len(bodies(log)) == 2


async def test_a_call_that_kills_every_process_is_given_up(worker: Agent, log: Path) -> None:
    (done,) = await executions(worker, ("always_dies", {"log": str(log)}))
    assert "its process ended unexpectedly" in (done.error or "")
    assert len(bodies(log)) == 4


async def test_a_call_that_takes_more_memory_than_its_own_bound_is_ended(
    worker: Agent, log: Path
) -> None:
    rest = ("rests", {"log": str(log), "seconds": 0.2})
    eats = ("eats", {"megabytes": 500})
    modest = ("eats", {"megabytes": 5})
    greedy, small, rested = await executions(worker, eats, modest, rest)
    assert "its memory is 50,000,000" in (greedy.error or "")
    assert (small.result, rested.result) == ("5", "rested")


async def test_a_demand_that_nobody_can_meet_is_an_error_that_names_it(worker: Agent) -> None:
    began_s = time.monotonic()
    (done,) = await executions(worker, ("needs_what_nobody_has", {}))
    assert time.monotonic() - began_s < SOON_S
    assert "no node of the cluster has unobtainium=1" in (done.error or "")


async def test_a_tool_that_computes_has_a_process_for_itself(worker: Agent, log: Path) -> None:
    done = await executions(worker, *[("computes", {"log": str(log)})] * 4)
    assert [one.error for one in done] == [None] * 4
    for one in bodies(log):
        together = [b for b in bodies(log) if b.began_at_s < one.ended_at_s <= b.ended_at_s]
        assert [b.pid for b in together].count(one.pid) == 1
    assert os.getpid() not in {body.pid for body in bodies(log)}


async def test_f15_stuck_calls_in_a_row_leave_nothing_behind(worker: Agent, log: Path) -> None:
    for _ in range(5):
        await executions(worker, ("sleeps_on", {"log": str(log)}))
    pids = {body.pid for body in bodies(log)}
    assert len(bodies(log)) == 5
    await eventually(lambda: all(map(is_gone, pids)), "their processes are gone", SOON_S)


async def test_a_value_that_cannot_be_taken_apart_is_an_error_of_its_call(worker: Agent) -> None:
    (done,) = await executions(worker, ("takes_spoiled", {}))
    assert done.result in ('["ToolError","ToolError"]', '["ToolError", "ToolError"]')


async def test_f13_a_coroutine_with_a_process_of_its_own_may_clean_up_too(
    worker: Agent, log: Path
) -> None:
    handle = worker.start(script([("cleans_up_alone", {"log": str(log)})], "never"))
    await eventually(lambda: bool(bodies(log)), "the body has begun")
    handle.cancel()
    assert (await within(handle.result())).stop_reason == "cancelled"
    assert bodies(log)[0].ended_at_s < NEVER_S
