"""How a Model Context Protocol server is reached: as a process of ours, or over HTTP.

What may live here: what a user said of a server, and the SDK's connection made of it. Values of
`env` and `headers` are secrets: they are in no repr, and `Redactor` takes them out of whatever is
said of the server. The SDK is imported when a connection is made.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, cast
from urllib.parse import urlsplit

from tulip_actors.errors import ConfigError

if TYPE_CHECKING:
    import httpx2
    from mcp.client import Transport

Entries: TypeAlias = Mapping[str, str]
Secrets: TypeAlias = Entries | Callable[[], Entries | Awaitable[Entries]] | None
"""Names and values, or a function (plain or async) that gives them in the process that connects."""

SECRET_CHARS_MIN = 4
"""Shorter values are no secrets, and would be found in every other word."""
TAIL_BYTES = 2_000
HTTP_TIMEOUT_S = 30.0
HTTP_SILENCE_S = 300.0
"""How long a server may keep a stream open without a word; calls have deadlines of their own."""
SESSION = "mcp-session-id"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Redactor:
    """Takes secret values out of texts."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()

    def learn(self, entries: Entries) -> None:
        """Remember values; of "Bearer x" also the x."""
        for value in entries.values():
            parts = {value, value.rpartition(" ")[2]}
            self._secrets |= {part for part in parts if len(part) >= SECRET_CHARS_MIN}

    def __call__(self, text: str) -> str:
        """The text with "***" in place of every secret."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


class Circumstances(Protocol):
    """What a connection tells of itself while it lasts."""

    redactor: Redactor
    stderr: StderrTail

    def ended(self) -> None:
        """The server has closed its end."""
        ...

    def forgotten(self) -> None:
        """The server is there, and has refused a request because it does not know the session."""
        ...


class Server(Protocol):
    """One server, not connected: picklable, and of no process."""

    @property
    def name(self) -> str:
        """Command or address, for messages; without secrets."""
        ...

    @property
    def tells_its_end(self) -> bool:
        """Whether a connection calls `ended` when the server is gone."""
        ...

    def transport(self, around: Circumstances) -> Transport:
        """A new connection, to be entered and left by one task."""
        ...


@dataclass(frozen=True, slots=True)
class StdioServer:
    """A server that is started as a process and spoken to over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Secrets = field(default=None, repr=False)
    cwd: str | None = None
    tells_its_end: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The command line."""
        return shlex.join([self.command, *self.args])

    def transport(self, around: Circumstances) -> AbstractAsyncContextManager[Any]:
        """See `Server`. Entering raises OSError when the command cannot be started."""
        return self._connected(around)

    @asynccontextmanager
    async def _connected(self, around: Circumstances) -> AsyncGenerator[tuple[Any, Any]]:
        from mcp.client.stdio import StdioServerParameters, stdio_client

        env = await resolved(self.env, "env")
        around.redactor.learn(env)
        parameters = StdioServerParameters(
            command=self.command,
            args=list(self.args),
            env=dict(env),
            cwd=self.cwd,
            encoding_error_handler="replace",
        )
        with around.stderr as errlog:
            async with stdio_client(parameters, errlog=errlog) as (read, write):
                errlog.close()  # the server has its own copy; the pipe ends with that
                yield _Watched(read, around.ended), write


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that is there already, spoken to over streamable HTTP."""

    url: str = field(repr=False)
    headers: Secrets = field(default=None, repr=False)
    tells_its_end: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raise `ConfigError` for what is no address."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"MCPTools.http: give an address such as http://host/mcp, not {self}")

    @property
    def name(self) -> str:
        """The address without user, password and query, which may be secret."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return f"{parts.scheme}://{host}{parts.path}"

    def __str__(self) -> str:
        return self.name

    def transport(self, around: Circumstances) -> AbstractAsyncContextManager[Any]:
        """See `Server`. Headers are asked for before every request, so a token may change."""
        return self._connected(around)

    @asynccontextmanager
    async def _connected(self, around: Circumstances) -> AsyncGenerator[tuple[Any, Any]]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        async def sign(request: httpx2.Request) -> None:
            headers = await resolved(self.headers, "headers")
            around.redactor.learn(headers)
            request.headers.update(headers)

        async def look_at(response: httpx2.Response) -> None:
            # as the protocol says it; the SDK passes on what the server says beside it
            if response.status_code == HTTPStatus.NOT_FOUND and SESSION in response.request.headers:
                around.forgotten()

        parts = urlsplit(self.url)
        around.redactor.learn({"query": parts.query, "password": parts.password or ""})
        async with (
            httpx2.AsyncClient(
                timeout=httpx2.Timeout(HTTP_TIMEOUT_S, read=HTTP_SILENCE_S),
                event_hooks={"request": [sign], "response": [look_at]},
                mounts=dict.fromkeys((f"all://{host}" for host in _LOOPBACK), None),
            ) as client,
            streamable_http_client(self.url, http_client=client) as streams,
        ):
            yield streams


async def resolved(secrets: Secrets, what: str) -> Entries:
    """The entries themselves. Raises `ConfigError`, without a value, for what is no text."""
    entries: object = secrets() if callable(secrets) else secrets
    if isinstance(entries, Awaitable):
        entries = await entries
    return checked_entries(entries, what)


def checked_entries(entries: object, what: str) -> Entries:
    """The entries, none for None. Raises `ConfigError`, without a value, for what is no text."""
    if entries is None:
        return {}
    if isinstance(entries, Mapping) and all(
        isinstance(part, str) for entry in entries.items() for part in entry
    ):
        return cast(Entries, entries)
    raise ConfigError(f"{what}: give a mapping of text to text, or a function that returns one")


class StderrTail:
    """A file for a process to write its errors to, of which only the end is kept.

    Enter it on the event loop that reads it.
    """

    def __init__(self) -> None:
        self._kept = bytearray()
        self._read_fd = -1
        self._is_cut = False
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether nobody can write any more: the process is gone, or has closed it."""
        if self._read_fd >= 0:
            self._take()
        return self._is_closed

    @property
    def text(self) -> str:
        """The lines written last, up to now: whole ones, for half a secret is not recognised."""
        if self._read_fd >= 0:
            self._take()
        kept = self._kept.partition(b"\n")[2] if self._is_cut else self._kept
        return kept.decode(errors="replace").strip()

    def __enter__(self) -> Any:
        self._read_fd, write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_fd, self._take)
        self._file = os.fdopen(write_fd, "w")
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._take()
        self._loop.remove_reader(self._read_fd)
        os.close(self._read_fd)
        self._read_fd = -1

    def _take(self) -> None:
        try:
            while piece := os.read(self._read_fd, 65_536):
                self._kept += piece
                self._is_cut = self._is_cut or len(self._kept) > TAIL_BYTES
                del self._kept[:-TAIL_BYTES]
        except BlockingIOError:
            return
        self._is_closed = True
        self._loop.remove_reader(self._read_fd)  # the end; a closed pipe would always be readable


class _Watched:
    """The SDK's stream of what a server says, which tells when the server has closed its end.

    The SDK itself tells only those who wait for an answer; a server that died between two calls is
    to be noticed before the next one is sent to it.
    """

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        left: bool | None = await self._stream.__aexit__(kind, error, trace)
        return left
