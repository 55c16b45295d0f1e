"""Sessions with servers over stdio: opened once, shared, survived and left behind by nobody."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mcp.conftest import LIGHT_SERVER, is_alive, kill, light
from tests.runtime.support import eventually, exists, play, script, within
from tulip_actors import Agent, MCPTools, ToolExecution, ToolLost
from tulip_actors.testing import FunctionModel, ScriptedModel
from tulip_actors.tools.group import close_tools
from tulip_actors.tools.registry import ToolRegistry

ROOT = Path(__file__).parents[2]
PID: list[object] = [("pid", {})]


def agent_with(runtime: str, *tools: MCPTools) -> Agent:
    return Agent(FunctionModel(play), tools, runtime=runtime)


@pytest.fixture(scope="session")
def agent(runtime: str) -> Iterator[Agent]:
    """An agent per runtime that plays the script in its prompt; "quick_" calls have one second."""
    made = agent_with(runtime, light(), light(prefix="quick_", timeout_s=1.0))
    yield made
    asyncio.run(made.stop())


async def done(agent: Agent, *turns: object) -> list[ToolExecution]:
    """The calls of a run that plays the turns."""
    return list((await within(agent.arun(script(*turns, "done")))).tool_executions)


async def pid_of_server(agent: Agent) -> int:
    """The process that serves the agent on this event loop."""
    [execution] = await done(agent, PID)
    return int(execution.result or execution.error or "none")


async def test_fifty_calls_at_once_share_one_session(agent: Agent) -> None:
    calls: list[object] = [("add", {"a": n, "b": n}) for n in range(50)]
    executions = await done(agent, [*calls, *PID], PID)
    assert [one.result for one in executions[:50]] == [str(2 * n) for n in range(50)]
    assert executions[50].result == executions[51].result, "and it is the same one later"


async def test_calls_are_under_way_at_the_same_time(agent: Agent, tmp_path: Path) -> None:
    marks = [tmp_path / f"mark{n}" for n in range(5)]
    handle = agent.start(script([("wait", {"mark": str(mark)}) for mark in marks], "done"))
    await eventually(lambda: all(exists(f"{mark}.started") for mark in marks), "all have begun")
    handle.cancel()
    await within(handle.result())


async def test_a_server_that_was_killed_is_started_again_by_the_next_call(agent: Agent) -> None:
    first = await pid_of_server(agent)
    kill(first)
    await eventually(lambda: not is_alive(first), "it is gone")
    second = await pid_of_server(agent)
    assert second != first
    assert await pid_of_server(agent) == second


async def test_calls_under_way_when_the_server_dies_are_told_that_they_may_have_happened(
    agent: Agent, tmp_path: Path
) -> None:
    marks = [tmp_path / f"mark{n}" for n in range(3)]
    handle = agent.start(script([("wait", {"mark": str(mark)}) for mark in marks], PID, "done"))
    await eventually(lambda: all(exists(f"{mark}.started") for mark in marks), "they run")
    first = int(Path(f"{marks[0]}.started").read_text())
    kill(first)
    *lost, after = (await within(handle.result())).tool_executions
    assert len(lost) == 3
    assert all("its effect may have happened" in (one.error or "") for one in lost)
    assert after.result not in (None, str(first))


async def test_the_last_words_of_a_server_are_in_the_error(agent: Agent) -> None:
    [died, after] = await done(agent, [("die", {"words": "out of ink"})], [("add", {"a": 1})])
    assert "out of ink" in (died.error or "")
    assert after.result == "2"


async def test_a_call_that_takes_too_long_is_stopped_and_the_session_stays_usable(
    agent: Agent, tmp_path: Path
) -> None:
    mark = str(tmp_path / "mark")
    pid: list[object] = [("quick_pid", {})]
    before, slow, after = await done(agent, pid, [("quick_wait", {"mark": mark})], pid)
    assert "wait did not answer within 1 s" in (slow.error or "")
    assert before.result == after.result is not None
    await eventually(lambda: exists(f"{mark}.ended"), "the server was told to stop")


async def test_a_cancelled_run_stops_its_call_and_leaves_the_session_usable(
    agent: Agent, tmp_path: Path
) -> None:
    mark = str(tmp_path / "mark")
    before = await pid_of_server(agent)
    handle = agent.start(script([("wait", {"mark": mark})], "done"))
    await eventually(lambda: exists(f"{mark}.started"), "it runs")
    handle.cancel()
    assert (await within(handle.result())).stop_reason == "cancelled"
    await eventually(lambda: exists(f"{mark}.ended"), "the server was told to stop")
    assert await pid_of_server(agent) == before


async def test_each_agent_has_a_server_of_its_own() -> None:
    tools = light()
    async with agent_with("inline", tools) as one, agent_with("inline", tools) as other:
        pids = [await pid_of_server(one), await pid_of_server(other)]
        assert len({*pids}) == 2
        await one.stop()
        assert [is_alive(pid) for pid in pids] == [False, True]


# what is left behind


async def test_stopping_an_agent_ends_its_server_and_running_it_again_starts_another(
    runtime: str,
) -> None:
    agent = agent_with(runtime, light())
    first = await pid_of_server(agent)
    assert is_alive(first)
    await within(agent.stop())
    assert not is_alive(first)
    second = await pid_of_server(agent)
    assert second != first
    await within(agent.stop())
    assert not is_alive(second)


async def test_a_server_that_does_not_want_to_end_is_ended_all_the_same() -> None:
    agent = agent_with("inline", light("--stubborn"))
    pid = await pid_of_server(agent)
    await within(agent.stop())
    assert not is_alive(pid)


async def test_killing_the_process_of_an_agent_ends_its_server(ray_cluster: str) -> None:
    async with agent_with("ray", light()) as agent:
        pid = await pid_of_server(agent)
        kill((await agent.observe()).pid)
        await eventually(lambda: not is_alive(pid), "the server has seen the end of its input")


def test_the_end_of_an_event_loop_ends_the_servers_that_it_used() -> None:
    agent = agent_with("inline", light())
    pids = [asyncio.run(pid_of_server(agent)) for _ in range(2)]
    assert len({*pids}) == 2
    assert not any(map(is_alive, pids))


PROGRAM = """
import sys
from tulip_actors import Agent, MCPTools
from tulip_actors.testing import ScriptedModel, tool_call

tools = MCPTools.stdio(sys.executable, [sys.argv[2]])
model = ScriptedModel([tool_call("pid"), "done"])
agent = Agent(model, [tools], runtime=sys.argv[1])
print(agent.run_sync("Who are you?").tool_executions[0].result)
"""


async def test_a_program_that_ends_leaves_no_server_behind(runtime: str, ray_cluster: str) -> None:
    environment = {"PYTHONPATH": str(ROOT), "TULIP_QUIET": "1", "RAY_ADDRESS": ray_cluster}
    finished = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM, runtime, LIGHT_SERVER],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    pid = int(finished.stdout.splitlines()[-1])
    await eventually(lambda: not is_alive(pid), "the server is gone")


# where sessions are not


async def test_an_open_session_is_not_pickled() -> None:
    tools = ToolRegistry([light()])
    first = await tools["pid"]()
    copies: ToolRegistry = pickle.loads(pickle.dumps(tools))
    assert await tools["pid"]() == first
    assert await copies["pid"]() != first
    await close_tools([*tools.values(), *copies.values()])


async def test_making_agents_asks_a_server_once_and_leaves_none_running(tmp_path: Path) -> None:
    code = f"import os; open(r'{tmp_path}/' + str(os.getpid()), 'w'); "
    code += f"exec(open(r'{LIGHT_SERVER}').read())"
    tools = MCPTools.stdio(sys.executable, ["-c", code])
    for _ in range(2):
        Agent(ScriptedModel([]), [tools], runtime="inline")
    [pid] = [int(path.name) for path in tmp_path.iterdir()]
    assert not is_alive(pid)


async def test_a_lost_call_is_an_error_of_its_own_type() -> None:
    tools = ToolRegistry([light()])
    with pytest.raises(ToolLost, match="may have happened"):
        await tools["die"](words="")
    assert await tools["add"](a=1) == "2"
    await close_tools(tools.values())
