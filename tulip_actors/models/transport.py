"""HTTP for every wire format: one client per event loop, JSON and event streams.

What may live here: connections and their lifetime. A client belongs to the event loop it was made
in, so each process keeps one per loop and none is ever pickled.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import ssl
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn, cast
from weakref import WeakKeyDictionary

import httpx

from tulip_actors.core.frozen import Json
from tulip_actors.errors import ModelBadResponse
from tulip_actors.models.failures import (
    Endpoint,
    describe_body,
    refusal_of_response,
    to_model_error,
)
from tulip_actors.models.sse import SseEvent, SseParser

_CONNECT_TIMEOUT_S = 10.0
_DRAIN_TIMEOUT_S = 0.25
_KEEPALIVE_S = 30.0
_MAX_IDLE_CONNECTIONS = 100


@dataclass(frozen=True, slots=True)
class _Pooled:
    """A loop's client. `closer` is held so that the loop finds it when it shuts down."""

    client: httpx.AsyncClient
    closer: AsyncGenerator[None, None]
    pid: int


_pool: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pooled] = WeakKeyDictionary()
_pool_lock = threading.Lock()  # loops of several threads share the table


async def client() -> httpx.AsyncClient:
    """The running loop's client. It is closed when the loop is shut down."""
    loop = asyncio.get_running_loop()
    pooled = _pool.get(loop)
    if pooled is not None and pooled.pid == os.getpid() and not pooled.client.is_closed:
        return pooled.client
    made = _new_client()
    closer = _close_with_loop(made)
    await anext(closer)
    with _pool_lock:
        # A client refers to its loop, so a dead loop's entry would never fall out by itself.
        for other in [loop for loop in _pool if loop.is_closed()]:
            del _pool[other]
        _pool[loop] = _Pooled(made, closer, os.getpid())
    return made


async def _close_with_loop(made: httpx.AsyncClient) -> AsyncGenerator[None, None]:
    """Closes the client when its loop ends: loops close their async generators then."""
    try:
        yield
    finally:
        await made.aclose()


def _new_client() -> httpx.AsyncClient:
    # No bound on connections: thousands of conversations share a process, and what must not
    # exceed a number is requests, which the limiter counts. Loopback never goes through a proxy.
    hosts = ("127.0.0.1", "localhost", "[::1]")
    return httpx.AsyncClient(
        verify=_tls(),
        limits=httpx.Limits(
            max_connections=None,
            max_keepalive_connections=_MAX_IDLE_CONNECTIONS,
            keepalive_expiry=_KEEPALIVE_S,
        ),
        mounts=dict.fromkeys((f"all://{host}" for host in hosts), None),
    )


@functools.cache
def _tls() -> ssl.SSLContext:
    """One context per process: reading the certificates takes longer than a request."""
    return httpx.create_ssl_context()


async def post_json(at: Endpoint, body: Mapping[str, object]) -> Json:
    """The JSON that the endpoint answers. Raises a `ModelError`."""
    response = await _opened(at, body)
    try:
        await _read(response, at)
    finally:
        await response.aclose()
    if response.status_code >= 300:
        refusal = refusal_of_response(response.status_code, response.headers, response.content)
        raise to_model_error(refusal, at)
    return decode_json(response.content, at)


async def _opened(at: Endpoint, body: Mapping[str, object]) -> httpx.Response:
    """The head of the answer; its body is not read yet. Raises a `ModelError`.

    A server may close an idle connection in the moment in which it is used again: then it has
    answered nothing, and the request is sent once more on a new one.
    """
    http = await client()
    try:
        try:
            return await http.send(_request(http, at, body), stream=True)
        except httpx.RemoteProtocolError:
            return await http.send(_request(http, at, body), stream=True)
    except httpx.HTTPError as exc:
        raise to_model_error(exc, at) from None


def decode_json(text: str | bytes, at: Endpoint) -> Json:
    """Parse an answer. Raises `ModelBadResponse` for HTML, nothing, or broken JSON."""
    try:
        return cast(Json, json.loads(text))
    except (ValueError, RecursionError):
        shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
        raise ModelBadResponse(
            f"{at} did not answer in JSON. {at.scrub(describe_body(shown.strip()))} "
            "Check that base_url is the API's (it mostly ends in /v1)"
        ) from None


class EventStream:
    """An open answer, event by event. Iterate once; made by `open_events`."""

    def __init__(self, response: httpx.Response, at: Endpoint) -> None:
        self._at = at
        self._reads = response.aiter_bytes()
        self._parser = SseParser()
        self._ready: deque[SseEvent] = deque()
        self._ended = False

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> SseEvent:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            try:
                self._ready += self._parser.feed(await anext(self._reads))
            except StopAsyncIteration:
                self._ended = True
                self._ready += self._parser.end()
            except httpx.HTTPError as exc:
                raise to_model_error(exc, self._at) from None
        return self._ready.popleft()

    async def drain(self) -> None:
        """Read what little follows the last event, so that the connection can be used again."""
        with suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                async for _ in self._reads:
                    pass

    async def aclose(self) -> None:
        """Let go of the body."""
        await cast(AsyncGenerator[bytes, None], self._reads).aclose()


@asynccontextmanager
async def open_events(at: Endpoint, body: Mapping[str, object]) -> AsyncIterator[EventStream | str]:
    """The endpoint's event stream; its whole text if it answered in JSON instead.

    Leaving the block before the end closes the connection. Raises a `ModelError`.
    """
    response = await _opened(at, body)
    try:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code >= 300:
            await _read(response, at)
            refusal = refusal_of_response(response.status_code, response.headers, response.content)
            raise to_model_error(refusal, at)
        if kind == "application/json":
            await _read(response, at)
            yield response.text
            return
        if kind == "text/html":
            await _read(response, at)
            _not_a_stream(response, at)
        stream = EventStream(response, at)
        try:
            yield stream
        finally:
            await stream.aclose()
    finally:
        await response.aclose()


def _not_a_stream(response: httpx.Response, at: Endpoint) -> NoReturn:
    raise ModelBadResponse(
        f"{at} did not answer with an event stream. {describe_body(response.text.strip())}"
    )


async def _read(response: httpx.Response, at: Endpoint) -> None:
    try:
        await response.aread()
    except httpx.HTTPError as exc:
        raise to_model_error(exc, at) from None


def _request(http: httpx.AsyncClient, at: Endpoint, body: Mapping[str, object]) -> httpx.Request:
    headers = {"content-type": "application/json"}
    if at.key:
        headers["authorization"] = f"Bearer {at.key}"
    # Half characters, which UTF-8 cannot hold, become question marks rather than an exception.
    content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    timeout = httpx.Timeout(at.timeout_s, connect=min(at.timeout_s, _CONNECT_TIMEOUT_S), pool=None)
    return http.build_request("POST", at.url, headers=headers, content=content, timeout=timeout)
