"""The conversation of one actor with one dispatcher.

One `submit` in flight with everything buffered meanwhile, and one long poll for what happened. A
dispatcher that dies takes its tasks with it: every open call that was on its way to it is told
lost. What was still buffered goes to the next one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, cast

from tulip_actors.core.calls import (
    CallFinished,
    CallKey,
    CallLost,
    CallStatus,
    ToolRequest,
    ToolUpdate,
)
from tulip_actors.errors import ClusterError, StaleEpoch
from tulip_actors.runtime.failures import ask
from tulip_actors.runtime.tool_work import pack_keys, pack_requests, unpack_updates

WHAT = "the dispatcher"
RETRY_S = 0.2
REQUESTS_PER_MESSAGE = 512
CONNECT_RETRIES_S = (0.1, 0.3, 1.0)
"""Waits between attempts to connect; the last is repeated."""
AWAY_S = 30.0
"""How long a dispatcher may be away: its process is back in a second, on a busy machine later."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Client:
    """Who calls. Of two processes with one id that with the higher `generation` is heard: the other
    one is a leftover. `toolsets` are the packed tools that requests name."""

    id: str
    generation: int
    toolsets: Mapping[str, bytes]
    max_concurrency: int | None = None


class DispatcherLink:
    """Calls through the dispatcher that `find` gives; `tell` hears what becomes of them. One that
    does not answer is given up after `away_s`."""

    def __init__(
        self,
        client: Client,
        find: Callable[[], Any],
        tell: Callable[[Sequence[ToolUpdate]], None],
        away_s: float = AWAY_S,
    ) -> None:
        self._away_s = away_s
        self._client = client
        self._find = find
        self._tell = tell
        self._dispatcher: Any = None
        self.incarnation = ""
        self._knows_tools = ""
        self._ready: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._buffer: list[ToolRequest] = []
        self._unsure: list[ToolRequest] = []
        self._losses = 0
        self._sending: asyncio.Task[None] | None = None
        self._adopted: set[CallKey] = set()
        self._open: set[CallKey] = set()
        self._waiting: set[CallKey] = set()
        self._background: set[asyncio.Task[object]] = set()
        self._closed = False

    @property
    def queued(self) -> int:
        """Calls that have not begun."""
        return len(self._waiting)

    def warm(self) -> None:
        """Begin to connect; returns without waiting."""
        if self._ready is None:
            self._ready = asyncio.ensure_future(self._connect())

    async def connected(self) -> None:
        """Wait until the dispatcher has answered; `incarnation` names it. Raises `ClusterError`."""
        self.warm()
        assert self._ready is not None, "just begun"
        await asyncio.shield(self._ready)

    def submit(self, requests: Sequence[ToolRequest], *, adopted: bool = False) -> None:
        """See `ToolExecutor`. Those that are `adopted` are for this dispatcher alone: the next one
        knows nothing of them, and would make them once more."""
        self._buffer.extend(requests)
        keys = [request.key for request in requests]
        if adopted:
            self._adopted.update(keys)
        self._open.update(keys)
        self._waiting.update(keys)
        self._begin_to_send()

    async def status(self, keys: Sequence[CallKey]) -> Mapping[CallKey, CallStatus]:
        """See `ToolExecutor`."""
        await self.connected()
        known = await ask(self._dispatcher.status.remote(list(keys)), WHAT)
        return cast(Mapping[CallKey, CallStatus], known)

    async def cancel(self, keys: Sequence[CallKey]) -> None:
        """See `ToolExecutor`."""
        unwanted = set(keys)
        self._buffer = [request for request in self._buffer if request.key not in unwanted]
        self._unsure = [request for request in self._unsure if request.key not in unwanted]
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
        """Leave the dispatcher, which ends what it still runs for this client."""
        self._closed = True
        if self._polling is not None:
            self._polling.cancel()
        if self._dispatcher is not None:
            try:
                client = self._client
                await ask(self._dispatcher.leave.remote(client.id, client.generation), WHAT)
            except ClusterError as error:  # with its last client it ends itself in the call
                _log.debug("leave: %s", error)

    async def _connect(self) -> None:
        """Find or make the dispatcher. One that is just ending is given time to be gone."""
        client = self._client
        until_s = time.monotonic() + self._away_s
        for wait_s in chain(CONNECT_RETRIES_S, repeat(CONNECT_RETRIES_S[-1])):
            self._dispatcher = self._find()
            hello = self._dispatcher.hello
            try:
                greeting = await ask(
                    hello.remote(client.id, client.generation, client.max_concurrency), WHAT
                )
            except ClusterError:
                if time.monotonic() > until_s:
                    self._ready = None
                    raise
                await asyncio.sleep(wait_s)
            else:
                self.incarnation = cast(str, greeting)
                if self._polling is None:  # from now on: who does not ask is forgotten
                    self._polling = asyncio.ensure_future(self._poll())
                return

    async def _poll(self) -> None:
        """Take what happened to the calls, for as long as the link is open."""
        client = self._client
        while not self._closed:
            was_there = False
            try:
                await self.connected()
                was_there = True
                updates = self._dispatcher.updates.remote(
                    client.id, client.generation, self.incarnation
                )
                batch = list(unpack_updates(cast(bytes, await ask(updates, WHAT))))
            except (ClusterError, StaleEpoch) as error:
                self._ready = None
                if isinstance(error, StaleEpoch) or not was_there:
                    self._buffer = []  # nor is there another one to give it to
                self._lose(error)
                await asyncio.sleep(RETRY_S)
                continue
            if self._unsure:  # the same one is there still: known keys are taken once
                self._buffer, self._unsure = [*self._unsure, *self._buffer], []
                self._begin_to_send()
            for update in batch:
                self._waiting.discard(update.key)
                if isinstance(update, CallFinished | CallLost):
                    self._open.discard(update.key)
                    self._adopted.discard(update.key)
            if batch:
                self._tell(batch)

    def _begin_to_send(self) -> None:
        if self._buffer and self._sending is None and not self._unsure:
            self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        """Everything there is, in messages: the dispatcher reads one while the next is made.

        After one that failed nothing is sent until the poll has told what it was.
        """
        client, losses = self._client, self._losses
        batch: list[ToolRequest] = []
        refused = False
        try:
            while self._buffer:
                await self.connected()
                batch, self._buffer, losses = self._buffer, [], self._losses
                here = self.incarnation
                toolsets = {} if self._knows_tools == here else client.toolsets
                sent = []
                for start in range(0, len(batch), REQUESTS_PER_MESSAGE):
                    requests = pack_requests(batch[start : start + REQUESTS_PER_MESSAGE])
                    submit = self._dispatcher.submit.remote
                    sent.append(submit(client.id, client.generation, here, requests, toolsets))
                    toolsets = {}
                taken = [await ask(ref, WHAT) for ref in sent]
                if not all(taken):  # it is another one: these have not begun
                    if losses == self._losses:  # as the poll will hear; else they were told lost
                        self._buffer, refused = [*batch, *self._buffer], True
                    return
                self._knows_tools = here
                batch = []
        except (ClusterError, StaleEpoch) as error:  # the poll meets the same and says what is lost
            _log.debug("submit: %s", error)
            if losses == self._losses:  # else they were told lost already
                self._unsure = batch
        finally:
            self._sending = None
            if not refused:
                self._begin_to_send()

    def _lose(self, error: Exception) -> None:
        """Open calls are lost with their dispatcher, but for new ones that it was never sent."""
        self._unsure = []
        self._losses += 1
        self._buffer = [one for one in self._buffer if one.key not in self._adopted]
        self._adopted.clear()
        unsent = {request.key for request in self._buffer}
        gone = not isinstance(error, StaleEpoch)
        lost = [
            CallLost(key, str(error), started=True, with_executor=gone)
            for key in sorted(self._open - unsent)
        ]
        self._open &= unsent
        self._waiting &= unsent
        if lost:
            self._tell(lost)
        self._begin_to_send()

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(_quietly(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except ClusterError as error:
        _log.debug("release: %s", error)
