"""What a host is made of, and what a handle needs of a host, wherever it lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tulip_actors.core.defaults import NoFaults, RandomIds, SystemClock
from tulip_actors.core.ports import (
    BusLog,
    ChatModel,
    Clock,
    FaultPoints,
    Ids,
    Runnable,
    RunStore,
    ToolExecutor,
)
from tulip_actors.core.runs import Record, RunRequest
from tulip_actors.errors import ConfigError
from tulip_actors.host.feed import Feed

LEASE_S = 60.0
"""How long a thread stays a run's without a sign of life; renewed at a third of it."""


@dataclass(frozen=True, slots=True)
class HostPorts:
    """The world as a host sees it. `resolve_model` makes a ChatModel of a model string."""

    store: RunStore
    bus: BusLog
    executor: ToolExecutor
    resolve_model: Callable[[str], ChatModel]
    node_id: str
    lease_s: float = LEASE_S
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=RandomIds)
    faults: FaultPoints = field(default_factory=NoFaults)


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """A host at a glance. `queued` counts tool calls that wait for a worker."""

    name: str
    id: str
    pid: int
    node_id: str
    restarts: int
    active_runs: int
    queued: int


@dataclass(frozen=True, slots=True)
class ActorOptions:
    """What the actor of an agent or team asks of the cluster, in Ray's terms.

    `memory` is in bytes and for placement only. `max_restarts=-1` restarts for ever. A `detached`
    actor outlives the program that made it.
    """

    num_cpus: float = 0
    num_gpus: float = 0
    memory: int | None = None
    resources: dict[str, float] = field(default_factory=dict)
    max_restarts: int = -1
    detached: bool = False

    def __post_init__(self) -> None:
        """Raise `ConfigError` here, and not when the cluster is asked."""
        for name, amount in (
            ("num_cpus", self.num_cpus),
            ("num_gpus", self.num_gpus),
            *(self.resources.items() if isinstance(self.resources, dict) else ()),
        ):
            if isinstance(amount, bool) or not isinstance(amount, int | float) or not amount >= 0:
                raise ConfigError(f"actor: {name} is a number from 0, not {amount!r:.80}")
        if not isinstance(self.resources, dict):
            raise ConfigError(f"actor: resources is a dict of numbers, not {self.resources!r:.80}")
        memory = self.memory
        if memory is not None and (not isinstance(memory, int) or memory < 0):
            raise ConfigError(f"actor: memory is a whole number of bytes, not {memory!r:.80}")
        if not isinstance(self.detached, bool):
            raise ConfigError(f"actor: detached is True or False, not {self.detached!r:.80}")
        if not isinstance(self.max_restarts, int) or self.max_restarts < -1:
            raise ConfigError(
                f"actor: max_restarts is a whole number from -1 (for ever), "
                f"not {self.max_restarts!r:.80}"
            )


@dataclass(frozen=True, slots=True)
class HostSpec:
    """Which host: `id` names it on the whole cluster, `make` builds what it conducts there."""

    id: str
    name: str
    runnable: Runnable[object]
    options: ActorOptions
    namespace: str


class HostClient(Protocol):
    """A host as its handles see it. Every method may be called from any thread and loop."""

    def begin(self, request: RunRequest, *, events: bool) -> Feed:
        """Start a run and follow it; returns at once. A failed start closes the feed with it.

        With `events=False` the feed only tells the outcome.
        """
        ...

    def follow(self, run_id: str) -> Feed:
        """Follow a run that is there already, from its start."""
        ...

    def cancel(self, run_ids: Sequence[str], *, at_once: bool) -> None:
        """Set the flag read at turn boundaries, or stop at once; returns without waiting."""
        ...

    async def acancel(self, run_ids: Sequence[str], *, at_once: bool) -> None:
        """The same, confirmed by the host."""
        ...

    def warm(self) -> None:
        """Begin to make the host, if it is not there.

        Returns without waiting for it. Code that is not async is connected to the cluster here,
        and meets the errors of that here.
        """
        ...

    async def observe(self) -> AgentStatus:
        """The host at a glance."""
        ...

    async def processes(self) -> Mapping[str, Sequence[int]]:
        """The ids of the processes that serve the host, each on its node: "agent", "worker",
        "dispatcher", "services"."""
        ...

    async def records(self, thread_id: str) -> Sequence[Record]:
        """What the host's store holds of a thread."""
        ...

    async def model_trace(self) -> Sequence[object]:
        """What the host's model double was asked, if it records that."""
        ...

    async def stop(self, drain_s: float) -> None:
        """Let running runs end for up to `drain_s`, cancel the rest, end the host."""
        ...


class Runtime(Protocol):
    """Makes hosts somewhere, and knows the bus they share."""

    def client(self, spec: HostSpec) -> HostClient:
        """The host of a spec, made when it is first needed; the same one for the same id."""
        ...

    def client_of_run(self, run_id: str, otherwise: HostSpec | None) -> HostClient:
        """Whichever host has the run: found when the client is first used, and `otherwise` if none
        does. Without that it raises `RunNotFound`, here or then."""
        ...

    def bus(self, address: str | None) -> BusLog:
        """The bus of the runtime."""
        ...

    def store(self, id: str) -> RunStore:
        """The runtime's memory, for the threads of one `MemoryCheckpointer`."""
        ...
