"""`runs`, `cancel`, `resume` and `drain`: the runs of a cluster, handled from another process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_errors import says
from tests.runtime.support import eventually, within
from tulip_actors import (
    ActorOptions,
    Agent,
    RunHandle,
    RunLost,
    RunRecoveredEvent,
    TerminateEvent,
    ToolStartEvent,
    interrupt,
    tool,
)
from tulip_actors.memory.backends import FileCheckpointer, SQLiteBackend
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


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"said {interrupt(question)!r}"


@tool(inline=True)
def block(seconds: float) -> str:
    """Keep the agent's own event loop from doing anything."""
    time.sleep(seconds)
    return "blocked"


def waiting(path: Path, **options: Any) -> Agent:
    """An agent whose runs wait for a file."""
    model = ScriptedModel([tool_call("wait_for", path=str(path)), text("done")])
    return Agent(model, [wait_for], name="waits", **options)


def asking(**options: Any) -> Agent:
    """An agent whose runs ask, and end well with the answer."""
    return Agent(ScriptedModel([tool_call("ask", question="Ok?"), text("done")]), [ask], **options)


async def started(handle: RunHandle[Any]) -> None:
    """Wait until the run's tool is called."""
    async for event in handle.events():
        if isinstance(event, ToolStartEvent):
            return


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """What `runs --json` printed, by run."""
    assert done.returncode == 0, done.stderr
    return {row["run_id"]: row for row in map(json.loads, done.stdout.splitlines())}


def result_of(handle: RunHandle[Any]) -> Any:
    return asyncio.run(within(handle.result()))


@pytest.fixture
def go(tmp_path: Path) -> Iterator[Path]:
    """The file for which runs wait; it is there at the end, so that none waits for ever."""
    yield tmp_path / "go"
    (tmp_path / "go").touch()


def test_runs_lists_what_runs_what_asks_and_what_has_ended(here, go: Path) -> None:
    agent, other = waiting(go), asking(name="asks")
    handle = agent.start("go", thread_id="th")
    asyncio.run(within(started(handle)))
    asked = other.run_sync("go")
    listed = rows(here.run("runs", "--json"))
    running, asks = listed[handle.run_id], listed[asked.run_id]
    assert (running["state"], running["thread_id"], running["agent"], running["agent_id"]) == (
        *("running", "th", "waits", agent.id),
    )
    assert (asks["state"], asks["agent"], asks["recoveries"]) == ("interrupted", "asks", 0)
    go.touch()
    result_of(handle)
    assert rows(here.run("runs", "--json"))[handle.run_id]["stop_reason"] == "complete"
    (line,) = [one for one in here.run("runs").stdout.splitlines() if handle.run_id in one]
    assert line.split()[1:5] == ["th", "waits", "ended", "(complete)"]
    for one in (agent, other):
        asyncio.run(one.stop())


def test_runs_of_an_agent_that_is_gone_are_listed_from_the_clusters_memory(here) -> None:
    agent = asking(name="gone")
    asked = agent.run_sync("go")
    asyncio.run(agent.stop())
    assert rows(here.run("runs", "--json"))[asked.run_id]["state"] == "interrupted"


def test_f42_runs_answers_while_a_tool_blocks_the_agents_event_loop(here) -> None:
    agent = Agent(ScriptedModel([tool_call("block", seconds=6), text("done")]), [block])
    handle = agent.start("go")
    asyncio.run(within(started(handle)))
    began_s = time.monotonic()
    assert rows(here.run("runs", "--json"))[handle.run_id]["state"] == "running"
    assert time.monotonic() - began_s < 5
    result_of(handle)
    asyncio.run(agent.stop())


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_store_lists_its_runs_without_a_cluster(here, tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    store = SQLiteBackend(path) if kind == "sqlite" else FileCheckpointer(path)
    agent = asking(name="asks", checkpointer=store, runtime="inline")
    first = agent.run_sync("go", thread_id="t")
    url = f"sqlite:///{path}" if kind == "sqlite" else f"file://{path}"
    row = rows(here.run("runs", "--store", url, "--json"))[first.run_id]
    assert (row["state"], row["thread_id"], row["agent_id"]) == ("interrupted", "t", agent.id)
    agent.resume_sync("yes", thread_id="t")
    assert rows(here.run("runs", "--store", url, "--json"))[first.run_id]["state"] == "ended"


@pytest.mark.parametrize("url", ["sqlite:///no/runs.db", "file:///no/where", "memory://", "x://y"])
def test_a_store_that_is_not_there_is_refused_and_not_made(here, url: str) -> None:
    says(here.run("runs", "--store", url), 2)
    assert list(here.folder.iterdir()) == []


@pytest.mark.parametrize("now", [True, False], ids=["now", "boundary"])
def test_cancel_stops_a_run(here, go: Path, now: bool) -> None:
    agent = waiting(go)
    handle = agent.start("go")
    asyncio.run(within(started(handle)))
    done = here.run("cancel", handle.run_id, *["--now"] * now)
    assert (done.returncode, done.stderr) == (0, "")
    if not now:
        assert not handle.done
        go.touch()
    assert result_of(handle).stop_reason == "cancelled"
    says(here.run("cancel", handle.run_id), 1, "does not run")
    asyncio.run(agent.stop())


@pytest.mark.parametrize("command", [["cancel"], ["resume", "yes"]], ids=lambda one: one[0])
def test_a_run_that_nobody_knows_is_told_so(here, command: list[str]) -> None:
    says(here.run(command[0], "run_x", *command[1:]), 1, "run_x")


def test_resume_answers_and_shows_the_run_to_its_end(here) -> None:
    agent = asking(name="asks")
    asked = agent.run_sync("go")
    done = here.run("resume", asked.run_id, '{"is": ["json"]}', "--json")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["result"] == "said {'is': ['json']}"
    assert events[-1]["event_type"] == "terminate"
    says(here.run("resume", asked.run_id, "yes"), 1, "waits for an answer to: nothing")
    asyncio.run(agent.stop())


def test_a_response_that_is_no_json_is_text(here) -> None:
    agent = asking()
    asked = agent.run_sync("go")
    (question,) = asked.interrupts
    says(here.run("resume", asked.run_id, "yes", "--interrupt", "another"), 1, "another")
    done = here.run("resume", asked.run_id, "yes please", "--interrupt", question.interrupt_id)
    assert done.returncode == 0, done.stderr
    assert "said 'yes please'" in done.stdout
    asyncio.run(agent.stop())


def test_f12_drain_leaves_a_run_that_another_agent_goes_on_with(
    cli, ray_cluster: str, go: Path, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    agent = waiting(go, checkpointer=store, actor=ActorOptions(detached=True))
    handle = agent.start("go", thread_id="t")
    asyncio.run(within(started(handle)))
    asyncio.run(eventually(Path(f"{go}.bodies").exists, "the body has begun"))
    done = cli.run("drain", agent.id, "--seconds", "0.1", "--address", ray_cluster)
    assert done.returncode == 0, done.stderr
    assert f"left: {handle.run_id}" in done.stdout
    with pytest.raises(RunLost):
        result_of(handle)
    listed = rows(cli.run("runs", "--store", store, "--json"))
    assert listed[handle.run_id]["state"] == "left"
    another = waiting(go, checkpointer=store)
    attached = another.attach(handle.run_id)
    go.touch()
    assert result_of(attached).message == "done"
    assert Path(f"{go}.bodies").read_text() == "x", "its tool went on meanwhile, and ran once"
    asyncio.run(another.stop())


def test_drain_lets_runs_end_and_ends_the_agent(here, go: Path) -> None:
    agent = waiting(go)
    handle = agent.start("go")
    asyncio.run(within(started(handle)))
    pid = asyncio.run(agent.observe()).pid
    go.touch()
    done = here.run("drain", agent.id)
    assert (done.returncode, "no run was left" in done.stdout) == (0, True)
    assert result_of(handle).message == "done"
    asyncio.run(eventually(lambda: not Path(f"/proc/{pid}").exists(), "the process has ended"))
    says(here.run("drain", agent.id), 1, agent.id, "ps")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_f8_f12_c38_after_a_signal_the_run_goes_on_in_a_new_process(
    go: Path, tmp_path: Path, signum: signal.Signals
) -> None:
    agent = waiting(go, checkpointer=f"sqlite:///{tmp_path / 'runs.db'}")
    handle = agent.start("go")
    asyncio.run(within(started(handle)))
    asyncio.run(eventually(Path(f"{go}.bodies").exists, "the body has begun"))
    pid = asyncio.run(agent.observe()).pid
    os.kill(pid, signum)
    asyncio.run(eventually(lambda: not Path(f"/proc/{pid}").exists(), "the process has ended"))
    go.touch()

    async def rest() -> list[Any]:
        return [event async for event in handle.events()]

    events = asyncio.run(within(rest()))
    assert [event.source.seq for event in events] == list(range(len(events)))
    assert sum(isinstance(event, RunRecoveredEvent) for event in events) == 1
    assert isinstance(events[-1], TerminateEvent)
    assert Path(f"{go}.bodies").read_text() == "x", "the call was adopted, not made again"
    asyncio.run(agent.stop())
