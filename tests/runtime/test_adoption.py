"""Calls outlive who made them: the dispatcher has their outcomes for who asks by key. On Ray."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.policy_tools import NEVER_S, arests, bodies, rests
from tests.runtime.support import eventually, within
from tulip_actors.agent.runtimes import DEFAULT_NAMESPACE
from tulip_actors.core.calls import CallFinished, CallKey, CallScope, CallStatus, ToolRequest
from tulip_actors.core.frozen import FrozenDict
from tulip_actors.runtime.dispatch import DispatcherExecutor
from tulip_actors.runtime.dispatch_link import Client
from tulip_actors.runtime.pickling import pack
from tulip_actors.runtime.spawn import dispatcher_actor, existing_actor, this_job_id, this_node_id

pytestmark = pytest.mark.usefixtures("ray_cluster")

TOOLS = {tool.name: tool for tool in (arests, rests)}


def executor(client_id: str) -> DispatcherExecutor:
    """An executor as an agent's actor has it."""
    node_id = this_node_id()
    name = f"tulip.dispatcher.{this_job_id()}.{node_id}"
    packed = {"tools": pack(TOOLS, "the tools")}
    return DispatcherExecutor(
        Client(client_id, time.time_ns(), packed),
        lambda: dispatcher_actor(name, DEFAULT_NAMESPACE, node_id),
        lambda name: existing_actor(name, DEFAULT_NAMESPACE),
    )


def requests(run_id: str, log: Path, number: int, seconds: float) -> list[ToolRequest]:
    """Calls that take a while, plain ones and coroutines."""
    scope = CallScope(run_id, run_id, "agent", "agent")
    arguments = FrozenDict(log=str(log), seconds=seconds)
    tools = [rests if slot % 2 else arests for slot in range(number)]
    return [
        ToolRequest(
            CallKey(run_id, 0, slot), tool.name, "c", arguments, scope, "tools", tool.policy
        )
        for slot, tool in enumerate(tools)
    ]


class Caller:
    """Makes calls and is killed."""

    async def make(self, run_id: str, log: str, number: int, seconds: float) -> int:
        """Submit calls; returns this process's id once the dispatcher has them."""
        made = executor("caller")
        wanted = requests(run_id, Path(log), number, seconds)
        made.submit(wanted)

        async def are_known() -> bool:
            known = await made.status([request.key for request in wanted])
            return CallStatus.NEVER_SEEN not in known.values()

        await eventually(are_known, "the dispatcher has the calls")
        return os.getpid()


async def outcomes(one: DispatcherExecutor, wanted: list[ToolRequest]) -> dict[CallKey, Any]:
    """Submit calls, which adopts those that are known; their outcomes."""
    one.submit(wanted)
    ended: dict[CallKey, Any] = {}
    async for updates in one.updates():
        for update in updates:
            if isinstance(update, CallFinished):
                ended[update.key] = update.outcome
        if len(ended) == len(wanted):
            return ended
    raise AssertionError("the executor was closed")


async def test_c44_ten_calls_whose_agent_is_killed_end_once_and_are_adopted_by_key(
    tmp_path: Path,
) -> None:
    import ray

    log = tmp_path / "log"
    remote: Any = ray.remote(Caller)
    caller = remote.options(num_cpus=0).remote()
    await within(caller.make.remote("adopted", str(log), 10, 2.0))
    await eventually(lambda: len(bodies(log)) == 10, "all bodies have begun")
    ray.kill(caller)
    another = executor("caller")
    wanted = requests("adopted", log, 10, 2.0)
    ended = await within(outcomes(another, wanted))
    assert {outcome.result for outcome in ended.values()} == {"rested"}
    assert len(bodies(log)) == 10
    assert all(body.ended_at_s < NEVER_S for body in bodies(log))
    again = await within(outcomes(another, wanted))
    assert {outcome.result for outcome in again.values()} == {"rested"}
    assert len(bodies(log)) == 10
    another.release([request.key for request in wanted])

    async def are_forgotten() -> bool:
        known = await another.status([request.key for request in wanted])
        return set(known.values()) == {CallStatus.NEVER_SEEN}

    await eventually(are_forgotten, "what was released is forgotten")
    await another.close()
