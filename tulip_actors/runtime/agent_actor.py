"""Hosts the runs of one agent or team in a process of its own.

A plain class; `spawn` makes the actor of it. Runs start by short calls, in bundles; everything a
client follows here comes to it through one long poll (`poll`), whatever the number of runs: nothing
has to be cancelled when a client goes, and batches grow with load. Cancel and observe have a lane
(and a thread) of their own, so they answer while user code blocks the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from tulip_actors.core.calls import CallKind
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.ports import Runnable, RunStore
from tulip_actors.core.runs import Record, RunRequest
from tulip_actors.host.feed import Feed
from tulip_actors.host.inline import (
    kept_in,
    max_concurrency_of,
    recorded_requests,
    stop_host,
    tools_of,
)
from tulip_actors.host.inline_executor import InlineExecutor
from tulip_actors.host.ports import AgentStatus, HostPorts
from tulip_actors.host.run_host import RunHost
from tulip_actors.host.split_executor import QueueingExecutor, SplitExecutor
from tulip_actors.loop.agent_runnable import AgentRunnable
from tulip_actors.memory.backends.memory import MemoryCheckpointer
from tulip_actors.models.registry import get_model
from tulip_actors.runtime.bundles import Call, Outcome, outcomes_of
from tulip_actors.runtime.dispatch import DispatcherExecutor
from tulip_actors.runtime.failures import ask
from tulip_actors.runtime.pickling import pack, pack_outcome, unpack
from tulip_actors.runtime.process_memory import settle_memory
from tulip_actors.runtime.service_clients import ClusterBusLog, ClusterRunStore

POLL_S = 10.0
PAGE_EVENTS = 512
"""Events of one run in one answer; the rest follows with the next."""

News: TypeAlias = tuple[int, Sequence[Emitted], bytes | None]
"""What a client learns of a run: the watch's id, new events, and the outcome once it has ended."""


@dataclass(slots=True)
class _Watch:
    """How far a client has read a run. Without `events` it only waits for the outcome."""

    feed: Feed
    events: bool
    position: int = 0


@dataclass(slots=True)
class _Client:
    """A process that follows runs here."""

    watches: dict[int, _Watch] = field(default_factory=dict)
    news: set[int] = field(default_factory=set)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def notice(self, watch_id: int) -> None:
        self.news.add(watch_id)
        self.wake.set()


OPENINGS = frozenset({"start", "follow"})
"""What may come in a bundle."""


@dataclass(frozen=True, slots=True)
class Openings:
    """How a client begins to follow a run."""

    host: RunHost
    watch: Callable[[str, int, _Watch], None]

    def start(self, request: RunRequest, events: bool, client_id: str, watch_id: int) -> None:
        """Start a run and let the client follow it. Raises what keeps it from starting."""
        self.watch(client_id, watch_id, _Watch(self.host.start(request), events))

    def follow(self, run_id: str, client_id: str, watch_id: int) -> None:
        """Let the client follow a run from its start. Raises `RunNotFound`."""
        self.watch(client_id, watch_id, _Watch(self.host.follow(run_id), events=True))


class AgentActor:
    """A `RunHost` with an address."""

    def __init__(self, packed: bytes, id: str, name: str, namespace: str) -> None:
        settle_memory()
        self._packed = packed
        self._id = id
        self._name = name
        self._namespace = namespace
        self._host: RunHost | None = None
        self._clients: dict[str, _Client] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._services_handle: Any = None
        self._starting: asyncio.Task[RunHost] | None = None

    # runs

    async def bundle(self, calls: Sequence[Call]) -> Sequence[Outcome]:
        """`Openings` of one client, in order. Raises what keeps the host from being made."""
        openings = Openings(await self._ready(), self._watch)
        return outcomes_of(openings, OPENINGS, calls)

    async def poll(self, client_id: str) -> Sequence[News]:
        """What is new in the runs a client follows; waits for something."""
        client = self._clients.setdefault(client_id, _Client())
        if not client.news:
            client.wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(client.wake.wait(), POLL_S)
        news, client.news = client.news, set()
        return [self._news(client, one) for one in sorted(news) if one in client.watches]

    async def stop(self, drain_s: float) -> None:
        """End all runs; the actor is then ended by who asked."""
        await stop_host(await self._ready(), drain_s)
        await ask(self._services().leave.remote(self._id), "the services actor")

    async def records(self, thread_id: str) -> Sequence[Record]:
        """See `HostClient`."""
        return await (await self._ready()).records(thread_id)

    async def model_trace(self) -> Sequence[object]:
        """See `HostClient`."""
        return recorded_requests((await self._ready()).runnable)

    # the control lane: another thread, so it only looks and signals

    async def cancel(self, run_ids: Sequence[str], at_once: bool) -> None:
        """See `HostClient`."""
        host, loop = self._host, self._loop
        if host is None or loop is None:
            return
        if at_once:
            loop.call_soon_threadsafe(lambda: host.cancel(run_ids, at_once=True))
        else:
            host.cancel(run_ids, at_once=False)

    async def observe(self) -> AgentStatus:
        """See `HostClient`."""
        if self._host is None:
            return AgentStatus(self._name, self._id, os.getpid(), _node_id(), 0, 0, 0)
        return self._host.observe()

    # inside

    async def _ready(self) -> RunHost:
        if self._host is not None:
            return self._host
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._make_host())
        return await asyncio.shield(self._starting)

    async def _make_host(self) -> RunHost:
        """Unpack what is to be conducted, and announce it. Raises `ConfigError`."""
        self._loop = asyncio.get_running_loop()
        try:
            runnable = cast(Runnable[object], unpack(self._packed))
            executor = self._executor(runnable)
            announced = self._services().announce.remote(
                self._id, self._name, self._namespace, _node_id(), os.getpid()
            )
            restarts = cast(int, await ask(announced, "the services actor"))
            ports = HostPorts(
                store=self._store(runnable),
                bus=ClusterBusLog(self._services),
                executor=executor,
                resolve_model=get_model,
                node_id=_node_id(),
            )
            self._host = RunHost(
                self._id, runnable, ports, restarts=restarts, queued=lambda: executor.queued
            )
        finally:
            self._starting = None
        return self._host

    def _executor(self, runnable: Runnable[object]) -> QueueingExecutor:
        """Where the calls run: in this process those of inline tools, all others in tasks."""
        tools, max_concurrency = dict(tools_of(runnable)), max_concurrency_of(runnable)
        kinds = {tool.policy.kind for tool in tools.values()}
        inline = InlineExecutor(lambda toolset: tools, _node_id(), max_concurrency)
        if kinds == {CallKind.INLINE}:
            return inline
        tasks = DispatcherExecutor(
            self._id, self._dispatcher, {self._id: pack(tools, "the tools")}, max_concurrency
        )
        if tools:
            tasks.warm()
        return SplitExecutor(inline, tasks) if CallKind.INLINE in kinds else tasks

    def _store(self, runnable: Runnable[object]) -> RunStore:
        """Where the agent's threads are: what it was given, or the cluster's memory."""
        checkpointer = runnable.config.checkpointer if isinstance(runnable, AgentRunnable) else None
        if isinstance(checkpointer, MemoryCheckpointer):
            return ClusterRunStore(self._services, checkpointer.id)
        return kept_in(runnable) or ClusterRunStore(self._services)

    def _services(self) -> Any:
        if self._services_handle is None:
            from tulip_actors.runtime.spawn import services_actor

            self._services_handle = services_actor(self._namespace)
        return self._services_handle

    def _dispatcher(self) -> Any:
        from tulip_actors.runtime.spawn import dispatcher_actor, this_job_id

        node_id = _node_id()
        name = f"tulip.dispatcher.{this_job_id()}.{node_id}"
        return dispatcher_actor(name, self._namespace, node_id)

    def _watch(self, client_id: str, watch_id: int, watch: _Watch) -> None:
        client = self._clients.setdefault(client_id, _Client())
        client.watches[watch_id] = watch

        def changed() -> None:
            if watch_id in client.watches and (watch.events or watch.feed.closed):
                client.notice(watch_id)

        watch.feed.on_change(changed)
        changed()

    def _news(self, client: _Client, watch_id: int) -> News:
        watch = client.watches[watch_id]
        entries: Sequence[Emitted] = ()
        if watch.events:
            entries = watch.feed.peek(watch.position)[:PAGE_EVENTS]
            watch.position += len(entries)
            if watch.position < len(watch.feed):
                client.notice(watch_id)
                return watch_id, entries, None
        if not watch.feed.closed:
            return watch_id, entries, None
        del client.watches[watch_id]
        return watch_id, entries, pack_outcome(*watch.feed.settled())


def _node_id() -> str:
    from tulip_actors.runtime.spawn import this_node_id

    return this_node_id()
