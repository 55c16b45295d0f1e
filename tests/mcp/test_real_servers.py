"""Servers that others wrote, over stdio: `mcp-server-time` and `mcp-server-git`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.support import collected, play, script, within
from tulip_actors import Agent, MCPTools, Tool, ToolCompleteEvent, tool
from tulip_actors.testing import FunctionModel


@tool
def in_a_task(x: int) -> int:
    """A tool of our own beside them."""
    return x


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one commit, which nobody's configuration has a say in."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "tulip.txt").write_text("red\n")
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for command in (["init", "--quiet"], ["add", "."], [*who, "commit", "-qm", "Plant a tulip"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    (folder / "tulip.txt").write_text("yellow\n")
    return folder


@pytest.fixture(scope="module")
def agent(runtime: str, repository: Path) -> Iterator[Agent]:
    """An agent with both servers that plays the script in its prompt."""
    tools: list[Tool | MCPTools] = [
        MCPTools.stdio(
            sys.executable, ["-m", "mcp_server_time", "--local-timezone=UTC"], prefix="time_"
        ),
        MCPTools.stdio(
            sys.executable,
            ["-m", "mcp_server_git", "--repository", str(repository)],
            include=["git_status", "git_log", "git_diff_unstaged"],
        ),
        in_a_task,
    ]
    made = Agent(FunctionModel(play), tools, runtime=runtime)
    yield made
    asyncio.run(made.stop())


def test_c17_their_tools_are_told_to_models_as_the_servers_describe_them(agent: Agent) -> None:
    assert set(agent.config.tools) == {
        "time_get_current_time",
        "time_convert_time",
        "git_status",
        "git_log",
        "git_diff_unstaged",
        "in_a_task",
    }
    spec = agent.config.tools["time_convert_time"].spec
    assert spec.description == "Convert time between timezones"
    assert spec.parameters["required"] == ["source_timezone", "time", "target_timezone"]


async def test_calls_of_two_servers_and_a_tool_of_ours_in_one_turn(
    agent: Agent, repository: Path
) -> None:
    repo = {"repo_path": str(repository)}
    convert = {
        "source_timezone": "UTC",
        "time": "12:00",
        "target_timezone": "Asia/Tokyo",
    }
    calls = [
        ("time_convert_time", convert),
        ("git_log", repo),
        ("git_diff_unstaged", repo),
        ("in_a_task", {"x": 7}),
    ]
    result = await within(agent.arun(script(calls, "done")))
    converted, log, diff, ours = [one.result or one.error or "" for one in result.tool_executions]
    assert json.loads(converted)["time_difference"] == "+9.0h"
    assert "Plant a tulip" in log
    assert "+yellow" in diff
    assert ours == "7"


async def test_their_errors_are_errors_of_the_call(agent: Agent) -> None:
    calls = [
        ("time_get_current_time", {"timezone": "Atlantis"}),
        ("time_get_current_time", {"zone": "UTC"}),
    ]
    result = await within(agent.arun(script(calls, "done")))
    refused = [message.content for message in result.messages if message.is_error]
    assert "Atlantis" in refused[0]
    assert "timezone: is missing; zone: there is no such argument" in refused[1]


async def test_their_calls_run_in_the_process_of_the_agent(agent: Agent) -> None:
    calls = [("time_get_current_time", {"timezone": "UTC"}), ("in_a_task", {"x": 1})]
    events = await collected(agent.run(script(calls, "done")))
    pids = {e.tool_name: e.worker_pid for e in events if isinstance(e, ToolCompleteEvent)}
    assert pids["time_get_current_time"] == (await agent.observe()).pid
    assert (pids["in_a_task"] == (await agent.observe()).pid) == (agent.runtime == "inline")
