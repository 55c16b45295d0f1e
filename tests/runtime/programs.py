"""Small programs that tests run in processes of their own.

Each is a function that prints one line of JSON; `python -m tests.runtime.programs NAME [ARG...]`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.runtime.support import ALL_TOOLS, collected, play, script, was_stopped
from tulip_actors import (
    Agent,
    ClusterUnreachable,
    EventBus,
    Message,
    TerminateEvent,
    ToolCompleteEvent,
    ToolContext,
    tool,
)
from tulip_actors.testing import FunctionModel, text, tool_call
from tulip_actors.tools import ToolSpec


def an_agent(**options: Any) -> Agent:
    return Agent(FunctionModel(play), ALL_TOOLS, name="player", **options)


def listen(run_id: str) -> object:
    """Everything the bus has of a run, as another process sees it."""

    async def hears() -> list[dict[str, object]]:
        heard: list[dict[str, object]] = []
        async for record in EventBus.connect().subscribe(run_id=run_id):
            heard.append(record.event.model_dump(mode="json"))
            if isinstance(record.event, TerminateEvent):
                break
        return heard

    return asyncio.run(asyncio.wait_for(hears(), 60))


def ways() -> object:
    """Every way into `run_sync`, on a local Ray that the first run starts, and Ctrl-C at last."""
    agent = an_agent()
    told: dict[str, object] = {"pid": os.getpid()}
    prompt = script([("total", {"n": 4})], "done")
    told["script"] = [agent.run_sync(prompt).message for _ in range(2)]

    async def cell() -> list[str]:
        return [agent.run_sync(script(f"cell {n}")).message for n in range(2)]

    told["notebook"] = asyncio.run(cell())
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(agent.run_sync(script("hi")).message))
    thread.start()
    thread.join(30)
    told["thread"] = said
    told["interrupted"] = interrupted(agent)
    return told


def interrupted(agent: Agent) -> bool:
    """True when Ctrl-C in the middle of `run_sync` is raised and ends the run."""
    with tempfile.TemporaryDirectory() as folder:
        mark = os.path.join(folder, "body")

        def presses_ctrl_c() -> None:
            while not os.path.exists(f"{mark}.started"):
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=presses_ctrl_c, daemon=True).start()
        try:
            agent.run_sync(script([("waits", {"mark": mark})], "never"))
        except KeyboardInterrupt:
            return asyncio.run(becomes_idle(agent)) and was_stopped(mark)
    return False


async def becomes_idle(agent: Agent) -> bool:
    """True once the agent has no active run."""
    for _ in range(300):
        if (await agent.observe()).active_runs == 0:
            return True
        await asyncio.sleep(0.05)
    return False


def own_ray() -> object:
    """A program that has initialised Ray itself, and ends in the middle of a run."""
    import ray

    ray.init(
        address="local",
        namespace="theirs",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
    )

    async def main() -> object:
        agent = an_agent()
        said = (await agent.arun(script([("add", {"a": 1, "b": 1})], "done"))).message
        handle = agent.start(script([("naps", {"seconds": 300})], "never"))
        async for event in handle.events():
            if event.event_type == "tool_start":
                break
        namespace = ray.get_runtime_context().namespace
        return {"pid": os.getpid(), "message": said, "namespace": namespace}

    return asyncio.run(main())


NODES = 4


@tool
def meets(folder: str) -> None:
    """Wait until a call of every node is here."""
    import ray

    (Path(folder) / ray.get_runtime_context().get_node_id()).touch()
    ends_s = time.monotonic() + 60
    while len(list(Path(folder).iterdir())) < NODES and time.monotonic() < ends_s:
        time.sleep(0.02)


@tool
async def spreads(folder: str, items: int, ctx: ToolContext) -> int:
    """One map over many items."""
    return len(await ctx.map(meets, [folder] * items))


@tool(resources={"disk": 1})
def needs_the_disk() -> str:
    """Run where the disk is."""
    return "there"


def four_nodes(folder: str) -> object:
    """Where calls run on four simulated nodes: those of the audit job over a folder, those of one
    map, and those of a tool that needs what only one node has."""
    from ray.cluster_utils import Cluster

    from tulip_actors.cli.load import load
    from tulip_actors.runtime.pickling import by_value

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    special = cluster.add_node(num_cpus=1, resources={"disk": 2})
    os.environ["RAY_ADDRESS"] = cluster.address

    def answer(messages: Sequence[Message], tools: Sequence[ToolSpec] | None) -> Message:
        if not tools:
            ids = ["complexity", "documentation", "risk"]
            return text(json.dumps({"specialists": ids, "reasoning": "all of them"}))
        if messages[-1].role == "tool":
            return text("measured")
        return tool_call(tools[0].name, folder=Path(folder).name)

    async def main() -> object:
        example = load(Path(__file__).parents[2] / "examples" / "audit_team.py")
        for module in example.modules:
            by_value(module)
        calls = [
            ("spreads", {"folder": tempfile.mkdtemp(), "items": 64}),
            *[("needs_the_disk", {})] * 4,
        ]
        async with Agent(
            FunctionModel(play), [spreads, meets, needs_the_disk], name="spread"
        ) as agent:
            again = await collected(agent.run(script(calls, "done")), 90)
        placed = [event for event in again if isinstance(event, ToolCompleteEvent)]
        job = example.job(Path(folder), FunctionModel(answer))
        events = await collected(job.team.run(job.task, metadata=job.metadata), 150)
        completes = [event for event in events if isinstance(event, ToolCompleteEvent)]
        end = events[-1]
        await job.team.stop()
        return {
            "map": sorted({event.node_id or "" for event in placed if event.parent_call_id}),
            "disk": sorted({e.node_id or "" for e in placed if e.tool_name == "needs_the_disk"}),
            "disk_node": special.node_id,
            "failed": [event.error for event in placed if event.error],
            "nodes": sorted({event.node_id or "" for event in completes}),
            "children": sum(event.parent_call_id is not None for event in completes),
            "errors": [event.error for event in completes if event.error],
            "end": end.reason if isinstance(end, TerminateEvent) else None,
        }

    try:
        return asyncio.run(asyncio.wait_for(main(), 190))
    finally:
        import ray

        ray.shutdown()
        cluster.shutdown()


def wrong_address(address: str) -> object:
    """What a program is told that looks for a cluster where there is none."""
    os.environ["RAY_ADDRESS"] = address
    began_s = time.monotonic()
    try:
        an_agent().run_sync(script("hi"))
    except ClusterUnreachable as error:
        return {"message": str(error), "took_s": time.monotonic() - began_s}
    return {"message": "nothing was raised", "took_s": 0}


PROGRAMS: dict[str, Callable[..., object]] = {
    function.__name__: function for function in (listen, ways, own_ray, four_nodes, wrong_address)
}

if __name__ == "__main__":
    wanted, *rest = sys.argv[1:]
    sys.stdout.write(json.dumps(PROGRAMS[wanted](*rest)) + "\n")
