"""A server's tools as tools of ours: names, choice, schemas, results, errors, secrets."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.mcp.conftest import LIGHT_SERVER, SDK_SERVER, Listening, is_alive, light
from tests.runtime.support import eventually, play, script, within
from tulip_actors import (
    Agent,
    ConfigError,
    MCPTools,
    MissingExtra,
    ToolArgumentsInvalid,
    ToolContext,
    ToolError,
    tool,
)
from tulip_actors.core.calls import CallKind
from tulip_actors.testing import FunctionModel
from tulip_actors.tools.group import close_tools
from tulip_actors.tools.registry import ToolRegistry
from tulip_actors.tools.signature import GivenSignature

SECRET, OTHER_SECRET = "sesame-1234", "poppy-5678"


@pytest.fixture(scope="module")
def described() -> MCPTools:
    """The server made with the SDK, listed once."""
    return MCPTools.stdio(sys.executable, [SDK_SERVER, "stdio"], {"API_KEY": SECRET})


@pytest.fixture
async def tools(described: MCPTools) -> Any:
    """Its tools, for one test."""
    made = ToolRegistry([described])
    yield made
    await close_tools(made.values())


# names and schemas


def test_a_group_stands_beside_other_tools_and_its_schemas_are_passed_on(
    described: MCPTools,
) -> None:
    @tool
    def mine() -> None:
        """Nothing."""

    registry = ToolRegistry([mine, described])
    assert {"mine", "add", "header"} < set(registry)
    add = registry["add"]
    assert add.description == "Add two numbers."
    assert add.policy.kind is CallKind.INLINE
    assert add.parameters["properties"] == {
        "a": {"title": "A", "type": "integer"},
        "b": {"default": 1, "title": "B", "type": "integer"},
    }


def test_a_prefix_and_names_that_models_cannot_be_told(described: MCPTools) -> None:
    assert "take_picture" in ToolRegistry([described]), "a dot is no part of a name"
    assert set(ToolRegistry([light(prefix="1.")])) == {"_1_add", "_1_pid", "_1_die", "_1_wait"}


def test_include_and_exclude_choose_by_the_servers_names() -> None:
    assert list(ToolRegistry([light(include=["pid", "add"], prefix="x_")])) == ["x_add", "x_pid"]
    assert list(ToolRegistry([light(exclude=["die", "wait"])])) == ["add", "pid"]
    assert list(ToolRegistry([light(include=["pid", "add"], exclude=["add"])])) == ["pid"]


def test_a_chosen_tool_that_the_server_has_not_is_an_error_that_tells_those_it_has() -> None:
    for choice in ({"include": ["subtract"]}, {"exclude": ["subtract"]}):
        with pytest.raises(ConfigError, match=r"no tool subtract; it has: add, pid, die, wait"):
            ToolRegistry([light(**choice)])


def test_two_servers_with_a_tool_of_one_name_need_a_prefix() -> None:
    with pytest.raises(ConfigError, match="two tools are named 'add'"):
        ToolRegistry([light(), light()])


@pytest.mark.parametrize(
    ("schema", "accepts_more"),
    [
        ({"type": "object", "properties": {"a": {}}}, False),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": True}, True),
        ({"type": "object", "properties": {"a": {}}, "patternProperties": {"^x": {}}}, True),
        ({"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["b"]}]}, True),
        ({"type": "object"}, False),
    ],
)
def test_unknown_names_are_refused_where_the_schema_names_all(
    schema: dict[str, Any], accepts_more: bool
) -> None:
    signature = GivenSignature(schema)
    if accepts_more:
        assert signature.validate("t", {"b": [1]}) == {"b": [1]}
        return
    with pytest.raises(ToolArgumentsInvalid, match=r"b: there is no such argument.*Send a JSON"):
        signature.validate("t", {"b": 1})


def test_a_missing_argument_is_named_and_values_are_left_to_the_server() -> None:
    signature = GivenSignature({"properties": {"a": {"type": "integer"}}, "required": ["a"]})
    with pytest.raises(ToolArgumentsInvalid, match=r"a: is missing\. Send a JSON object with: a"):
        signature.validate("t", {})
    assert signature.bind("t", signature.validate("t", {"a": "text"})) == {"a": "text"}


# results


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("add", {"a": 2}, 3),
        ("table", {}, {"rows": 2}),
        ("lines", {}, "one\ntwo"),
        ("take_picture", {}, "a tulip\n[image, image/png, about 3000 bytes, not shown]"),
    ],
)
async def test_what_a_server_answers_is_what_a_tool_of_ours_would_have_returned(
    tools: ToolRegistry, name: str, arguments: Mapping[str, object], value: object
) -> None:
    assert await tools[name](**arguments) == value


async def test_what_the_server_refuses_is_an_error_of_the_call(tools: ToolRegistry) -> None:
    with pytest.raises(ToolError, match="no such luck"):
        await tools["fail"](message="no such luck")
    with pytest.raises(ToolError, match="integer"):
        await tools["add"](a="text")


async def test_a_tool_of_ours_may_call_one_of_a_server_which_ends_with_it(runtime: str) -> None:
    by_name = {one.name: one for one in light().expand()}

    @tool
    async def sums(upto: int, ctx: ToolContext) -> list[object]:
        """Add 1 to each, by the server."""
        sums = await ctx.map(by_name["add"], [{"a": n} for n in range(upto)])
        return [await ctx.call(by_name["pid"]), *sums]

    async with Agent(FunctionModel(play), [sums], runtime=runtime) as agent:
        result = await within(agent.arun(script([("sums", {"upto": 3})], "done")))
    pid, *added = json.loads(result.tool_executions[0].result or "")
    assert added == ["1", "2", "3"]
    await close_tools(by_name.values())
    await eventually(lambda: not is_alive(int(pid)), "the server is gone")


# what keeps a server from being used


def test_a_server_that_cannot_be_started_is_named_when_the_agent_is_made() -> None:
    code = "import sys; sys.exit('the key has expired')"
    with pytest.raises(ConfigError, match=r"(?s)MCP server .*-c.* the key has expired"):
        Agent("openai:x", [MCPTools.stdio(sys.executable, ["-c", code])], runtime="inline")
    with pytest.raises(ConfigError, match=r"MCP server no-such-command .*No such file"):
        Agent("openai:x", [MCPTools.stdio("no-such-command")], runtime="inline")


def test_a_server_that_says_nothing_is_given_up() -> None:
    code = "import sys; sys.stdin.read()"
    tools = MCPTools.stdio(sys.executable, ["-c", code], start_timeout_s=0.5)
    with pytest.raises(ConfigError, match=r"no answer within 0\.5 s"):
        ToolRegistry([tools])


async def test_a_server_that_does_not_start_again_is_an_error_of_the_call(tmp_path: Any) -> None:
    program = tmp_path / "server.py"
    program.write_text(f"exec(open(r'{LIGHT_SERVER}').read())")
    tools = ToolRegistry([MCPTools.stdio(sys.executable, [str(program)])])
    program.write_text("raise SystemExit('gone on holiday')")
    with pytest.raises(ToolError, match="gone on holiday"):
        await tools["pid"]()
    program.write_text(f"exec(open(r'{LIGHT_SERVER}').read())")
    assert await tools["add"](a=1) == "2"
    await close_tools(tools.values())


def test_an_agent_can_be_made_under_a_running_loop_and_in_a_thread(runtime: str) -> None:
    async def made() -> list[str]:
        return list(Agent("openai:x", [light()], runtime=runtime).config.tools)

    assert asyncio.run(made()) == ["add", "pid", "die", "wait"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MCPTools.stdio(""), "command"),
        (lambda: MCPTools.stdio("x", "-m server"), "args is a list of texts"),
        (lambda: MCPTools.stdio("x", env={"A": 1}), "env: give a mapping of text"),  # type: ignore[dict-item]
        (lambda: MCPTools.http("server/mcp"), "http://host/mcp"),
        (lambda: MCPTools.http("http://x", [("A", "b")]), "headers: give a mapping"),  # type: ignore[arg-type]
        (lambda: MCPTools.stdio("x", include="add"), "include is a list of texts"),
        (lambda: MCPTools.stdio("x", timeout_s=0), "timeout_s is a number of seconds above 0"),
        (lambda: MCPTools.stdio("x", prefix=None), "prefix is text"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_without_the_sdk_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"tulip-actors\[mcp\]"):
        MCPTools.stdio("x")


# secrets


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """Everything that was logged, at any level, by anybody."""
    with caplog.at_level(logging.DEBUG):
        yield lambda: caplog.text


async def test_values_of_env_are_in_no_error_log_or_repr(
    tools: ToolRegistry, described: MCPTools, logged: Callable[[], str]
) -> None:
    with pytest.raises(ToolError, match=r"the key is \*\*\*") as told:
        await tools["fail"](message="the key is $API_KEY")
    shown = [str(told.value), logged(), repr(described), repr(vars(described))]
    shown += [repr(tools["fail"]), repr(tools["fail"].fn), repr(vars(tools["fail"].fn))]
    assert not [text for text in shown if SECRET in text]


def test_values_of_env_are_not_in_what_a_server_said_last() -> None:
    code = "import os, sys; sys.exit('wrong key ' + os.environ['API_KEY'])"
    tools = MCPTools.stdio(sys.executable, ["-c", code], {"API_KEY": SECRET})
    with pytest.raises(ConfigError, match=r"wrong key \*\*\*"):
        ToolRegistry([tools])


def test_half_a_secret_at_the_beginning_of_what_is_kept_is_left_out() -> None:
    code = (
        "import os, sys; sys.stderr.write((os.environ['API_KEY'] + '\\n') * 5000); sys.exit('bye')"
    )
    tools = MCPTools.stdio(sys.executable, ["-c", code], {"API_KEY": SECRET * 40})
    with pytest.raises(ConfigError, match=r"\*\*\* \| bye") as told:
        ToolRegistry([tools])
    assert "sesame-1234" not in str(told.value)


async def test_a_function_gives_env_where_the_server_is_started(runtime: str) -> None:
    async def env() -> Mapping[str, str]:
        return {"FROM_A_FUNCTION": SECRET}

    described = MCPTools.stdio(sys.executable, [SDK_SERVER, "stdio"], env)
    async with Agent(FunctionModel(play), [described], runtime=runtime) as agent:
        result = await within(agent.arun(script([("environment", {})], "done")))
        assert "FROM_A_FUNCTION" in (result.tool_executions[0].result or "")


async def test_a_server_does_not_get_the_environment_of_the_agent(
    tools: ToolRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    names = await tools["environment"]()
    assert "PATH" in names
    assert "OPENAI_API_KEY" not in names


async def test_values_of_headers_and_secrets_of_an_address_are_in_no_error_log_of_ours_or_repr(
    listening: Listening, logged: Callable[[], str]
) -> None:
    url = listening.url.replace("://", f"://user:{SECRET}@") + f"?token={SECRET}"
    described = MCPTools.http(url, {"X-Key": f"Bearer {OTHER_SECRET}"})
    tools = ToolRegistry([described])
    listening.kill()
    with pytest.raises(ToolError, match="cannot be used") as told:
        await tools["add"](a=1)
    ours = [line for line in logged().splitlines() if "tulip_actors" in line]
    shown = [str(told.value), repr(described), repr(vars(described)), *ours]
    shown += [repr(tools["add"].fn), repr(vars(tools["add"].fn))]
    assert not [text for text in shown if SECRET in text or OTHER_SECRET in text]
    assert OTHER_SECRET not in logged(), "nor do those log it who make the connection"
    await close_tools(tools.values())
