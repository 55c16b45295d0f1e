"""Sessions with a Model Context Protocol server: opened when needed, owned by one task each.

The SDK's scopes must be entered and left by the same task, so a session belongs to a task that does
nothing else; calls run in the tasks of their callers, any number at once. A session lives on one
event loop and is never pickled.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import Context
from importlib.metadata import version
from typing import TYPE_CHECKING, cast

from tulip_actors.core.frozen import Json
from tulip_actors.errors import ConfigError, ToolError, ToolLost
from tulip_actors.tools.mcp_server import Redactor, Server, StderrTail

if TYPE_CHECKING:
    from mcp import Client, MCPError
    from mcp_types import CallToolResult, Tool

LIST_PAGES_MAX = 100
"""A server whose list of tools never ends must not keep an agent from being made."""
LAST_LINES = 5
NOTICED_S = 0.2
"""How long the end of a server's output may take to be seen after its standard error was closed."""
_log = logging.getLogger(__name__)


class Session:
    """One connection, from the start of its owner to the end. Make it on the loop it lives on.

    It begins once the one before it has ended: there is one server process at a time.
    """

    def __init__(
        self, server: Server, redactor: Redactor, start_timeout_s: float, before: Session | None
    ) -> None:
        self.redactor = redactor
        self.stderr = StderrTail()
        self.tools: Sequence[Tool] = ()
        self._server = server
        self._start_timeout_s = start_timeout_s
        self.is_forgotten = False
        self._under_way = 0
        self._lives_without_stderr = False
        self._leave = asyncio.Event()
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # a context of its own: the session outlives the run whose call opens it
        self._owner: asyncio.Task[None] = asyncio.create_task(
            self._own(before._owner if before else None), context=Context()
        )

    async def opened(self) -> None:
        """Returns once the server has answered. Raises `ConfigError` if it does not."""
        await asyncio.shield(self._opened)

    async def call(self, tool_name: str, arguments: Mapping[str, Json]) -> CallToolResult:
        """What the server answers in an opened session. Raises what the SDK raises."""
        self._under_way += 1
        try:
            return await self._opened.result().call_tool(tool_name, dict(arguments))
        finally:
            self._under_way -= 1
            if self.is_forgotten and not self._under_way:
                self._leave.set()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or is about to: calls need a new one."""
        return self.is_forgotten or self._leave.is_set() or self._owner.done()

    async def has_died(self) -> bool:
        """`is_over`, also when the server has died a moment ago.

        Its standard error is closed then, which is seen at once; that of its output takes the SDK a
        few turns of the loop. A server may live on without a standard error, so it is only a hint.
        """
        if self.stderr.is_closed and not self._lives_without_stderr:
            with suppress(TimeoutError):
                async with asyncio.timeout(NOTICED_S):
                    await self._leave.wait()
            self._lives_without_stderr = not self.is_over
        return self.is_over

    def ended(self) -> None:
        """See `Circumstances`."""
        self._leave.set()

    def forgotten(self) -> None:
        """See `Circumstances`. The session ends with the last call under way: each is refused."""
        self.is_forgotten = True
        if not self._under_way:
            self._leave.set()

    async def aclose(self) -> None:
        """End the session, and the server if it is a process of ours; calls under way fail."""
        self._leave.set()
        if not self._opened.done():
            self._owner.cancel()
        await asyncio.wait([self._owner])

    def described(self, error: BaseException) -> str:
        """What went wrong, with the last words of the server, without secrets."""
        while isinstance(error, BaseExceptionGroup):  # the SDK's tasks raise in groups
            error = error.exceptions[0]
        said = str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            said = f"no answer within {self._start_timeout_s:g} s"
        return self.redactor(said) + self.last_words()

    def last_words(self) -> str:
        """The end of the server's standard error, as a part of a sentence; empty without one."""
        lines = self.stderr.text.splitlines()[-LAST_LINES:]
        return self.redactor("; its last words: " + " | ".join(lines)) if lines else ""

    async def _own(self, before: asyncio.Task[None] | None) -> None:
        """Open, hold, close: all in this task."""
        try:
            if before is not None:
                await asyncio.wait([before])
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._start_timeout_s):
                    client = await self._enter(stack)
                    self.tools = await _all_tools(client)
                self._opened.set_result(client)
                await self._leave.wait()
        except Exception as error:  # of the SDK or of the user's factory: the opener's, if he waits
            self._fail(error)
        finally:
            if not self._opened.done():  # cancelled: by `aclose`, or with its loop
                self._fail(ConnectionError("it was closed before it had answered"))

    async def _enter(self, stack: AsyncExitStack) -> Client:
        sdk = await asyncio.to_thread(importlib.import_module, "mcp")  # takes a second
        us = sdk.Implementation(name="tulip_actors", version=version("tulip-actors"))
        transport = self._server.transport(self)
        made = sdk.Client(transport, client_info=us, cache=None)
        return cast("Client", await stack.enter_async_context(made))

    def _fail(self, error: BaseException) -> None:
        if self._opened.done():
            _log.debug("%s: %s", self._server.name, self.described(error))
            return
        what = f"the MCP server {self._server.name} cannot be used: {self.described(error)}"
        self._opened.set_exception(ConfigError(what))
        self._opened.exception()  # whoever waited may have been cancelled meanwhile


class Connection:
    """A server as one agent uses it: one session per event loop, opened by the first call."""

    def __init__(self, server: Server, *, timeout_s: float, start_timeout_s: float) -> None:
        self.server = server
        self.redactor = Redactor()
        self._timeout_s = timeout_s
        self._start_timeout_s = start_timeout_s
        self._sessions: dict[asyncio.AbstractEventLoop, Session] = {}

    async def call(self, tool_name: str, arguments: Mapping[str, Json]) -> CallToolResult:
        """What the server answers. A server that has died meanwhile is started again first.

        Raises `ToolLost` when the session ends during the call, and `ToolError` for a server that
        cannot be reached, refuses the call, or does not answer within `timeout_s`.
        """
        session = await self._open_session()
        from mcp import MCPError  # not earlier: opening imports it in a thread

        try:
            async with asyncio.timeout(self._timeout_s):
                try:
                    return await session.call(tool_name, arguments)
                except MCPError as error:
                    if not session.is_forgotten or _is_closed(error):
                        raise
                # refused by a server that was started anew: nothing has happened yet
                session = await self._open_session()
                return await session.call(tool_name, arguments)
        except TimeoutError:
            raise ToolError(
                f"{tool_name} did not answer within {self._timeout_s:g} s and was told to stop; "
                "its effect may have happened"
            ) from None
        except MCPError as error:
            raise self._failure(session, error) from None
        except (RuntimeError, ValueError) as error:  # the answer does not fit the protocol
            raise ToolError(
                f"the MCP server {self.server.name} answered something that cannot be used: "
                f"{self.redactor(str(error))}"
            ) from None

    def _failure(self, session: Session, error: MCPError) -> ToolError:
        """What became of a call: refused by the server, or lost with it."""
        # a server may use the SDK's number for errors of its own: only over HTTP nothing else tells
        is_cut = _is_closed(error) and not self.server.tells_its_end
        if not session.is_over and not is_cut:
            return ToolError(self.redactor(error.message))
        if not session.is_forgotten:
            session.ended()
        return ToolLost(
            f"the MCP server {self.server.name} was lost during the call "
            f"({session.described(error)}); its effect may have happened"
        )

    async def list(self) -> Sequence[Tool]:
        """The server's tools. Raises `ConfigError` when it cannot be reached."""
        session = self._session()
        await session.opened()
        return session.tools

    async def aclose(self) -> None:
        """End the session of the running loop, if it has one."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.aclose()

    async def _open_session(self) -> Session:
        try:
            session = self._session()
            await session.opened()
            if await session.has_died():
                session = self._session()
                await session.opened()
        except ConfigError as error:
            raise ToolError(error.message) from None
        return session

    def _session(self) -> Session:
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None or session.is_over:
            session = Session(self.server, self.redactor, self._start_timeout_s, session)
            for other in [other for other in self._sessions if other.is_closed()]:
                del self._sessions[other]  # its session went with it
            self._sessions[loop] = session
        return session

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "redactor": Redactor(), "_sessions": {}}


def _is_closed(error: MCPError) -> bool:
    """Whether the SDK says that the connection has ended."""
    from mcp_types import CONNECTION_CLOSED

    return error.code == CONNECTION_CLOSED


async def _all_tools(client: Client) -> Sequence[Tool]:
    """Every page of the list. The SDK keeps the schemas, by which it checks results.

    Raises `ConfigError` for a list without end.
    """
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(LIST_PAGES_MAX):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return tools
    raise ConfigError(
        f"the list of the server's tools has more than {LIST_PAGES_MAX} pages; it seems to repeat "
        "itself, which is the server's to mend"
    )
