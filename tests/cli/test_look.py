"""`ps` and `events`: another process sees the agents of a cluster, and its events."""

from __future__ import annotations

import json
import os

from patterns import Orchestrator, Specialist
from tulip_actors import Agent, tool
from tulip_actors.testing import ScriptedModel, text, tool_call


@tool
def double(x: int) -> int:
    """Twice as much."""
    return 2 * x


def member() -> ScriptedModel:
    return ScriptedModel([tool_call("double", x=2), text("four")])


async def test_c37_another_process_sees_the_same_events_in_the_same_order(ray_cluster, cli):
    specialists = [Specialist(id=name, tools=[double], model=member()) for name in ("a", "b")]
    async with Orchestrator(name="seen", specialists=specialists) as team:
        events = [event async for event in team.run("go")]
        run_ids = sorted({event.source.run_id for event in events if event.source})
        assert len(run_ids) == 3
        done = cli.run("events", "--address", ray_cluster, "--json")
        assert done.returncode == 0, done.stderr
        told = [json.loads(line) for line in done.stdout.splitlines()]
        for run_id in run_ids:
            ours = [e for e in events if e.source and e.source.run_id == run_id]
            theirs = [e for e in told if e["source"]["run_id"] == run_id]
            assert theirs == [json.loads(event.model_dump_json()) for event in ours]

        one = cli.run("events", "--address", ray_cluster, "--run", run_ids[0], "--type", "think")
        thoughts = [e for e in told if e["event_type"] == "think"]
        assert len(one.stdout.splitlines()) == sum(
            e["source"]["run_id"] == run_ids[0] for e in thoughts
        )


async def test_following_events_ends_quietly_with_ctrl_c(ray_cluster, cli):
    async with Agent(member(), [double], name="followed") as agent:
        await agent.arun("go")
        follow = cli.start(
            *("events", "--follow", "--address", ray_cluster),
            *("--agent", "followed", "--type", "tool_complete"),
            TULIP_QUIET="1",
        )
        assert "✓ double" in follow.stdout.readline()
        await agent.arun("again")
        assert "✓ double" in follow.stdout.readline()
        os.killpg(follow.pid, 2)
        out, err = follow.communicate(timeout=20)
        assert (follow.returncode, out, err) == (0, "", "")


async def test_ps_lists_agents_with_their_processes(ray_cluster, cli):
    async with Agent(member(), [double], name="listed") as agent:
        await agent.arun("go")
        status = await agent.observe()
        done = cli.run("ps", "--address", ray_cluster, "--json")
        assert done.returncode == 0, done.stderr
        (row,) = [
            one for line in done.stdout.splitlines() if (one := json.loads(line))["id"] == agent.id
        ]
        assert row == {
            "name": "listed", "id": agent.id, "pid": status.pid, "node_id": status.node_id,
            "restarts": 0, "active_runs": 0, "queued": 0, "answers": True,
        }  # fmt: skip
        table = cli.run("ps", "--address", ray_cluster).stdout
        (line,) = [line for line in table.splitlines() if agent.id in line]
        assert line.split() == [
            "listed", agent.id, status.node_id[:8], str(status.pid), "0", "0", "0"
        ]  # fmt: skip
