"""A server over streamable HTTP on loopback, of today's protocol and of the one with sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.mcp.conftest import Listening
from tests.runtime.support import play, script, within
from tulip_actors import Agent, MCPTools, ToolError, ToolLost
from tulip_actors.testing import FunctionModel
from tulip_actors.tools.group import close_tools
from tulip_actors.tools.registry import ToolRegistry


@pytest.fixture(scope="module", params=[(), ("--legacy",)], ids=["today", "with sessions"])
def server(request: pytest.FixtureRequest) -> Iterator[Listening]:
    """A server that is up at the start of each test."""
    made = Listening(*request.param)
    yield made
    made.kill()


async def test_fifty_calls_at_once_from_either_runtime(server: Listening, runtime: str) -> None:
    tools = MCPTools.http(server.url, {"X-Token": "secret"})
    async with Agent(FunctionModel(play), [tools], runtime=runtime) as agent:
        calls: list[object] = [("add", {"a": n, "b": n}) for n in range(50)]
        calls.append(("header", {"name": "x-token"}))
        result = await within(agent.arun(script(calls, "done")))
        results = [one.result for one in result.tool_executions]
        assert results == [*(str(2 * n) for n in range(50)), "secret"]


async def test_headers_of_a_function_are_asked_for_before_each_request(server: Listening) -> None:
    asked: list[int] = []

    async def headers() -> dict[str, str]:
        asked.append(len(asked))
        return {"X-Token": f"token {len(asked)}"}

    tools = ToolRegistry([MCPTools.http(server.url, headers)])
    sent = [await tools["header"](name="x-token") for _ in range(2)]
    assert sent[0] != sent[1]
    assert sent[1].startswith("token")
    await close_tools(tools.values())


async def test_a_server_that_was_killed_is_survived(server: Listening) -> None:
    tools = ToolRegistry([MCPTools.http(server.url)])
    assert await tools["add"](a=1) == 2
    napping = asyncio.ensure_future(tools["nap"](seconds=300))
    assert await tools["add"](a=2) == 3
    server.kill()
    with pytest.raises(ToolLost, match="its effect may have happened"):
        await within(napping)
    with pytest.raises(ToolError, match="cannot be used"):
        await within(tools["add"](a=1))
    server.start()
    assert await within(tools["add"](a=3)) == 4
    await close_tools(tools.values())


async def test_a_server_that_was_started_anew_between_two_calls_goes_unnoticed(
    server: Listening,
) -> None:
    tools = ToolRegistry([MCPTools.http(server.url)])
    assert await tools["add"](a=1) == 2
    server.kill()
    server.start()
    calls = [tools["add"](a=n) for n in range(20)]
    assert await within(asyncio.gather(*calls)) == [n + 1 for n in range(20)]
    await close_tools(tools.values())
