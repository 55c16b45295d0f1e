"""A host that is drained leaves its runs as they are stored, for whoever takes them up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.support import eventually
from tulip_actors import AgentConfig, RunLost, TerminateEvent, ToolCompleteEvent, tool
from tulip_actors.core.run_info import RunState
from tulip_actors.core.runs import RunEnded, RunRequest
from tulip_actors.host.bus import MemoryBusLog
from tulip_actors.host.inline_executor import InlineExecutor
from tulip_actors.host.ports import HostPorts
from tulip_actors.host.run_host import RunHost
from tulip_actors.loop.agent_runnable import AgentRunnable
from tulip_actors.memory.backends import FileCheckpointer
from tulip_actors.models.registry import get_model
from tulip_actors.testing import ScriptedModel, text, tool_call
from tulip_actors.tools.registry import ToolRegistry

Make = Callable[[str], RunHost]


@tool(on_unknown="retry")
async def step(folder: str) -> str:
    """Leave a mark, and wait until the test lets it go on."""
    with (Path(folder) / "bodies").open("a") as file:
        file.write("x")
    while not (Path(folder) / "go").exists():  # noqa: ASYNC110  # a file, as of another process
        await asyncio.sleep(0.005)
    return "stepped"


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes hosts of one agent by their ids; each has an executor of its own, as a process has."""
    made: list[RunHost] = []

    def host(id: str) -> RunHost:
        model = ScriptedModel([tool_call("step", folder=str(tmp_path)), text("done")])
        config = AgentConfig(model=model, tools=ToolRegistry([step]), name="bob")
        executor = InlineExecutor(lambda toolset: {"step": step}, "node", None)
        ports = HostPorts(
            FileCheckpointer(tmp_path / "threads"), MemoryBusLog(), executor, get_model, "node"
        )
        made.append(RunHost(id, AgentRunnable(config), ports))
        return made[-1]

    yield host
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:  # what a drained host leaves hangs until its process ends
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def begun(folder: Path, bodies: int = 1) -> None:
    """Wait until so many bodies have begun."""
    path = folder / "bodies"
    await eventually(lambda: path.exists() and len(path.read_text()) >= bodies, "bodies began", 10)


def types(host: RunHost, run_id: str) -> list[str]:
    return [entry.event.event_type for entry in host.follow(run_id).peek(0)]


async def test_f12_what_a_drained_host_leaves_goes_on_elsewhere_at_once(
    make: Make, tmp_path: Path
) -> None:
    one = make("one")
    feed = one.start(RunRequest("r", "t", "go"))
    await begun(tmp_path)
    assert await one.drain(0, comes_back=False) == ["r"]
    with pytest.raises(RunLost, match=r"drained.*attach"):
        await feed.ended()
    records = await one.records("t")
    assert not any(isinstance(record, RunEnded) for record in records)
    (tmp_path / "go").touch()
    result: Any = await make("two").follow("r").ended()
    assert (result.run_id, result.message) == ("r", "done")


async def test_f12_the_next_incarnation_of_a_drained_host_finds_what_it_left(
    make: Make, tmp_path: Path
) -> None:
    one = make("same")
    feed = one.start(RunRequest("r", "t", "go"))
    await begun(tmp_path)
    await one.drain(0, comes_back=True)
    assert not feed.closed, "who follows it goes on following where the host comes back"
    held = await FileCheckpointer(tmp_path / "threads").held_by("same")
    assert held == [("t", "r")]
    two = make("same")
    assert two.take_up(held) == ["r"]
    (tmp_path / "go").touch()
    await two.follow("r").ended()
    assert types(two, "r").count("terminate") == 1


async def test_a_thread_that_was_left_can_be_had_by_another_run_at_once(
    make: Make, tmp_path: Path
) -> None:
    one = make("one")
    one.start(RunRequest("r", "t", "go"))
    await begun(tmp_path)
    await one.drain(0, comes_back=True)
    (tmp_path / "go").touch()
    await make("two").start(RunRequest("another", "t", "go")).ended()


async def test_f8_what_ends_after_a_drain_is_neither_told_nor_recorded_here(
    make: Make, tmp_path: Path
) -> None:
    one = make("one")
    feed = one.start(RunRequest("r", "t", "go"))
    await begun(tmp_path)
    await one.drain(0, comes_back=True)
    before, told = await one.records("t"), len(feed.peek(0))
    (tmp_path / "go").touch()
    executor = one._ports.executor
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert await one.records("t") == before
    assert len(feed.peek(0)) == told
    assert not any(isinstance(entry.event, ToolCompleteEvent) for entry in feed.peek(0))
    (key,) = [intent.key for one in before if hasattr(one, "intents") for intent in one.intents]
    assert (await executor.status([key]))[key] == "finished", "its result is kept to be adopted"


async def test_runs_that_end_in_time_are_not_left(make: Make, tmp_path: Path) -> None:
    one = make("one")
    feed = one.start(RunRequest("r", "t", "go"))
    await begun(tmp_path)
    draining = asyncio.create_task(one.drain(30, comes_back=False))
    await asyncio.sleep(0)
    with pytest.raises(Exception, match="stopping"):
        one.start(RunRequest("late", "late", "go"))
    (tmp_path / "go").touch()
    assert await draining == []
    assert isinstance(feed.peek(0)[-1].event, TerminateEvent)


async def test_a_run_that_waits_for_its_thread_is_cancelled_by_a_drain(
    make: Make, tmp_path: Path
) -> None:
    one = make("one")
    one.start(RunRequest("r", "t", "go"))
    await begun(tmp_path)
    waits = one.start(RunRequest("waits", "t", "go", on_busy="wait"))
    await asyncio.sleep(0)
    assert [info.state for info in one.runs()] == [RunState.RUNNING, RunState.QUEUED]
    assert await one.drain(0, comes_back=False) == ["r"]
    with pytest.raises(Exception, match="cancelled"):
        await waits.ended()


async def test_a_host_lists_its_runs_and_those_that_ended(make: Make, tmp_path: Path) -> None:
    one = make("one")
    one.start(RunRequest("r", "t", "go"))
    await begun(tmp_path)
    (info,) = one.runs()
    assert (info.run_id, info.thread_id, info.agent, info.agent_id, info.recoveries) == (
        *("r", "t", "bob", "one"), 0,
    )  # fmt: skip
    assert info.state is RunState.RUNNING
    await one.drain(0, comes_back=True)
    two = make("two")
    feed = two.follow("r")
    (tmp_path / "go").touch()
    await feed.ended()
    (info,) = two.runs()
    assert (info.state, info.stop_reason, info.recoveries) == (RunState.ENDED, "complete", 1)
