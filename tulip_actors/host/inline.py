"""The inline runtime: everything in the calling process, on the caller's own event loop.

One `RunHost` per agent and event loop. Without a running loop (`run_sync`, `start()` in a plain
script) runs live on the portal's loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from weakref import WeakSet

from tulip_actors.core.ports import BusLog, Runnable, RunStore
from tulip_actors.core.runs import Record, RunRequest
from tulip_actors.errors import RunNotFound
from tulip_actors.host.bus import MemoryBusLog
from tulip_actors.host.feed import Feed
from tulip_actors.host.inline_executor import InlineExecutor
from tulip_actors.host.portal import portal, running_loop
from tulip_actors.host.ports import AgentStatus, HostClient, HostPorts, HostSpec
from tulip_actors.host.run_host import RunHost
from tulip_actors.loop.agent_runnable import AgentRunnable
from tulip_actors.memory.checkpointed_store import store_of
from tulip_actors.memory.run_store import MemoryRunStore
from tulip_actors.models.registry import get_model
from tulip_actors.testing.doubles import RecordingModel
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.group import close_tools

NODE_ID = "inline"
RUNS_KEPT = 10_000
"""Runs of which an inline client remembers where they are; the oldest are forgotten."""


class InlineRuntime:
    """Makes hosts in this process. They share one bus and one store of records."""

    def __init__(self) -> None:
        self.records = MemoryRunStore()
        self._bus = MemoryBusLog()
        self._clients: WeakSet[InlineClient] = WeakSet()

    def client(self, spec: HostSpec) -> InlineClient:
        """The host of a spec."""
        client = InlineClient(spec, self)
        self._clients.add(client)
        return client

    def client_of_run(self, run_id: str, otherwise: HostSpec | None) -> HostClient:
        """See `Runtime`. Of the hosts that are still held by somebody."""
        for client in self._clients:
            if client.has(run_id):
                return client
        if otherwise is None:
            raise RunNotFound(
                f"no agent or team in this process has a run {run_id}; one whose checkpointer has "
                "its records can take it up: attach with that agent itself",
                run_id=run_id,
            )
        return self.client(otherwise)

    def bus(self, address: str | None) -> BusLog:
        """This process's bus; an address means nothing here."""
        return self._bus

    def store(self, id: str) -> RunStore:
        """A store in this process's memory."""
        return MemoryRunStore()

    def ports(self, runnable: Runnable[object]) -> HostPorts:
        """A fresh set of ports for a host."""
        return HostPorts(
            store=kept_in(runnable) or self.records,
            bus=self._bus,
            executor=InlineExecutor(
                lambda toolset: tools_of(runnable), NODE_ID, max_concurrency_of(runnable)
            ),
            resolve_model=get_model,
            node_id=NODE_ID,
        )


def tools_of(runnable: Runnable[object]) -> Mapping[str, Tool]:
    """The tools that a Runnable's calls may name; a team has none of its own."""
    return runnable.config.tools if isinstance(runnable, AgentRunnable) else {}


def max_concurrency_of(runnable: Runnable[object]) -> int | None:
    """The bound on an agent's tool calls in flight."""
    return runnable.config.max_concurrency if isinstance(runnable, AgentRunnable) else None


def kept_in(runnable: Runnable[object]) -> RunStore | None:
    """The store that an agent was given, None where the runtime's own is meant."""
    checkpointer = runnable.config.checkpointer if isinstance(runnable, AgentRunnable) else None
    return None if checkpointer is None else store_of(checkpointer)


class InlineClient:
    """A host in this process. See `HostClient`."""

    def __init__(self, spec: HostSpec, runtime: InlineRuntime) -> None:
        self._spec = spec
        self._runtime = runtime
        self._lock = threading.Lock()
        self._hosts: dict[asyncio.AbstractEventLoop, RunHost] = {}
        self._loop_of_run: dict[str, asyncio.AbstractEventLoop] = {}

    def begin(self, request: RunRequest, *, events: bool) -> Feed:
        """See `HostClient`."""
        self._forget_closed_loops()
        loop = running_loop()
        if loop is None:
            loop = portal().loop
            self._loop_of_run[request.run_id] = loop
            return portal().call_blocking(self._start(request))
        self._loop_of_run[request.run_id] = loop
        return self._host(loop).start(request)

    async def _start(self, request: RunRequest) -> Feed:
        return self._host(asyncio.get_running_loop()).start(request)

    def has(self, run_id: str) -> bool:
        """Whether the run is under way here, or has ended here not long ago."""
        host = self._hosts.get(self._loop_of_run[run_id]) if run_id in self._loop_of_run else None
        return host is not None and host.has(run_id)

    def follow(self, run_id: str) -> Feed:
        """See `HostClient`. A run of another process is taken up here from its records."""
        loop = self._loop_of_run.get(run_id) or running_loop()
        if loop is None:
            self._loop_of_run[run_id] = portal().loop
            return portal().call_blocking(self._follow(run_id))
        self._loop_of_run[run_id] = loop
        return self._host(loop).follow(run_id)

    async def _follow(self, run_id: str) -> Feed:
        return self._host(asyncio.get_running_loop()).follow(run_id)

    def cancel(self, run_ids: Sequence[str], *, at_once: bool) -> None:
        """See `HostClient`."""
        for run_id in run_ids:
            loop = self._loop_of_run.get(run_id)
            if loop is not None and not loop.is_closed():
                host = self._host(loop)
                loop.call_soon_threadsafe(partial(host.cancel, [run_id], at_once=at_once))

    async def acancel(self, run_ids: Sequence[str], *, at_once: bool) -> None:
        """See `HostClient`."""
        self.cancel(run_ids, at_once=at_once)

    def warm(self) -> None:
        """See `HostClient`. There is nothing to prepare."""

    async def observe(self) -> AgentStatus:
        """See `HostClient`."""
        statuses = [host.observe() for host in self._hosts.values()]
        if not statuses:
            statuses = [self._host(asyncio.get_running_loop()).observe()]
        first = statuses[0]
        return AgentStatus(
            name=first.name,
            id=first.id,
            pid=first.pid,
            node_id=first.node_id,
            restarts=0,
            active_runs=sum(status.active_runs for status in statuses),
            queued=sum(status.queued for status in statuses),
        )

    async def processes(self) -> Mapping[str, Sequence[int]]:
        """See `HostClient`. All is in this one."""
        return {"agent": [os.getpid()]}

    async def records(self, thread_id: str) -> Sequence[Record]:
        """See `HostClient`."""
        return await self._host(asyncio.get_running_loop()).records(thread_id)

    async def model_trace(self) -> Sequence[object]:
        """See `HostClient`."""
        runnable = self._spec.runnable
        return recorded_requests(runnable)

    async def stop(self, drain_s: float) -> None:
        """See `HostClient`."""
        with self._lock:
            hosts = list(self._hosts.items())
            self._hosts.clear()
        here = asyncio.get_running_loop()
        for loop, host in hosts:
            if loop is here:
                await stop_host(host, drain_s)
            elif loop.is_running():
                await asyncio.wrap_future(
                    asyncio.run_coroutine_threadsafe(stop_host(host, drain_s), loop)
                )

    def _forget_closed_loops(self) -> None:
        with self._lock:
            while len(self._loop_of_run) > RUNS_KEPT:
                del self._loop_of_run[next(iter(self._loop_of_run))]
            for loop in [loop for loop in self._hosts if loop.is_closed()]:
                del self._hosts[loop]
                self._loop_of_run = {r: on for r, on in self._loop_of_run.items() if on is not loop}

    def _host(self, loop: asyncio.AbstractEventLoop) -> RunHost:
        with self._lock:
            if loop not in self._hosts:
                ports = self._runtime.ports(self._spec.runnable)
                executor = ports.executor
                assert isinstance(executor, InlineExecutor)
                self._hosts[loop] = RunHost(
                    self._spec.id,
                    self._spec.runnable,
                    ports,
                    queued=lambda: executor.queued,
                )
            return self._hosts[loop]


async def stop_host(host: RunHost, drain_s: float) -> None:
    """Stop a host, on its loop, and close what its agent's inline tools keep open there."""
    await host.stop(drain_s)
    await close_tools(tools_of(host.runnable).values())


def recorded_requests(runnable: Runnable[object]) -> Sequence[object]:
    """What an agent's model double was asked, nothing for other models."""
    model = runnable.model if isinstance(runnable, AgentRunnable) else None
    return list(model.requests) if isinstance(model, RecordingModel) else []
