"""Hosts the runs of one agent or team in a process of its own.

A plain class; `spawn` makes the actor of it. Runs start by short calls, in bundles; everything a
client follows here comes to it through one long poll (`poll`), whatever the number of runs: nothing
has to be cancelled when a client goes, and batches grow with load. Cancel, observe and runs have a
lane (and a thread) of their own, so they answer while user code blocks the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, TypeAlias, cast

from tulip_actors.core.calls import CallKind
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.ports import Runnable, RunStore
from tulip_actors.core.run_info import RunInfo
from tulip_actors.core.runs import Record, RunRequest
from tulip_actors.errors import ClusterError
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
from tulip_actors.memory.checkpointer import FiledCheckpointer
from tulip_actors.memory.run_store import run_of
from tulip_actors.models.registry import get_model
from tulip_actors.runtime.bundles import Call, Outcome, outcomes_of
from tulip_actors.runtime.dispatch import DispatcherExecutor
from tulip_actors.runtime.dispatch_link import Client
from tulip_actors.runtime.failures import ask
from tulip_actors.runtime.helpers import helpers
from tulip_actors.runtime.pickling import pack, pack_outcome, unpack
from tulip_actors.runtime.process_memory import settle_memory
from tulip_actors.runtime.service_clients import ClusterBusLog, ClusterRunStore
from tulip_actors.runtime.sigterm import Sigterm

POLL_S = 10.0
SERVICES_ACTOR = "the services actor"
SERVICES_RETRY_S = 0.2
SIGTERM_DRAIN_S = 3.0
"""How long runs may go on after a SIGTERM; a node that shuts down kills what is left soon."""
PAGE_EVENTS = 512
"""Events of one run in one answer; the rest follows with the next."""

News: TypeAlias = tuple[int, Sequence[Emitted], bytes | None]
"""What a client learns of a run: the watch's id, new events, and the outcome once it has ended."""


@dataclass(slots=True)
class _Watch:
    """How far a client has read a run. Without `events` it only waits for the outcome.

    `seen` are the numbers of the events it had, by run, before the host was started again; of
    the run `segment_of` it wants the present segment only.
    """

    feed: Feed
    events: bool
    seen: Mapping[str, int]
    segment_of: str | None = None
    position: int = 0

    def news(self) -> Sequence[Emitted]:
        """A page of what the client has not had."""
        entries = self.feed.peek(self.position)[:PAGE_EVENTS]
        self.position += len(entries)
        if not self.seen and self.segment_of is None:
            return entries
        seen, first, of = self.seen, self.feed.segment_start, self.segment_of
        return [
            one
            for one in entries
            if one.seq > seen.get(one.run_id, -1) and not (one.run_id == of and one.seq < first)
        ]


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

    def start(
        self,
        request: RunRequest,
        events: bool,
        seen: Mapping[str, int],
        client_id: str,
        watch_id: int,
    ) -> None:
        """Start a run and let the client follow it. Raises what keeps it from starting."""
        segment_of = None if request.answer is None else request.run_id
        watch = _Watch(self.host.start(request), events, seen, segment_of)
        self.watch(client_id, watch_id, watch)

    def follow(self, run_id: str, seen: Mapping[str, int], client_id: str, watch_id: int) -> None:
        """Let the client follow a run from its start."""
        self.watch(client_id, watch_id, _Watch(self.host.follow(run_id), True, seen))


class AgentActor:
    """A `RunHost` with an address."""

    _sigterm: Sigterm

    def __new__(cls, *_: object) -> Self:
        """The one place that Ray calls in the process's main thread."""
        made = object.__new__(cls)
        made._sigterm = Sigterm()
        return made

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
        self._store_handle: Any = None
        self._starting: asyncio.Task[RunHost] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        from tulip_actors.runtime.spawn import wake_up_if_restarted

        wake_up_if_restarted()  # nobody may ask, but there may be runs to go on with

    # runs

    async def bundle(self, calls: Sequence[Call]) -> Sequence[Outcome]:
        """`Openings` of one client, in order. Raises what keeps the host from being made.

        Once the process is about to end they wait, and are made again where it comes back.
        """
        if self._ending is not None:
            await asyncio.Event().wait()
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
        if self._watching is not None:
            self._watching.cancel()
        await ask(self._services().leave.remote(self._id), SERVICES_ACTOR)

    async def drain(self, drain_s: float) -> Sequence[str]:
        """Let runs end for so long, and leave the others for whoever takes them up: their ids.

        The actor is then ended by who asked.
        """
        left: Sequence[str] = ()
        if self._host is not None:
            left = await self._host.drain(drain_s, comes_back=False)
        if self._watching is not None:
            self._watching.cancel()
        await ask(self._services().leave.remote(self._id), SERVICES_ACTOR)
        return left

    async def records(self, thread_id: str) -> Sequence[Record]:
        """See `HostClient`."""
        return await (await self._ready()).records(thread_id)

    async def processes(self) -> Mapping[str, Sequence[int]]:
        """See `HostClient`. Those that are away at the moment are left out."""
        return {"agent": [os.getpid()], **await helpers(self._services(), self._namespace)}

    async def model_trace(self) -> Sequence[object]:
        """See `HostClient`."""
        return recorded_requests((await self._ready()).runnable)

    async def wake_up(self) -> None:
        """Be ready: what an actor that was started again tells itself."""
        await self._ready()

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

    async def runs(self) -> Sequence[RunInfo]:
        """The runs here, and those that ended here not long ago."""
        return () if self._host is None else self._host.runs()

    # inside

    def _end_soon(self) -> None:
        """SIGTERM: the node shuts down, or somebody wants the process gone."""
        self._ending = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        """Let runs end for a moment and leave the others to where Ray starts the actor again."""
        try:
            if self._host is not None:
                await self._host.drain(SIGTERM_DRAIN_S, comes_back=True)
        finally:
            os._exit(128 + signal.SIGTERM)  # an orderly exit Ray takes for the actor's own wish

    async def _ready(self) -> RunHost:
        if self._host is not None:
            return self._host
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._make_host())
        return await asyncio.shield(self._starting)

    async def _make_host(self) -> RunHost:
        """Unpack what is to be conducted, and announce it. Raises `ConfigError`."""
        self._loop = asyncio.get_running_loop()
        self._sigterm.call(self._loop, self._end_soon)
        try:
            runnable = cast(Runnable[object], unpack(self._packed))
            executor = self._executor(runnable)
            store = self._store(runnable)
            restarts, held = await asyncio.gather(self._announced(), store.held_by(self._id))
            ports = HostPorts(
                store=store,
                bus=ClusterBusLog(self._services),
                executor=executor,
                resolve_model=get_model,
                node_id=_node_id(),
            )
            host = RunHost(
                self._id,
                runnable,
                ports,
                restarts=restarts,
                queued=lambda: executor.queued,
                placed=None if isinstance(store, ClusterRunStore) else self._place,
            )
            if restarts:
                host.tell_restart(restarts, [run_of(owner) for _, owner in held])
            host.take_up(held)
            self._host = host
            self._watching = asyncio.ensure_future(self._watch_services(host))
        finally:
            self._starting = None
        return self._host

    def _place(self, run_id: str) -> None:
        """Let the run be found on the cluster, whose own store does not know of it."""
        self._services().place.remote([run_id], self._id)

    async def _announced(self) -> int:
        """Be listed on the cluster; returns how often this host was started before."""
        announced = self._services().announce.remote(
            self._id, self._name, self._namespace, _node_id(), os.getpid()
        )
        return cast(int, await ask(announced, SERVICES_ACTOR))

    async def _watch_services(self, host: RunHost) -> None:
        """When the services actor has lost its memory, give it back what is known here."""
        while True:
            try:
                await ask(self._services().until_gone.remote(), SERVICES_ACTOR)
            except ClusterError:
                while True:
                    try:
                        await self._announced()
                        break
                    except ClusterError:
                        await asyncio.sleep(SERVICES_RETRY_S)
                await host.memory_lost()

    def _executor(self, runnable: Runnable[object]) -> QueueingExecutor:
        """Where the calls run: in this process those of inline tools, all others in tasks."""
        tools, max_concurrency = dict(tools_of(runnable)), max_concurrency_of(runnable)
        kinds = {tool.policy.kind for tool in tools.values()}
        inline = InlineExecutor(lambda toolset: tools, _node_id(), max_concurrency)
        if kinds == {CallKind.INLINE}:
            return inline
        toolsets = {self._id: pack(tools, "the tools")}
        client = Client(self._id, time.time_ns(), toolsets, max_concurrency)
        tasks = DispatcherExecutor(client, self._dispatcher, self._other_dispatcher)
        if tools:
            tasks.warm()
        return SplitExecutor(inline, tasks) if CallKind.INLINE in kinds else tasks

    def _store(self, runnable: Runnable[object]) -> RunStore:
        """Where the agent's threads are: what it was given, or the cluster's memory."""
        checkpointer = runnable.config.checkpointer if isinstance(runnable, AgentRunnable) else None
        if isinstance(checkpointer, MemoryCheckpointer):
            return ClusterRunStore(self._services, checkpointer.id)
        if isinstance(checkpointer, FiledCheckpointer) and checkpointer.home != _node_id():
            return ClusterRunStore(partial(self._store_actor, checkpointer))
        return kept_in(runnable) or ClusterRunStore(self._services)

    def _store_actor(self, checkpointer: FiledCheckpointer) -> Any:
        from tulip_actors.runtime.spawn import store_actor

        if self._store_handle is None:
            packed = pack(checkpointer, "the checkpointer")
            where = str(checkpointer.location)
            home = checkpointer.home
            assert home is not None, "it came from another process"
            self._store_handle = store_actor(packed, where, self._namespace, home)
        return self._store_handle

    def _services(self) -> Any:
        if self._services_handle is None:
            from tulip_actors.runtime.spawn import services_actor

            self._services_handle = services_actor(self._namespace)
        return self._services_handle

    def _dispatcher(self) -> Any:
        from tulip_actors.runtime.spawn import dispatcher_actor, dispatcher_name

        return dispatcher_actor(dispatcher_name(), self._namespace, _node_id())

    def _other_dispatcher(self, name: str) -> Any:
        from tulip_actors.runtime.spawn import existing_actor

        return existing_actor(name, self._namespace)

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
            entries = watch.news()
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
