"""Inline tools: on Ray their bodies run in the agent's own process, and nothing else changes."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from tests.runtime.support import (
    DEADLINE_S,
    assert_well_formed,
    collected,
    eventually,
    exists,
    play,
    script,
    within,
    write_pid,
)
from tulip_actors import (
    Agent,
    CausalNodeEvent,
    Tool,
    ToolCompleteEvent,
    ToolContext,
    ToolStartEvent,
    interrupt,
    tool,
)
from tulip_actors.testing import FunctionModel, ScriptedModel, tool_calls


@tool(inline=True)
def here(x: int) -> int:
    """Plain, in the agent's process."""
    return x


@tool(inline=True)
async def here_async(ctx: ToolContext) -> str:
    """A coroutine, in the agent's process."""
    ctx.emit(CausalNodeEvent(node_id="n", label="seen", node_type="cause"))
    return ctx.run_id


@tool
def in_a_task(x: int) -> int:
    """In a worker."""
    return x


@tool(inline=True)
def waits_for(path: str) -> str:
    """Block a thread until a file is there."""
    write_pid(f"{path}.started")
    ends_s = time.monotonic() + DEADLINE_S
    while not Path(path).exists():
        assert time.monotonic() < ends_s
        time.sleep(0.01)
    return "it is there"


@tool(inline=True)
async def stays(mark: str) -> None:
    """Wait for ever; leave a mark when that is ended."""
    write_pid(f"{mark}.started")
    try:
        await asyncio.Event().wait()
    finally:
        write_pid(f"{mark}.ended")


@tool(inline=True)
async def maps(n: int, ctx: ToolContext) -> list[object]:
    """Call another tool from the agent's process."""
    return await ctx.map(in_a_task, range(n))


@tool(inline=True)
def asks() -> str:
    """Ask a human."""
    return str(interrupt("Really?"))


TOOLS = [here, here_async, in_a_task, waits_for, stays, maps, asks]


def player(runtime: str, *tools: Tool) -> Agent:
    return Agent(FunctionModel(play), tools or TOOLS, runtime=runtime)


async def test_inline_calls_run_in_the_agents_process_beside_tasks(ray_cluster: str) -> None:
    calls = [("here", {"x": 1}), ("in_a_task", {"x": 2}), ("here_async", {})]
    async with player("ray") as agent:
        events = await collected(agent.run(script(calls, "done")))
        assert_well_formed(events)
        pids = {e.tool_name: e.worker_pid for e in events if isinstance(e, ToolCompleteEvent)}
        assert pids["here"] == pids["here_async"] == (await agent.observe()).pid
        assert pids["in_a_task"] not in (pids["here"], None)
        assert os.getpid() not in pids.values()
        assert any(isinstance(event, CausalNodeEvent) for event in events)


async def test_results_are_the_same_on_both_runtimes(runtime: str) -> None:
    calls = [("here", {"x": 1}), ("in_a_task", {"x": 2}), ("maps", {"n": 3})]
    async with player(runtime) as agent:
        result = await within(agent.arun(script(calls, "done")))
        assert [one.result for one in result.tool_executions] == ["1", "2", "[0,1,2]"]


async def test_an_agent_with_inline_tools_alone_works(runtime: str) -> None:
    async with player(runtime, here, maps) as agent:
        calls = [("here", {"x": 1}), ("maps", {"n": 2})]
        result = await within(agent.arun(script(calls, "done")))
        assert [one.result for one in result.tool_executions] == ["1", "[0,1]"]
        assert (await agent.observe()).queued == 0


async def test_f43_a_blocking_inline_body_does_not_keep_other_runs_waiting(
    runtime: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with player(runtime) as agent:
        blocked = agent.start(script([("waits_for", {"path": str(gate)})], "done"))
        await eventually(lambda: exists(f"{gate}.started"), "the body runs")
        other = await within(agent.arun(script([("here", {"x": 7})], "done")))
        assert other.tool_executions[0].result == "7"
        gate.touch()
        assert (await within(blocked.result())).tool_executions[0].result == "it is there"


async def test_what_an_inline_body_calls_runs_in_the_agents_process_too(ray_cluster: str) -> None:
    async with player("ray") as agent:
        events = await collected(agent.run(script([("maps", {"n": 3})], "done")))
        assert_well_formed(events)
        children = [e for e in events if isinstance(e, ToolStartEvent) and e.parent_call_id]
        assert len(children) == 3
        pids = {e.worker_pid for e in events if isinstance(e, ToolCompleteEvent)}
        assert pids == {(await agent.observe()).pid}


async def test_cancelling_a_run_reaches_its_inline_body(runtime: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with player(runtime) as agent:
        calls = [("stays", {"mark": str(mark)}), ("in_a_task", {"x": 1})]
        handle = agent.start(script(calls, "done"))
        await eventually(lambda: exists(f"{mark}.started"), "the body runs")
        handle.cancel()
        assert (await within(handle.result())).stop_reason == "cancelled"
        await eventually(lambda: exists(f"{mark}.ended"), "the body has left")


async def test_an_inline_tool_may_ask_a_human(runtime: str) -> None:
    model = ScriptedModel([tool_calls(("asks", {}), ("in_a_task", {"x": 1})), "done"])
    async with Agent(model, TOOLS, runtime=runtime) as agent:
        paused = await within(agent.arun("x"))
        assert [one.question for one in paused.interrupts] == ["Really?"]
        result = await within(agent.aresume("yes"))
        assert {one.tool_name: one.result for one in result.tool_executions} == {
            "asks": "yes",
            "in_a_task": "1",
        }


class Notebook:
    """A tool that keeps a file open in the process of its agent."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def __call__(self, line: str) -> int:
        """Write a line down."""
        write_pid(f"{self._path}.open")
        return os.getpid()

    async def aclose(self) -> None:
        """Close the file."""
        write_pid(f"{self._path}.closed")


async def test_what_an_inline_tool_keeps_open_is_closed_with_its_agent_where_it_was_opened(
    runtime: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "notebook")
    note = Tool(Notebook(path), name="note", inline=True)
    async with player(runtime, note, in_a_task) as agent:
        await within(agent.arun(script([("note", {"line": "a"})], "done")))
        assert not exists(f"{path}.closed")
    assert Path(f"{path}.closed").read_text() == Path(f"{path}.open").read_text()
