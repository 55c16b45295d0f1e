"""Owns the tool calls of a node's agents: whoever made a call may die, its tools go on and are
adopted.

A plain class; `spawn` makes the actor of it. It runs no user code, so nothing of a user's can stop
it. What may live here: the conversations, with agents (`submit`, `updates`) and with workers
(`work`, `told`, `children`). The calls' lives are in a `CallBook`, the workers in `Lanes`. A while
after its last client it ends itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import ray

from tulip_actors.core.calls import CallKey, CallStatus, ToolUpdate
from tulip_actors.core.defaults import RandomIds
from tulip_actors.errors import ClusterError, StaleEpoch
from tulip_actors.host.call import child_requests
from tulip_actors.host.call_book import CallBook
from tulip_actors.runtime.cluster_size import ClusterSize
from tulip_actors.runtime.lanes import Lanes
from tulip_actors.runtime.process_memory import settle_memory
from tulip_actors.runtime.sigterm import end_at_sigterm
from tulip_actors.runtime.tool_work import (
    CancelSeen,
    ChildCalls,
    Ended,
    Hello,
    pack_updates,
    pack_work,
    packed,
    unpack_news,
    unpack_requests,
    unpacked,
)

POLL_S = 10.0
MANY_CALLS = 64
LINGER_BATCH_S = 0.003
"""With many calls an answer waits this long for more of them: what costs is the number of answers.
A few calls are told at once."""
LINGER_S = 15.0
CLIENT_LOST_AFTER_S = 45.0
"""A client that has not polled for this long is gone for good: a restart takes a second or two."""
LOOK_EVERY_S = 5.0


def _replaced(client_id: str) -> StaleEpoch:
    return StaleEpoch(f"another process has taken the place of this one as {client_id}")


@dataclass(slots=True)
class _Client:
    """An agent's actor that makes calls here."""

    generation: int = 0
    updates: list[ToolUpdate] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    seen_at_s: float = field(default_factory=time.monotonic)

    def tell(self, update: ToolUpdate) -> None:
        self.updates.append(update)
        if not self.wake.is_set():
            self.wake.set()


class Dispatcher:
    """The calls of one node's agents. All methods are coroutines on one event loop."""

    def __new__(cls, *_: object) -> Self:
        """The one place that Ray calls in the process's main thread."""
        end_at_sigterm()
        return object.__new__(cls)

    def __init__(self, name: str) -> None:
        from tulip_actors.runtime.spawn import tool_worker

        settle_memory()
        self.incarnation = f"{RandomIds().new('dispatcher')}@{name}"
        self._clients: dict[str, _Client] = {}
        self._size = ClusterSize()
        self._self: Any = None
        self._lanes = Lanes(
            lambda spec, demand, node_id: tool_worker(spec, demand, node_id, self._self),
            self._size,
        )
        self._book = CallBook(self._lanes, self._tell, keeps_told=True)
        self._lanes.book = self._book
        self._left_at_s = time.monotonic()
        self._sweeper: asyncio.Task[None] | None = None

    # agents

    async def hello(self, client_id: str, generation: int, max_concurrency: int | None) -> str:
        """Become a client; returns the incarnation, whose memory begins now or earlier, and its
        name after an @. From now on older generations of the client are refused."""
        if self._sweeper is None:
            self._self = ray.get_runtime_context().current_actor
            self._sweeper = asyncio.ensure_future(self._sweep())
            await self._size.look()
        self._client(client_id, generation).seen_at_s = time.monotonic()
        self._book.limits.set(client_id, max_concurrency)
        return self.incarnation

    async def leave(self, client_id: str, generation: int) -> None:
        """A client has ended: its calls are stopped. With the last one this actor soon ends too."""
        if client_id in self._clients:
            self._client(client_id, generation)
        self._clients.pop(client_id, None)
        self._left_at_s = time.monotonic()
        await self.cancel(self._book.of_client(client_id))
        self._book.forget_client(client_id)

    async def submit(
        self,
        client_id: str,
        generation: int,
        incarnation: str,
        requests: bytes,
        toolsets: Mapping[str, bytes],
    ) -> bool:
        """Take calls; a known key is adopted: its outcome is told, or will be, to this client.

        Takes none, and returns False, when they are for another `incarnation`.
        """
        if incarnation != self.incarnation:
            return False
        self._client(client_id, generation)
        self._lanes.keep(toolsets)
        for request in unpack_requests(requests):
            self._book.submit(client_id, request, generation)
        self._lanes.fill()
        return True

    async def updates(self, client_id: str, generation: int, incarnation: str) -> bytes:
        """What happened to a client's calls since the last poll; waits for something.

        Raises `ClusterError` for who takes this for another `incarnation`.
        """
        if incarnation != self.incarnation:
            raise ClusterError(f"the dispatcher was started again since: it was {incarnation}")
        client = self._client(client_id, generation)
        client.seen_at_s = time.monotonic()
        if not client.updates:
            client.wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(client.wake.wait(), POLL_S)
            if self._book.count > MANY_CALLS:
                await asyncio.sleep(LINGER_BATCH_S)
        if generation != client.generation:
            raise _replaced(client_id)
        client.seen_at_s = time.monotonic()
        taken, client.updates = client.updates, []
        return pack_updates(taken)

    async def processes(self) -> Mapping[str, Sequence[int]]:
        """This process and those of its workers, on whichever node each is."""
        return {"dispatcher": [os.getpid()], "worker": self._lanes.pids}

    async def status(self, keys: Sequence[CallKey]) -> Mapping[CallKey, CallStatus]:
        """See `ToolExecutor`."""
        return {key: self._book.status(key) for key in keys}

    async def cancel(self, keys: Sequence[CallKey]) -> None:
        """Stop calls and their children; returns when they have ended, after their grace at the
        latest."""
        await self._book.cancel(keys)

    async def release(self, keys: bytes) -> None:
        """The outcomes are recorded and need not be kept."""
        self._book.release(unpacked(keys))

    # workers

    async def work(self, worker_id: str, hello: Hello | None) -> bytes:
        """What a worker is to do next; waits for something."""
        return pack_work(await self._lanes.work(worker_id, hello))

    async def told(self, worker_id: str, news: bytes) -> None:
        """What happened in a worker."""
        self._hear(worker_id, news)

    async def exceeded(self, worker_id: str, grown_bytes: int) -> None:
        """A worker has taken more memory than its call may, and ends."""
        self._lanes.exceeded(worker_id, grown_bytes)

    async def children(self, worker_id: str, news: bytes, asked: bytes) -> bytes:
        """Make the calls of a running body, and tell it of those that have ended since the last
        time; waits for one unless none is left. Its news come first."""
        self._hear(worker_id, news)
        calls: ChildCalls = unpacked(asked)
        parent = self._book.get(calls.parent)
        if parent is None or parent.ended is not None:
            return packed([])
        if calls.packed is not None:
            self._lanes.keep({calls.toolset: calls.packed})
        requests = child_requests(
            parent.request, calls.tool_name, calls.policy, calls.toolset, calls.calls
        )
        self._book.submit_children(parent, calls.ticket, requests)
        self._lanes.fill()
        return packed(await self._book.children(parent, calls.ticket))

    async def abandon(self, parent: CallKey, ticket: str) -> None:
        """A body no longer waits for the children it asked for."""
        call = self._book.get(parent)
        if call is not None:
            self._book.abandon(call, ticket)

    # inside

    def _client(self, client_id: str, generation: int) -> _Client:
        """A client. Raises `StaleEpoch` for a process that another one has replaced."""
        client = self._clients.setdefault(client_id, _Client(generation))
        if generation < client.generation:
            raise _replaced(client_id)
        if generation > client.generation:
            client.generation = generation
            client.updates.clear()  # of what it adopts the new one is told all
            client.wake.set()  # whoever asks in the name of the old one hears that it is over
        return client

    def _tell(self, client_id: str, update: ToolUpdate) -> None:
        if client_id in self._clients:
            self._clients[client_id].tell(update)

    def _hear(self, worker_id: str, message: bytes) -> None:
        worker = self._lanes.worker(worker_id)
        if worker is None or worker.hello is None:
            return
        for news in unpack_news(message, worker.hello):
            if isinstance(news, Ended):
                self._lanes.ended(worker, news.number, news.outcome)
            elif isinstance(news, CancelSeen):
                worker.seen.add(news.number)
            else:  # after a call's end what its body tells is dropped
                call = self._book.get(news.key)
                if call is not None:
                    self._book.report(call, news)

    async def _sweep(self) -> None:
        """Forget clients that are gone for good, and end a while after the last of them.

        Not at once: the program's next agent would find an actor that is about to die.
        """
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._size.look()
            self._lanes.end_idle()
            limit_s = time.monotonic() - CLIENT_LOST_AFTER_S
            for client_id in [c for c, known in self._clients.items() if known.seen_at_s < limit_s]:
                await self.leave(client_id, self._clients[client_id].generation)
            if not self._clients and time.monotonic() - self._left_at_s > LINGER_S:
                ray.kill(self._self, no_restart=True)
