"""What runs in which process, and what a whole program leaves behind. On Ray."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.support import (
    ALL_TOOLS,
    assert_well_formed,
    collected,
    double,
    eventually,
    play,
    script,
    within,
)
from tulip_actors import (
    Agent,
    EventBus,
    Message,
    ModelResponse,
    RemoteError,
    RunNotFound,
    ToolCompleteEvent,
    ToolContext,
    ToolStartEvent,
    tool,
)
from tulip_actors.testing import FunctionModel, ScriptedModel, text, tool_call

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture(scope="module")
def player(ray_cluster: str) -> Iterator[Agent]:
    """An agent on Ray whose prompts are scripts."""
    made = Agent(FunctionModel(play), ALL_TOOLS, name="ray player", runtime="ray")
    yield made
    asyncio.run(made.stop())


@dataclass(frozen=True)
class Finished:
    """A program that has ended: what it printed, and what it left running."""

    told: Any
    stderr: str
    left: list[str]


def program(name: str, *arguments: str, **environment: str) -> Finished:
    """Run one of `programs` in a session and with an environment of its own; it has to end well."""
    mark = f"{name}-{os.getpid()}-{time.monotonic_ns()}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "TULIP_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.programs", name, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            **kept,
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore:tool ",  # the tools of tests are asked for by name
            "TULIP_TEST_MARK": mark,
            **environment,
        },
        start_new_session=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ends_s = time.monotonic() + 20
    while (left := marked_processes(mark)) and time.monotonic() < ends_s:
        time.sleep(0.1)
    line = done.stdout.splitlines()[-1]  # Ray may have said something before it
    return Finished(json.loads(line), done.stderr, left)


def marked_processes(mark: str) -> list[str]:
    """Command lines of the living processes that inherited a mark in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if f"TULIP_TEST_MARK={mark}\0" in (folder / "environ").read_text():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def ways() -> Finished:
    """A program that uses `run_sync` in every way, on a Ray that it starts by itself."""
    return program("ways")


@pytest.fixture(scope="module")
def own_ray() -> Finished:
    """A program that initialised Ray itself and ended in the middle of a run."""
    return program("own_ray")


@tool(num_cpus=1)
def hungry(x: int) -> int:
    """Use a CPU."""
    return x


@tool(num_cpus=2)
def hungry_parent(n: int, ctx: ToolContext) -> int:
    """Hold all CPUs while the children need one each."""
    return sum(ctx.map_sync(hungry, range(n)))  # type: ignore[arg-type]


# processes


async def test_agents_and_tools_run_in_processes_of_their_own(player: Agent) -> None:
    calls = [("blocks", {"seconds": 0.3}), ("naps", {"seconds": 0.3}), ("total", {"n": 3})]
    events = await collected(player.run(script(calls, "done")))
    status = await player.observe()
    completes = [event for event in events if isinstance(event, ToolCompleteEvent)]
    workers = {event.worker_pid for event in completes}
    assert None not in workers
    assert status.pid not in workers
    assert os.getpid() not in {status.pid, *workers}
    assert len(workers) > 1, "calls of one turn run side by side"
    assert {event.source.pid for event in events if event.source} == {status.pid}


async def test_c35_a_handle_pickled_before_the_start_names_the_same_actor() -> None:
    agent = Agent(ScriptedModel(["hi"]), [double], name="one", runtime="ray")
    copy: Agent = pickle.loads(pickle.dumps(agent))
    await within(asyncio.gather(agent.arun("x"), copy.arun("x")), 40)
    assert (await agent.observe()).pid == (await copy.observe()).pid
    assert len(await agent.model_trace()) == 2
    await agent.stop()


async def test_a_run_can_be_attached_to_from_another_handle(player: Agent) -> None:
    """C35: a handle is pickled, and names the same actor."""
    copy: Agent = pickle.loads(pickle.dumps(player))
    handle = player.start(script([("naps", {"seconds": 0.3})], "done"))
    await within(anext(handle.events()))
    assert_well_formed(await collected(copy.attach(handle.run_id).events()))


async def test_an_agent_is_copied_when_its_actor_starts() -> None:
    """C16: what is changed later is seen on neither side."""
    model = ScriptedModel(["as it was"])
    async with Agent(model, runtime="ray") as agent:
        await within(agent.arun("x"))
        model.turns[0] = "changed"
        assert (await within(agent.arun("x"))).message == "as it was"
        assert model.requests == []


async def test_a_second_process_sees_the_same_events_in_the_same_order(
    player: Agent, ray_cluster: str
) -> None:
    prompt = script([("total", {"n": 5}), ("fails", {"message": "x"})], "done")
    handle = player.start(prompt, stream_tokens=True)
    there = await asyncio.to_thread(
        program,
        "listen",
        handle.run_id,
        RAY_ADDRESS=ray_cluster,
        RAY_AUTH_MODE=os.environ.get("RAY_AUTH_MODE", "disabled"),
    )
    here = [event.model_dump(mode="json") for event in await collected(handle.events())]
    assert there.told == here


async def test_a_tool_may_demand_a_whole_cpu(player: Agent) -> None:
    @tool(num_cpus=1)
    def heavy(x: int) -> int:
        """Use a CPU."""
        return x * x

    model = ScriptedModel([tool_call("heavy", x=7), "done"])
    async with Agent(model, [heavy], runtime="ray") as agent:
        assert (await within(agent.arun("x"))).tool_executions[0].result == "49"


async def test_a_parent_that_demands_all_cpus_does_not_starve_its_children() -> None:
    async with Agent(
        ScriptedModel([tool_call("hungry_parent", n=3), "done"]), [hungry_parent], runtime="ray"
    ) as agent:
        result = await within(agent.arun("x"), 50)
        assert result.tool_executions[0].result == "3"


@tool(num_cpus=2)
async def hungry_waiter(n: int, ctx: ToolContext) -> int:
    """The same as a coroutine."""
    return sum(await ctx.map(hungry, range(n)))  # type: ignore[arg-type]


@tool(kind="cpu")
def computes(n: int, ctx: ToolContext) -> int:
    """Calls itself, each time with a CPU and a process of its own."""
    return 1 + ctx.call_sync(computes, n - 1) if n else 0  # type: ignore[operator]


@pytest.mark.parametrize(("name", "n", "result"), [("hungry_waiter", 4, "6"), ("computes", 5, "5")])
async def test_c22_calls_that_go_alone_give_their_cpus_back_while_they_wait_for_others(
    name: str, n: int, result: str
) -> None:
    model = ScriptedModel([tool_call(name, n=n), tool_call(name, n=n), "done"])
    async with Agent(model, [hungry_waiter, computes], runtime="ray") as agent:
        done = await within(agent.arun("x"), 60)
        assert [one.result for one in done.tool_executions] == [result] * 2


async def test_a_demand_that_no_node_meets_does_not_hold_up_others(player: Agent) -> None:
    @tool(resources={"unobtainium": 1})
    def never() -> None:
        """Wait for ever."""

    model = ScriptedModel([tool_call("never"), "done"])
    async with Agent(model, [never], runtime="ray") as agent:
        handle = agent.start("x")
        async for event in handle.events():
            if isinstance(event, ToolStartEvent):
                break
        result = await within(player.arun(script([("add", {"a": 1, "b": 1})], "done")))
        assert result.message == "done"
        handle.cancel()
        assert (await within(handle.result())).stop_reason == "cancelled"


async def test_a_worker_that_dies_is_an_error_of_its_call_alone(player: Agent) -> None:
    @tool
    def crashes() -> None:
        """Take the process along."""
        os._exit(1)

    model = ScriptedModel([tool_call("crashes"), "went on"])
    async with Agent(model, [crashes], runtime="ray") as agent:
        result = await within(agent.arun("x"))
        assert result.message == "went on"
        assert "may have happened" in (result.tool_executions[0].error or "")


# what cannot travel


class TwoPart(Exception):
    """An exception that does not survive pickle: its message is not its arguments."""

    def __init__(self, left: str, right: str) -> None:
        super().__init__(f"{left} and {right}")


async def test_f51_an_exception_that_cannot_travel_is_described() -> None:
    def raises(messages: Sequence[Message], tools: object) -> Exception:
        return TwoPart("salt", "pepper")

    async with Agent(FunctionModel(raises), runtime="ray") as agent:
        with pytest.raises(RemoteError, match=r"TwoPart.*salt and pepper"):
            await within(agent.arun("x"))


async def test_a_run_of_an_agent_that_was_never_started_cannot_be_attached_to() -> None:
    agent = Agent(ScriptedModel(["hi"]), runtime="ray")
    with pytest.raises(RunNotFound):
        await within(agent.attach("run_x").result())
    await agent.stop()


# run_sync on Ray


class LoopBound:
    """A model with a client-like lock that belongs to the first loop that waits on it."""

    def __init__(self) -> None:
        self.waiting: asyncio.Semaphore | None = None

    async def complete(
        self, messages: Sequence[Message], tools: object = None, **settings: object
    ) -> ModelResponse:
        self.waiting = self.waiting or asyncio.Semaphore(1)
        async with self.waiting:
            await asyncio.sleep(0.01)
        return ModelResponse(text("hi"))


def test_f41_run_sync_works_any_number_of_times_with_a_loop_bound_model() -> None:
    agent = Agent(LoopBound(), runtime="ray")
    assert [agent.run_sync("x").message for _ in range(3)] == ["hi", "hi", "hi"]
    threads = [threading.Thread(target=agent.run_sync, args=("x",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert agent.run_sync("x").message == "hi"
    asyncio.run(agent.stop())


def test_f45_run_sync_works_in_a_thread(player: Agent) -> None:
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(player.run_sync(script("hi")).message))
    thread.start()
    thread.join(20)
    assert said == ["hi"]


async def test_f45_run_sync_works_under_a_running_event_loop(player: Agent) -> None:
    assert [player.run_sync(script("hi")).message for _ in range(2)] == ["hi", "hi"]


def test_f45_run_sync_works_inside_a_ray_task(player: Agent) -> None:
    import ray

    @ray.remote(num_cpus=0)
    def task(agent: Agent) -> list[str]:
        own = Agent(ScriptedModel(["from a task"]), runtime="ray")
        return [agent.run_sync(script("hi")).message, *[own.run_sync("x").message for _ in "ab"]]

    assert ray.get(task.remote(player), timeout=40) == ["hi", "from a task", "from a task"]


def test_f45_run_sync_works_inside_a_tool(player: Agent) -> None:
    @tool
    def asks(question: str) -> str:
        """Ask an agent of its own."""
        return (
            Agent(ScriptedModel([f"you asked {question}"]), runtime="inline").run_sync("x").message
        )

    agent = Agent(ScriptedModel([tool_call("asks", question="why"), "done"]), [asks], runtime="ray")
    result = agent.run_sync("x")
    assert result.tool_executions[0].result == "you asked why"
    asyncio.run(agent.stop())


# whole programs


def test_a_program_that_has_ended_leaves_no_process(ways: Finished) -> None:
    assert ways.left == []


def test_a_program_that_ends_in_the_middle_of_a_run_leaves_no_process(own_ray: Finished) -> None:
    assert own_ray.left == []


def test_a_program_announces_ray_in_one_line_and_is_quiet_otherwise(ways: Finished) -> None:
    lines = ways.stderr.splitlines()
    assert len(lines) == 1, ways.stderr
    assert lines[0].startswith("tulip_actors: started a local Ray")


def test_f41_a_script_may_call_run_sync_twice(ways: Finished) -> None:
    assert ways.told["script"] == ["done", "done"]


def test_f45_a_notebook_may_call_run_sync_twice(ways: Finished) -> None:
    assert ways.told["notebook"] == ["cell 0", "cell 1"]


def test_f45_a_thread_of_a_program_may_call_run_sync(ways: Finished) -> None:
    assert ways.told["thread"] == ["hi"]


def test_ctrl_c_in_run_sync_is_raised_and_ends_the_run(ways: Finished) -> None:
    assert ways.told["interrupted"] is True


def test_a_program_may_have_initialised_ray_itself(own_ray: Finished) -> None:
    assert own_ray.told["message"] == "done"
    assert own_ray.told["namespace"] == "theirs", "their namespace stays theirs"


@pytest.fixture(scope="module")
def four_nodes(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A program on four simulated nodes. Its modules take a moment each: calls that are over before
    the workers of other nodes have started need not spread."""
    folder = tmp_path_factory.mktemp("modules")
    for position in range(16):
        (folder / f"module_{position}.py").write_text("def f():\n    return 1\n" * 8_000)
    return program("four_nodes", str(folder))


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_the_audit_job_runs_on_four_nodes_and_its_calls_spread_over_all(
    four_nodes: Finished,
) -> None:
    seen = four_nodes.told
    assert seen["errors"] == []
    assert seen["children"] == 48
    assert seen["end"] == "complete"
    assert len(seen["nodes"]) == 4


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_the_calls_of_one_map_run_on_all_four_nodes(four_nodes: Finished) -> None:
    assert four_nodes.told["failed"] == []
    assert len(four_nodes.told["map"]) == 4


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_a_tool_that_needs_what_one_node_has_runs_only_there(four_nodes: Finished) -> None:
    assert four_nodes.told["disk"] == [four_nodes.told["disk_node"]]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "no.such.invalid:6379"])
def test_a_wrong_address_is_said_to_be_so_within_seconds(address: str) -> None:
    told = program("wrong_address", address).told
    assert address.removeprefix("ray://") in told["message"]
    assert "RAY_ADDRESS" in told["message"]
    assert told["took_s"] < 10


async def test_the_bus_of_a_cluster_is_found_by_its_address(
    player: Agent, ray_cluster: str
) -> None:
    result = await within(player.arun(script("hi")))
    bus = EventBus.connect(ray_cluster, runtime="ray")
    records = [record async for record in bus.subscribe(run_id=result.run_id, follow=False)]
    assert [record.event.event_type for record in records] == ["think", "terminate"]


async def test_an_unused_agent_starts_no_actor() -> None:
    import ray.util

    before = {entry["name"] for entry in ray.util.list_named_actors(all_namespaces=True)}
    began_s = time.monotonic()
    agents = [Agent(ScriptedModel(["hi"]), runtime="ray") for _ in range(50)]
    assert time.monotonic() - began_s < 2
    after = {entry["name"] for entry in ray.util.list_named_actors(all_namespaces=True)}
    assert not {agent.id for agent in agents} & after
    assert after == before


async def test_a_stopped_agents_process_has_ended() -> None:
    agent = Agent(ScriptedModel(["hi"]), runtime="ray")
    await within(agent.arun("x"))
    pid = (await agent.observe()).pid
    await within(agent.stop())
    await eventually(lambda: not Path(f"/proc/{pid}").exists(), "the actor's process is gone")
