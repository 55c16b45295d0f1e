"""The seams: what the loop and the host need of the world, as Protocols.

What may live here: Protocols and nothing else. Each has an in-memory implementation (named below)
on which the whole system runs inside one process, and one on Ray in `runtime`.

    ChatModel      testing.ScriptedModel; models.openai_chat over HTTP
    ToolExecutor   host.inline_executor; runtime.dispatch
    RunStore       memory.run_store; runtime.services keeps that one for the cluster
    EventSink      host.sink
    BusLog         host.bus; runtime.services keeps that one for the cluster
    Runnable       loop.agent_runnable, and every team
    RunContext     host.hosted_run
    CurrentRun     the same; tools.context inside a tool
    Clock, Ids, FaultPoints   core.defaults
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from random import Random
from types import TracebackType
from typing import Protocol, TypeVar, runtime_checkable

from tulip_actors.core.bus import BusPage, BusQuery, EventBatch
from tulip_actors.core.calls import (
    CallKey,
    CallStatus,
    ToolRequest,
    ToolSpec,
    ToolUpdate,
)
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.events import ModelChunkEvent, TerminateEvent, ToolStartEvent, TulipEvent
from tulip_actors.core.frozen import Json
from tulip_actors.core.grounding import GroundingResult
from tulip_actors.core.messages import Message
from tulip_actors.core.run_info import StoredRun
from tulip_actors.core.runs import ModelResponse, Record, RunRequest
from tulip_actors.core.state import ToolExecution

ResultT_co = TypeVar("ResultT_co", covariant=True)


@runtime_checkable
class ChatModel(Protocol):
    """Anything that completes a conversation."""

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> ModelResponse:
        """The model's answer. Raises a `ModelError` of the errors tree."""
        ...


@runtime_checkable
class StreamingChatModel(ChatModel, Protocol):
    """A ChatModel that can also hand out its answer in pieces."""

    def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> AsyncGenerator[ModelChunkEvent, None]:
        """The answer's chunks; the last has `done`. `models.accumulate` makes the response."""
        ...


@runtime_checkable
class Grounder(Protocol):
    """Judges the claims of an answer by what the run's tools returned."""

    async def evaluate(self, answer: str, evidence: Sequence[ToolExecution]) -> GroundingResult:
        """The claims and how far the evidence supports them."""
        ...


class ToolExecutor(Protocol):
    """Runs tool calls somewhere and tells what becomes of them.

    `submit` is local and buffered, and idempotent per key: submitting a known key again adopts
    the call. Results are kept until released.
    """

    async def incarnation(self) -> str:
        """Names this executor's memory: a new one has never seen any key."""
        ...

    def submit(self, requests: Sequence[ToolRequest]) -> None:
        """Take calls; returns at once."""
        ...

    def adopt(self, requests: Sequence[ToolRequest], incarnation: str) -> None:
        """Take over calls that were submitted to that incarnation; returns at once.

        Their outcomes are told, or will be; those it never saw are made. When it is gone, each call
        is told lost `with_executor`.
        """
        ...

    def updates(self) -> AsyncIterator[Sequence[ToolUpdate]]:
        """What happens to the calls of this host, in batches, until closed."""
        ...

    async def status(self, keys: Sequence[CallKey]) -> Mapping[CallKey, CallStatus]:
        """What is known of the keys."""
        ...

    async def cancel(self, keys: Sequence[CallKey]) -> None:
        """Stop calls and their children; returns when they will not run any more."""
        ...

    def release(self, keys: Sequence[CallKey]) -> None:
        """The results are recorded elsewhere and need not be kept."""
        ...

    async def close(self) -> None:
        """Cancel what runs and let go of everything."""
        ...


@runtime_checkable
class DirectExecutor(ToolExecutor, Protocol):
    """A ToolExecutor on the host's own event loop, which tells updates as they happen."""

    def tell_to(self, listener: Callable[[ToolUpdate], None]) -> None:
        """Call `listener` with every update, in order, instead of keeping it for `updates`."""
        ...


@runtime_checkable
class RunStore(Protocol):
    """Append-only records per thread, with one writer at a time.

    An epoch, taken at start, resume and every restart, fences the writes of older owners.
    """

    @property
    def keeps_events(self) -> bool:
        """Whether `append` keeps events, so that a stream goes on after a crash."""
        ...

    async def acquire(
        self, thread_id: str, owner: str, lease_s: float, *, host_id: str = "", above: int = 0
    ) -> int:
        """Become the thread's writer; returns the epoch. Raises `ThreadBusy`.

        `owner` is a run's id, or that, "/" and something more; the same owner takes over from
        itself. `host_id` names who hosts the run, for `held_by`. The epoch is greater than `above`:
        of an owner whose store has lost its memory.
        """
        ...

    async def renew(self, thread_id: str, epoch: int, lease_s: float) -> None:
        """Keep the lease. Raises `StaleEpoch`."""
        ...

    async def release(self, thread_id: str, epoch: int) -> None:
        """Give the thread back before the lease ends."""
        ...

    async def append(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        """Make the records, and the events that tell of them, durable: all or none.

        Raises `StaleEpoch`.
        """
        ...

    async def read(self, thread_id: str, after: int = 0) -> Sequence[Record]:
        """The thread's records from position `after` on."""
        ...

    async def find(self, run_id: str) -> str | None:
        """The thread of a run, None if no record of it is here."""
        ...

    async def events_of(self, run_id: str, after: int = -1) -> Sequence[Emitted]:
        """The kept events of a run with a number greater than `after`, in order."""
        ...

    async def held_by(self, host_id: str) -> Sequence[tuple[str, str]]:
        """The threads that runs of this host have acquired and not released, each with its owner:
        what a host that died has left. A lease that has run out does not end that."""
        ...

    async def runs(self) -> Sequence[StoredRun]:
        """Every run that has records here, in no order."""
        ...

    async def delete(self, thread_id: str) -> bool:
        """Forget a thread; False if there is none. Raises `ThreadBusy` while a run holds it."""
        ...


@runtime_checkable
class ImmediateRunStore(RunStore, Protocol):
    """A RunStore whose appends take no time worth waiting for: memory, or a local file."""

    def append_now(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        """`append`, done when it returns."""
        ...


class EventSink(Protocol):
    """Where a run's events leave. Stamps `source` and the sequence number, once."""

    def emit(self, event: TulipEvent) -> TulipEvent:
        """Take an event of this run; returns it stamped."""
        ...


class Clock(Protocol):
    """Time, so that tests can own it."""

    def now(self) -> datetime:
        """UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Ids(Protocol):
    """New identifiers, so that tests can own them."""

    def new(self, kind: str) -> str:
        """An id that nobody else has, beginning with `kind`."""
        ...


class FaultPoints(Protocol):
    """Named places at which a test may kill, delay or fail. Nothing happens by default."""

    async def reach(self, point: str, run_id: str) -> None:
        """The run passes `point`."""
        ...


class ChildRun(Protocol):
    """A run that another run follows."""

    @property
    def run_id(self) -> str:
        """The child's id."""
        ...

    def packed_events(self, start: int = 0) -> AsyncIterator[Sequence[Emitted]]:
        """Batches of what the child emits, from a position, as a parent's stream carries them."""
        ...

    async def result(self) -> object:
        """The child's result. Raises what it raised."""
        ...

    def cancel(self) -> None:
        """Stop it at once; returns without waiting."""
        ...

    def cancel_at_boundary(self) -> None:
        """Ask it to stop at its next turn boundary; returns without waiting."""
        ...


@runtime_checkable
class RunStarter(Protocol):
    """Something whose runs can be started: an agent or a team."""

    @property
    def name(self) -> str:
        """The label in events."""
        ...

    def begin(self, request: RunRequest) -> ChildRun:
        """Start exactly this run; returns at once."""
        ...


class CurrentRun(Protocol):
    """The run as any code that serves it knows it: models, hooks and tools, on any machine."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def thread_id(self) -> str:
        """The run's thread; its own id when none was given."""
        ...

    @property
    def agent_id(self) -> str:
        """The id of the agent or team that hosts the run."""
        ...

    @property
    def metadata(self) -> Mapping[str, Json]:
        """The run's metadata, read-only: as it was started with; in a tool, as of its call."""
        ...

    @property
    def principal(self) -> str | None:
        """On whose behalf the run is: the entry "principal" of the metadata it was started with."""
        ...

    def emit(self, event: TulipEvent) -> None:
        """Put an event on the stream and on the bus, stamped as this run's.

        Raises TypeError for anything else. In a tool it may be called in any thread.
        """
        ...

    def set_metadata(self, key: str, value: object) -> None:
        """Set an entry of the state's metadata, folded in at the next node boundary.

        Raises `NotSerialisable` for what JSON cannot hold, and `ConfigError` for "principal". In a
        tool it may be called in any thread.
        """
        ...


class CallsUnderWay(Protocol):
    """Calls from the moment this is entered: iterate it for what happens to them and to their
    children, until all have ended. Leaving it earlier cancels those that have not."""

    async def __aenter__(self) -> AsyncIterator[ToolUpdate]: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class RunContext(CurrentRun, Protocol):
    """What a Runnable may do. Every effect goes through here, under a key unique in the run."""

    @property
    def request(self) -> RunRequest:
        """What started the run."""
        ...

    @property
    def records(self) -> Sequence[Record]:
        """This run's records so far, as a recovered run folds them."""
        ...

    @property
    def clock(self) -> Clock:
        """The run's time."""
        ...

    @property
    def elapsed_s(self) -> float:
        """Seconds since this segment of the run began."""
        ...

    def watch_events(self, watcher: Callable[[TulipEvent], None]) -> None:
        """Show every event of this run to `watcher`, stamped, as it is emitted."""
        ...

    @property
    def has_news(self) -> bool:
        """Whether `take_metadata` or `raise_watcher_failure` has something; for the loop."""
        ...

    def raise_watcher_failure(self) -> None:
        """Raise what a watcher raised, once; asked where a node may be left."""
        ...

    def take_metadata(self) -> Mapping[str, Json]:
        """What `set_metadata` was given since this was last asked; for the loop."""
        ...

    @property
    def responses_recorded(self) -> int:
        """How many model answers this run has recorded, of any kind."""
        ...

    @property
    def cancel_requested(self) -> bool:
        """The flag that `agent.cancel()` sets, read at turn boundaries."""
        ...

    def terminate(self, event: TerminateEvent) -> None:
        """Emit the last event; whatever comes later is discarded."""
        ...

    def record(self, *records: Record) -> None:
        """Add to the run's log; written behind, in order. Make records with `stamp`."""
        ...

    def stamp(self) -> tuple[str, int, datetime]:
        """With what every record begins: run, sequence number of the next event, time."""
        ...

    @property
    def told_calls(self) -> Sequence[ToolStartEvent]:
        """In a run that was recovered: the calls made by tools of the turn in which it stood that
        were said to begin, and not to end."""
        ...

    def has_told_end(self, tool_call_id: str, parent_call_id: str | None) -> bool:
        """In a run that was recovered: whether such a call was said to end, in that turn."""
        ...

    async def thread_records(self) -> Sequence[Record]:
        """The records of other runs of this thread; none for a run that was given no thread."""
        ...

    async def durable(self) -> None:
        """Wait until everything recorded so far is stored. Awaited before an effect."""
        ...

    async def executor_id(self) -> str:
        """The incarnation that will own this run's calls, for their intents."""
        ...

    def call_tools(
        self, requests: Sequence[ToolRequest], adopted: Mapping[CallKey, str] | None = None
    ) -> CallsUnderWay:
        """Make calls, in an `async with`; see `CallsUnderWay`. Those that are `adopted` were
        submitted before, to the incarnation named there."""
        ...

    async def reach(self, point: str) -> None:
        """Pass a fault point."""
        ...

    async def complete(
        self,
        model: ChatModel | str,
        messages: Sequence[Message],
        *,
        key: str,
        **settings: object,
    ) -> ModelResponse:
        """Ask a model, once per key: conducted again, the recorded answer is returned."""
        ...

    async def run(
        self,
        member: RunStarter,
        input: str,
        *,
        key: str,
        specialist_id: str | None = None,
    ) -> object:
        """Run a member as a child run and return its result; its events join this stream."""
        ...

    def child_run_id(self, key: str) -> str:
        """The id that `run` gives to the child of that key."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def new_id(self, kind: str, key: str) -> str:
        """An id that nobody else has, the same whenever this run asks under the same key."""
        ...

    def random(self, key: str) -> Random:
        """Randomness that is the same whenever this run asks under the same key."""
        ...


class Runnable(Protocol[ResultT_co]):
    """A run's program: an agent's loop or a team's coordination."""

    @property
    def name(self) -> str:
        """The label in events."""
        ...

    async def conduct(self, input: str, ctx: RunContext) -> ResultT_co:
        """Do the job. Called again from its start after a crash."""
        ...


@runtime_checkable
class RecordedRunnable(Runnable[ResultT_co], Protocol[ResultT_co]):
    """A Runnable that folds its run's records: it goes on from them, where any other is conducted
    again from its start."""

    def check(self, thread: Sequence[Record]) -> None:
        """Whether it can go on with the newest run of a thread; asked before that is taken up.

        Raises `ToolChanged` when it cannot.
        """
        ...

    async def recall(self, ctx: RunContext) -> ResultT_co:
        """The result of a run that has ended, from its records; nothing is done again."""
        ...


@runtime_checkable
class RunResult(Protocol):
    """What the host needs of a result to end the stream with a TerminateEvent."""

    @property
    def stop_reason(self) -> str: ...

    @property
    def final_message(self) -> str | None: ...


class BusLog(Protocol):
    """The shared log of events. Batches are kept whole and never decoded."""

    async def publish(self, batch: EventBatch) -> None:
        """Append a batch. What is there already, by the batch's numbers, is left out.

        Raises `BusRestarted`, and takes nothing, when the log has begun anew since the last one.
        """
        ...

    async def poll(self, query: BusQuery) -> BusPage:
        """What the log holds after a position; waits up to `wait_s` for more."""
        ...
