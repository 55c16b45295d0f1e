"""An actor's side of its node's dispatcher: the ToolExecutor port.

One `submit` in flight with everything buffered meanwhile, and one long poll for what happened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

from tulip_actors.core.calls import (
    CallFinished,
    CallKey,
    CallLost,
    CallStatus,
    ToolRequest,
    ToolUpdate,
)
from tulip_actors.errors import ClusterError
from tulip_actors.runtime.failures import ask
from tulip_actors.runtime.tool_work import pack_keys, pack_requests, unpack_updates

WHAT = "the dispatcher"
RETRY_S = 0.2
REQUESTS_PER_MESSAGE = 512
CONNECT_RETRIES_S = (0.1, 0.3, 1.0, None)
_log = logging.getLogger(__name__)


class DispatcherExecutor:
    """Runs calls as Ray tasks through a dispatcher, which `find` makes or finds.

    A dispatcher that dies takes its tasks with it: every open call is reported as lost.
    """

    def __init__(
        self,
        client_id: str,
        find: Callable[[], Any],
        toolsets: Mapping[str, bytes],
        max_concurrency: int | None = None,
    ) -> None:
        self._client_id = client_id
        self._max_concurrency = max_concurrency
        self._find = find
        self._toolsets = toolsets
        self._dispatcher: Any = None
        self._incarnation = ""
        self._knows_tools = ""
        self._ready: asyncio.Task[None] | None = None
        self._buffer: list[ToolRequest] = []
        self._sending: asyncio.Task[None] | None = None
        self._open: set[CallKey] = set()
        self._waiting: set[CallKey] = set()
        self._lost: list[ToolUpdate] = []
        self._background: set[asyncio.Task[object]] = set()
        self._closed = False

    async def incarnation(self) -> str:
        """See `ToolExecutor`. Makes the dispatcher if it is not there yet."""
        await self._connected()
        return self._incarnation

    def warm(self) -> None:
        """Begin to make the dispatcher; returns without waiting."""
        if self._ready is None:
            self._ready = asyncio.ensure_future(self._connect())

    @property
    def queued(self) -> int:
        """Calls that have not begun."""
        return len(self._waiting)

    def submit(self, requests: Sequence[ToolRequest]) -> None:
        """See `ToolExecutor`."""
        self._buffer.extend(requests)
        keys = [request.key for request in requests]
        self._open.update(keys)
        self._waiting.update(keys)
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send())

    async def updates(self) -> AsyncIterator[Sequence[ToolUpdate]]:
        """See `ToolExecutor`."""
        while not self._closed:
            try:
                await self._connected()
                batch = await ask(self._dispatcher.updates.remote(self._client_id), WHAT)
            except ClusterError as error:
                yield await self._after_loss(error)
                continue
            updates = list(unpack_updates(cast(bytes, batch)))
            for update in updates:
                self._waiting.discard(update.key)
                if isinstance(update, CallFinished | CallLost):
                    self._open.discard(update.key)
            if updates:
                yield updates

    async def status(self, keys: Sequence[CallKey]) -> Mapping[CallKey, CallStatus]:
        """See `ToolExecutor`."""
        await self._connected()
        known = await ask(self._dispatcher.status.remote(list(keys)), WHAT)
        return cast(Mapping[CallKey, CallStatus], known)

    async def cancel(self, keys: Sequence[CallKey]) -> None:
        """See `ToolExecutor`."""
        if self._sending is not None:
            await asyncio.shield(self._sending)
        if self._dispatcher is None:
            return
        try:
            await ask(self._dispatcher.cancel.remote(list(keys)), WHAT)
        except ClusterError as error:  # it is gone, and its tasks with it
            _log.debug("cancel: %s", error)

    def release(self, keys: Sequence[CallKey]) -> None:
        """See `ToolExecutor`."""
        if self._dispatcher is not None and keys:
            self._spawn(ask(self._dispatcher.release.remote(pack_keys(keys)), WHAT))

    async def close(self) -> None:
        """See `ToolExecutor`."""
        self._closed = True
        if self._dispatcher is not None:
            try:
                await ask(self._dispatcher.leave.remote(self._client_id), WHAT)
            except ClusterError as error:  # with its last client it ends itself in the call
                _log.debug("leave: %s", error)

    async def _connected(self) -> None:
        self.warm()
        assert self._ready is not None, "just begun"
        await asyncio.shield(self._ready)

    async def _connect(self) -> None:
        """Find or make the dispatcher. One that is just ending is given time to be gone."""
        for wait_s in CONNECT_RETRIES_S:
            self._dispatcher = self._find()
            try:
                greeting = await ask(
                    self._dispatcher.hello.remote(self._client_id, self._max_concurrency), WHAT
                )
            except ClusterError:
                if wait_s is None:
                    self._ready = None
                    raise
                await asyncio.sleep(wait_s)
            else:
                self._incarnation = cast(str, greeting)
                return

    async def _send(self) -> None:
        """Everything there is, in messages: the dispatcher reads one while the next is made."""
        try:
            while self._buffer:
                await self._connected()
                batch, self._buffer = self._buffer, []
                toolsets = {} if self._knows_tools == self._incarnation else self._toolsets
                sent = []
                for start in range(0, len(batch), REQUESTS_PER_MESSAGE):
                    requests = pack_requests(batch[start : start + REQUESTS_PER_MESSAGE])
                    submit = self._dispatcher.submit.remote
                    sent.append(submit(self._client_id, requests, toolsets))
                    toolsets = {}
                for ref in sent:
                    await ask(ref, WHAT)
                self._knows_tools = self._incarnation
        except ClusterError as error:  # the poll meets the same and reports what is lost
            _log.debug("submit: %s", error)
        finally:
            self._sending = None

    async def _after_loss(self, error: ClusterError) -> Sequence[ToolUpdate]:
        """Open calls are lost with their dispatcher; the next one is made at the next turn."""
        self._ready, self._buffer = None, []
        lost = [CallLost(key, str(error), started=True) for key in sorted(self._open)]
        self._open.clear()
        self._waiting.clear()
        await asyncio.sleep(RETRY_S)
        return lost

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(_quietly(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except ClusterError as error:
        _log.debug("release: %s", error)
