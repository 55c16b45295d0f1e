"""Tools of Model Context Protocol servers.

What may live here: a server's tools as tools of ours, and its answers as their results. Where a
server is and how to speak to it: `mcp_server`, `mcp_session`. Nothing of the SDK is kept in what
travels to another process; the optional package is needed where a server is listed or called.
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, NamedTuple, Self

from tulip_actors.core.frozen import Json
from tulip_actors.errors import ConfigError, MissingExtra, NotSerialisable, ToolError
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.invoke import result_text
from tulip_actors.tools.mcp_server import HttpServer, Secrets, Server, StdioServer, checked_entries
from tulip_actors.tools.mcp_session import Connection
from tulip_actors.tools.signature import GivenSignature

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

TIMEOUT_S = 60.0
START_TIMEOUT_S = 30.0
NAME_CHARS_MAX = 64
_BEGINS_WELL = re.compile(r"[A-Za-z_]")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Options:
    """Which of a server's tools an agent gets, and for how long they are waited for.

    `include` and `exclude` take the server's names of tools; `prefix` stands before each name.
    `timeout_s` is for a call, `start_timeout_s` for a server to start and list its tools.
    """

    include: tuple[str, ...] | None
    exclude: tuple[str, ...]
    prefix: str
    timeout_s: float
    start_timeout_s: float


class Listed(NamedTuple):
    """A tool as its server describes it."""

    name: str
    description: str
    schema: Mapping[str, object]


class MCPTools:
    """The tools of one server, in an agent's `tools=[...]` like any other.

    Each becomes a tool with the server's name (after `prefix`; what a name may not hold becomes
    "_"), description and schema. The server is asked for its list once, when the first agent is
    made, which waits for it: `ConfigError`, with what the server said last, if that fails.

    Calls are made by the agent's process, over a session of its own that its first call opens: a
    server over stdio runs beside the agent, and ends with it. A server that dies is started again
    by the next call; calls under way fail with `ToolLost`. See docs/decisions/0015.

    Values of `env` and `headers` are kept out of every message of ours. Give a function (plain or
    async) that returns them, and they are not even sent: it is called in the agent's process.
    """

    def __init__(self, server: Server, options: Options) -> None:
        """See `stdio` and `http`. Raises `MissingExtra`."""
        if importlib.util.find_spec("mcp") is None:
            raise MissingExtra('MCP servers need a package: pip install "tulip-actors[mcp]"')
        self._server = server
        self._options = options
        self._listed: Sequence[Listed] | None = None

    @classmethod
    def stdio(
        cls,
        command: str,
        args: Iterable[str] = (),
        env: Secrets = None,
        cwd: str | PathLike[str] | None = None,
        *,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        prefix: str = "",
        timeout_s: float = TIMEOUT_S,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> Self:
        """A server that is a command, started with `args` in the folder `cwd`.

        It gets `env` and, of the environment, only what a program needs: PATH, HOME, LOGNAME, USER,
        SHELL, TERM. For the rest see `Options`.
        """
        if not isinstance(command, str) or not command:
            raise ConfigError(f"MCPTools.stdio: command is a program's name, not {command!r:.80}")
        options = _options(include, exclude, prefix, timeout_s, start_timeout_s)
        server = StdioServer(
            command,
            _texts("args", args),
            env if callable(env) else dict(checked_entries(env, "MCPTools.stdio: env")),
            None if cwd is None else fspath(cwd),
        )
        return cls(server, options)

    @classmethod
    def http(
        cls,
        url: str,
        headers: Secrets = None,
        *,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        prefix: str = "",
        timeout_s: float = TIMEOUT_S,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> Self:
        """A server that speaks streamable HTTP at `url`.

        `headers` go along with every request; a function is asked before each, so that a token may
        change. For the rest see `Options`.
        """
        options = _options(include, exclude, prefix, timeout_s, start_timeout_s)
        if not callable(headers):
            headers = dict(checked_entries(headers, "MCPTools.http: headers"))
        return cls(HttpServer(url, headers), options)

    def expand(self) -> Sequence[Tool]:
        """The server's tools, with a session of their own. Raises `ConfigError`.

        The first time it waits for the server, without the caller's event loop going on meanwhile.
        """
        if self._listed is None:
            with ThreadPoolExecutor(1, "tulip-mcp-list") as thread:
                self._listed = thread.submit(asyncio.run, self._list()).result()
        connection = self._connection()
        return [self._tool(listed, connection) for listed in self._chosen(self._listed)]

    async def _list(self) -> Sequence[Listed]:
        connection = self._connection()
        try:
            tools = await connection.list()
        finally:
            await connection.aclose()
        return [Listed(tool.name, tool.description or "", tool.input_schema) for tool in tools]

    def _connection(self) -> Connection:
        options = self._options
        return Connection(
            self._server, timeout_s=options.timeout_s, start_timeout_s=options.start_timeout_s
        )

    def _chosen(self, listed: Sequence[Listed]) -> Sequence[Listed]:
        include, exclude = self._options.include, self._options.exclude
        names = [one.name for one in listed]
        unknown = sorted({*(include or ()), *exclude} - set(names))
        if unknown:
            raise ConfigError(
                f"the MCP server {self._server.name} has no tool {', '.join(unknown)}; "
                f"it has: {', '.join(names) or 'none at all'}"
            )
        wanted = names if include is None else include
        return [one for one in listed if one.name in wanted and one.name not in exclude]

    def _tool(self, listed: Listed, connection: Connection) -> Tool:
        name = _NOT_IN_NAMES.sub("_", self._options.prefix + listed.name)
        if not _BEGINS_WELL.match(name):
            name = f"_{name}"
        try:
            return Tool(
                MCPCall(connection, listed.name),
                name=name[:NAME_CHARS_MAX],
                description=listed.description,
                signature=GivenSignature(listed.schema),
                inline=True,
            )
        except NotSerialisable as error:
            raise ConfigError(
                f"the MCP server {self._server.name}: the schema of its tool {listed.name} cannot "
                f"be used: {error.message}"
            ) from None

    def __repr__(self) -> str:
        prefix = f", prefix={self._options.prefix!r}" if self._options.prefix else ""
        return f"MCPTools({self._server.name!r}{prefix})"


class MCPCall:
    """One tool of a server, as the function of a `Tool`."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    async def __call__(self, /, **arguments: Json) -> object:
        """What the server answered. Raises a `ToolError`."""
        result = await self._connection.call(self._name, arguments)
        if result.is_error:
            said = "\n".join(_shown(block) for block in result.content)
            raise ToolError(
                self._connection.redactor(said) or f"{self._name} failed, and did not say why"
            )
        return value_of(result)

    async def aclose(self) -> None:
        """See `Closable`."""
        await self._connection.aclose()

    def __repr__(self) -> str:
        return f"MCPCall({self._name!r} of {self._connection.server.name!r})"


def value_of(result: CallToolResult) -> object:
    """What a tool of ours would have returned.

    Structured content, where there is some; the text beside it says the same, as the protocol asks
    for. Otherwise the texts, joined. Images and the like are noted, not shown.
    """
    from mcp_types import TextContent

    if result.structured_content is None:
        return "\n".join(_shown(block) for block in result.content)
    structured = _unwrapped(result.structured_content)
    notes = [_shown(block) for block in result.content if not isinstance(block, TextContent)]
    return "\n".join([result_text(structured), *notes]) if notes else structured


def _unwrapped(structured: object) -> object:
    """Without the {"result": ...} in which servers put what is no object by itself."""
    if isinstance(structured, dict) and set(structured) == {"result"}:
        return structured["result"]
    return structured


def _shown(block: ContentBlock) -> str:
    """A part of an answer, as text."""
    from mcp_types import EmbeddedResource, ResourceLink, TextContent, TextResourceContents

    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ResourceLink):
        return f"[resource {block.name}: {block.uri}]"
    if isinstance(block, EmbeddedResource):
        resource = block.resource
        if isinstance(resource, TextResourceContents):
            return resource.text
        return _noted("file", resource.mime_type, resource.blob)
    return _noted(block.type, block.mime_type, block.data)


def _noted(kind: str, mime_type: str | None, base64_text: str) -> str:
    size_bytes = len(base64_text) * 3 // 4
    return f"[{kind}, {mime_type or 'of unknown type'}, about {size_bytes} bytes, not shown]"


def _options(
    include: Iterable[str] | None,
    exclude: Iterable[str],
    prefix: str,
    timeout_s: float,
    start_timeout_s: float,
) -> Options:
    for name, seconds in (("timeout_s", timeout_s), ("start_timeout_s", start_timeout_s)):
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ConfigError(f"MCPTools: {name} is a number of seconds above 0, not {seconds!r}")
    if not isinstance(prefix, str):
        raise ConfigError(f"MCPTools: prefix is text, not {prefix!r:.80}")
    return Options(
        None if include is None else _texts("include", include),
        _texts("exclude", exclude),
        prefix,
        timeout_s,
        start_timeout_s,
    )


def _texts(name: str, value: Iterable[str]) -> tuple[str, ...]:
    texts = () if isinstance(value, str) else tuple(value)
    if isinstance(value, str) or not all(isinstance(one, str) for one in texts):
        raise ConfigError(f"MCPTools: {name} is a list of texts, not {value!r:.80}")
    return texts
