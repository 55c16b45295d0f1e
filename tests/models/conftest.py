"""A scripted HTTP server on loopback, and the real small model."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tulip_actors.models import LocalModelServer


@dataclass
class Answer:
    """What the server does with one request. `pieces` are sent one by one.

    `then` is what follows them: "end" the answer, "cut" the connection in the middle, or "wait"
    until the client hangs up.
    """

    pieces: list[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    then: str = "end"


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class WireServer:
    """Answers in the order of its script, in a thread and event loop of its own."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self.waiting = threading.Event()
        self.hung_up = threading.Event()
        self._script: deque[Answer] = deque()
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()
        assert self._started.wait(10)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def json(self, payload: object, status: int = 200, **headers: str) -> None:
        """Answer the next request with JSON; underscores in header names become dashes."""
        self.raw([json.dumps(payload).encode()], status, content_type="application/json", **headers)

    def sse(self, *payloads: object, then: str = "end") -> None:
        """Answer the next request with an event stream; texts are sent as they are."""
        lines = [p if isinstance(p, str) else f"data: {json.dumps(p)}\n\n" for p in payloads]
        pieces = [line.encode() for line in lines]
        self.raw(pieces, content_type="text/event-stream", then=then)

    def raw(
        self, pieces: list[bytes], status: int = 200, then: str = "end", **headers: str
    ) -> None:
        """Answer the next request with bytes."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self._script.append(Answer(pieces, status, names, then))

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._receive(head.decode(), reader)
                if not await self._send(self._script.popleft(), reader, writer):
                    break
        except (asyncio.CancelledError, asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._serving.discard(task)
            writer.close()

    async def _receive(self, head: str, reader: asyncio.StreamReader) -> None:
        request, *lines = head.strip().split("\r\n")
        pairs = [line.split(": ", 1) for line in lines]
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append(Received(request.split()[1], headers, json.loads(body)))

    async def _send(
        self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        headers = {"transfer-encoding": "chunked", **answer.headers}
        lines = [f"HTTP/1.1 {answer.status} Any", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        for piece in answer.pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)
        if answer.then == "wait":
            self.waiting.set()
            try:
                await reader.read()
            finally:
                self.hung_up.set()
        if answer.then != "end":
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


@pytest.fixture
def wire() -> Iterator[WireServer]:
    server = WireServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def local_server() -> Iterator[LocalModelServer]:
    with LocalModelServer() as server:
        yield server
