"""A host, or the services actor, is killed while runs are under way. On Ray."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from patterns import Orchestrator, Specialist
from tests.cli.process import processes_below
from tests.runtime.support import collected, eventually, types, within
from tulip_actors import Agent, RunRecoveredEvent, ToolStartEvent, TulipEvent, tool
from tulip_actors.testing import ScriptedModel, text, tool_call

pytestmark = pytest.mark.usefixtures("ray_cluster")


@tool
async def wait_for(path: str) -> str:
    """Leave a mark, and wait for a file."""
    marks = Path(f"{path}.bodies")
    marks.write_text((marks.read_text() if marks.exists() else "") + "x")
    while not Path(path).exists():  # noqa: ASYNC110  # another process makes it
        await asyncio.sleep(0.02)
    return "there"


def waits_for(path: Path) -> ScriptedModel:
    return ScriptedModel([tool_call("wait_for", path=str(path)), text("done")])


def told_once(events: list[TulipEvent]) -> bool:
    """Whether no event of any run in a stream came twice, and none is missing."""
    seen: dict[str, list[int]] = {}
    for event in events:
        assert event.source is not None
        seen.setdefault(event.source.run_id, []).append(event.source.seq)
    return all(numbers == list(range(len(numbers))) for numbers in seen.values())


async def test_c7_c36_c38_a_team_whose_process_is_killed_goes_on_with_its_members_as_they_are(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    specialist = Specialist(id="waiter", tools=[wait_for], model=waits_for(go))
    async with Orchestrator(
        name="desk", specialists=[specialist], router=lambda task, specialists: ["waiter"]
    ) as team:
        handle = team.start("go")
        async for event in handle.events():
            if isinstance(event, ToolStartEvent):
                break
        await eventually(Path(f"{go}.bodies").exists, "the body has begun")
        os.kill((await team.observe()).pid, signal.SIGKILL)
        go.touch()
        result = await within(handle.result())
        events = await collected(handle.events())
    assert result.success
    assert Path(f"{go}.bodies").read_text() == "x"
    assert told_once(events)
    kinds = types(events)
    assert (kinds.count("specialist_start"), kinds.count("specialist_complete")) == (1, 1)
    assert kinds.count("terminate") == 2, "the member's and the team's"
    assert sum(isinstance(event, RunRecoveredEvent) for event in events) == 1


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
async def test_c38_a_run_goes_on_when_the_services_actors_process_ends(
    tmp_path: Path, signum: signal.Signals
) -> None:
    go = tmp_path / "go"
    async with Agent(waits_for(go), [wait_for], runtime="ray") as agent:
        handle = agent.start("go", thread_id="t")
        async for event in handle.events():
            if isinstance(event, ToolStartEvent):
                break
        (services,) = [
            pid for pid, command in processes_below(os.getpid()).items() if "::Services" in command
        ]
        os.kill(services, signum)
        await eventually(lambda: not Path(f"/proc/{services}").exists(), "its process has ended")
        go.touch()
        assert (await within(handle.result())).message == "done"
        assert told_once(await collected(handle.events()))
        again = await within(agent.arun("again", thread_id="t"))
        assert [message.content for message in again.messages].count("go") == 1
