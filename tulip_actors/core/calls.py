"""Tool calls as the runtime knows them: their keys, requests and what becomes of them.

What may live here: the data that the ToolExecutor port and the records speak in. They cross
process borders by the thousand; what every call makes is a NamedTuple, at a third of the time of a
frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

from tulip_actors.core.frozen import EMPTY, Json, JsonObject
from tulip_actors.core.interrupt import InterruptRequest


class CallKey(NamedTuple):
    """The runtime's name of one call: unique for ever, the same after a restart.

    A tuple, because every call is looked up by it a dozen times.

    Providers repeat their `tool_call_id`; this does not. `index` is empty for a call the model
    made, and leads to a child made by `ctx.map` or `ctx.call` (one number per level).
    """

    run_id: str
    turn: int
    slot: int
    index: tuple[int, ...] = ()  # type: ignore[assignment]  # hides tuple.index, not needed

    def child(self, position: int) -> CallKey:
        """The key of the call's `position`-th child."""
        return CallKey(self.run_id, self.turn, self.slot, (*self.index, position))

    @property
    def parent(self) -> CallKey | None:
        """The key of the call that made this one, None for the model's own."""
        if not self.index:
            return None
        return CallKey(self.run_id, self.turn, self.slot, self.index[:-1])

    def ancestors(self) -> Iterator[CallKey]:
        """The keys of the calls above this one, nearest first."""
        parent = self.parent
        while parent is not None:
            yield parent
            parent = parent.parent

    def __str__(self) -> str:
        path = ".".join(str(part) for part in (self.turn, self.slot, *self.index))
        return f"{self.run_id}:{path}"


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model is told of it. `parameters` is a JSON schema of type object; a `strict` one
    may be sent to a provider's strict mode."""

    name: str
    description: str
    parameters: JsonObject
    strict: bool = False


class CallScope(NamedTuple):
    """What a tool body may know of the run it serves."""

    run_id: str
    thread_id: str
    agent: str
    agent_id: str
    iteration: int = 0
    metadata: Mapping[str, Json] = EMPTY
    principal: str | None = None


@dataclass(frozen=True, slots=True)
class ToolDemand:
    """What a tool needs of the cluster, by Ray's names. Empty = what the executor gives."""

    num_cpus: float | None = None
    num_gpus: float | None = None
    memory_bytes: int | None = None
    resources: JsonObject = EMPTY
    label_selector: JsonObject = EMPTY
    runtime_env: JsonObject | None = None


NO_DEMAND = ToolDemand()


class CallKind(StrEnum):
    """How a tool's bodies share processes: declared, or following from the signature."""

    ASYNC = "async"
    """Coroutines: many in one event loop."""
    PLAIN = "plain"
    """Plain functions: many in the threads of a few processes."""
    CPU = "cpu"
    """Each in a process of its own that holds a CPU meanwhile."""
    INLINE = "inline"
    """In the agent's own process: for what is trivial, or belongs to that process."""


OnUnknown: TypeAlias = Literal["retry", "report", "ask"]
"""What to do about a call whose worker died after it had started: the effect may have happened."""

CANCEL_GRACE_S = 2.0
"""How long a cancelled body may take to clean up."""

MAX_RESULT_CHARS = 100_000
"""How much text of one call a model is shown, unless its tool says otherwise."""


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """How a tool's calls are made, and what may be done about one that goes wrong.

    `is_async`: the body is a coroutine, whatever its kind, and can be told to end. `idempotent`
    calls of a thread share one execution when their arguments are equal. `timeout_s`
    counts from the start of the body, `retries` are further tries after an error that
    the tool raised or after a lost worker, `max_concurrency` bounds the tool's calls in flight for
    one agent over all its runs. Of a text longer than `max_result_chars` a model sees head and
    tail; None = all of it.
    """

    kind: CallKind = CallKind.PLAIN
    demand: ToolDemand = NO_DEMAND
    is_async: bool = False
    idempotent: bool = False
    timeout_s: float | None = None
    cancel_grace_s: float = CANCEL_GRACE_S
    retries: int = 0
    on_unknown: OnUnknown = "report"
    max_concurrency: int | None = None
    max_result_chars: int | None = MAX_RESULT_CHARS

    @property
    def goes_alone(self) -> bool:
        """Whether each call needs a process that runs nothing else meanwhile."""
        return self.kind is CallKind.CPU or self.demand != NO_DEMAND


PLAIN_POLICY = ToolPolicy()


class ToolRequest(NamedTuple):
    """A call to be made: validated arguments, and where to find the tool.

    `toolset` is the id under which the executor holds the tools; `parent_call_id` is set on
    children. A known key with a higher `attempt` is run again. `answers` are what a human said to
    the questions the body asks, in their order.
    """

    key: CallKey
    tool_name: str
    tool_call_id: str
    arguments: Mapping[str, Json]
    scope: CallScope
    toolset: str
    policy: ToolPolicy = PLAIN_POLICY
    parent_call_id: str | None = None
    attempt: int = 1
    answers: tuple[Json, ...] = ()


class ToolOutcome(NamedTuple):
    """The one result of a call. `result` is the text for the model; exactly one side is set,
    but for a body that asks a human: it has an `interrupt` and no result yet.

    `value` is what the body returned, for a parent that asked (pickled bytes between processes).
    `error_type` is the class name of what the body raised.
    """

    result: str | None = None
    error: str | None = None
    error_type: str | None = None
    interrupt: InterruptRequest | None = None
    value: object = None
    duration_ms: float = 0.0
    queued_ms: float = 0.0
    worker_pid: int | None = None
    node_id: str | None = None


class Child(NamedTuple):
    """A call made by a tool that has ended: which of its parent's it was, and how it ended."""

    position: int
    outcome: ToolOutcome


@dataclass(frozen=True, slots=True)
class CallSubmitted:
    """A tool asked for a child call."""

    request: ToolRequest

    @property
    def key(self) -> CallKey:
        """The child's key."""
        return self.request.key


class CallStarted(NamedTuple):
    """The start mark: the body begins now, there. Without one it has not begun."""

    key: CallKey
    worker_pid: int
    node_id: str


@dataclass(frozen=True, slots=True)
class CallEmitted:
    """The body emitted an event, packed as the bus carries it."""

    key: CallKey
    packed: bytes


@dataclass(frozen=True, slots=True)
class CallSetMetadata:
    """The body set an entry of the run's metadata."""

    key: CallKey
    name: str
    value: Json


class CallFinished(NamedTuple):
    """The body ended, one way or the other."""

    key: CallKey
    outcome: ToolOutcome


@dataclass(frozen=True, slots=True)
class CallLost:
    """The worker died, or, `with_executor`, who owned the call: what its policy allows has not been
    tried then. `started` tells whether the effect may have happened."""

    key: CallKey
    reason: str
    started: bool
    with_executor: bool = False


CallReport: TypeAlias = CallEmitted | CallSetMetadata
"""What a running body tells of its run. Every one comes before the call's `CallFinished`."""

ToolUpdate: TypeAlias = CallSubmitted | CallStarted | CallReport | CallFinished | CallLost


class CallStatus(StrEnum):
    """What an executor knows of a key. `NEVER_SEEN` by the same incarnation = never started."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    NEVER_SEEN = "never_seen"
