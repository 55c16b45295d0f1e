"""Every observable step of a run, as frozen pydantic models.

What may live here: event classes, the unions over them, and `EventSource`. Nothing here does
anything. Events leave a node through the sink, which stamps `source`; they never come back.

    LoopEvent    what one agent's loop emits
    AgentEvent   LoopEvent and what tools and recovery add
    AllEvents    everything that may appear on a stream or on the bus
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from tulip_actors.core.frozen import EMPTY, JsonObject, TokenCounts
from tulip_actors.core.messages import ToolCall

Assessment = Literal["on_track", "stuck", "new_findings", "loop_detected"]
Decision = Literal["invoke_specialist", "correlate", "summarize", "finalize"]

_new, _set = object.__new__, object.__setattr__


@dataclass(frozen=True, kw_only=True)
class EventSource:
    """Who emitted an event, stamped once by the run's sink.

    `seq` counts the events of one run from 0, without gaps. `agent` is the label of the agent or
    team; `specialist_id` is set on the events of a member that a team started.
    """

    run_id: str
    parent_run_id: str | None = None
    parent_call_id: str | None = None
    thread_id: str
    agent: str
    specialist_id: str | None = None
    seq: int
    node_id: str
    pid: int

    def numbered(self, seq: int) -> EventSource:
        """The same source, of another event; a fifth of the time of `dataclasses.replace`."""
        values = self.__dict__.copy()
        values["seq"] = seq
        copy = _new(EventSource)
        _set(copy, "__dict__", values)
        return copy


class TulipEvent(BaseModel):
    """Base of every event. `timestamp` is UTC, taken when the event is made."""

    model_config = ConfigDict(frozen=True, defer_build=True, ser_json_inf_nan="constants")

    event_type: str
    timestamp: datetime = Field(default_factory=partial(datetime.now, UTC))
    source: EventSource | None = None

    provisional: ClassVar[bool] = False
    """True for chunks: a recovered run may take them back and emit the turn again."""


class ThinkEvent(TulipEvent):
    """The model spoke: once per turn. `content` reads the same text as `reasoning`."""

    event_type: Literal["think"] = "think"
    iteration: int
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def content(self) -> str | None:
        """The turn's text."""
        return self.reasoning


class ToolStartEvent(TulipEvent):
    """A tool call is about to run. `parent_call_id` is set on calls made by another tool."""

    event_type: Literal["tool_start"] = "tool_start"
    tool_name: str
    tool_call_id: str
    arguments: JsonObject = EMPTY
    parent_call_id: str | None = None


class ToolCompleteEvent(TulipEvent):
    """A tool call ended. `result` is what the model sees; it is None exactly when `error` is not.

    `duration_ms` is the body's own time; `queued_ms` the time before it began; `worker_pid` and
    `node_id` name the process that ran it (None for a call that never ran).
    """

    event_type: Literal["tool_complete"] = "tool_complete"
    tool_name: str
    tool_call_id: str
    result: str | None = None
    error: str | None = None
    duration_ms: float = 0.0
    queued_ms: float = 0.0
    worker_pid: int | None = None
    node_id: str | None = None
    parent_call_id: str | None = None


class ToolProgressEvent(TulipEvent):
    """A tool says how far it is: `fraction`, 0 to 1."""

    event_type: Literal["tool_progress"] = "tool_progress"
    tool_name: str
    tool_call_id: str
    fraction: float
    message: str = ""


class ModelChunkEvent(TulipEvent):
    """A streamed piece of an answer. `done` marks the last one of a turn."""

    event_type: Literal["model_chunk"] = "model_chunk"
    provisional: ClassVar[bool] = True
    content: str | None = None
    tool_calls: tuple[ToolCallDelta, ...] = ()
    done: bool = False
    reasoning: str | None = None
    usage: TokenCounts | None = None
    stop_reason: str | None = None


class ToolCallDelta(BaseModel):
    """A piece of one streamed tool call: an id or name opens it, `arguments` is JSON text."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | None = None


class ModelCompleteEvent(TulipEvent):
    """Defined for consumers that match on every class; a run never emits it."""

    event_type: Literal["model_complete"] = "model_complete"
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: TokenCounts | None = None
    stop_reason: str | None = None


class ReflectEvent(TulipEvent):
    """A self-evaluation of one turn."""

    event_type: Literal["reflect"] = "reflect"
    iteration: int
    assessment: Assessment
    confidence_delta: float
    new_confidence: float
    guidance: str | None = None


class GroundingEvent(TulipEvent):
    """The claims of an answer were judged. `score` is their mean support, 0 to 1."""

    event_type: Literal["grounding"] = "grounding"
    score: float
    claims_evaluated: int
    ungrounded_claims: tuple[str, ...] = ()
    requires_replan: bool = False


class InterruptEvent(TulipEvent):
    """A tool asks a human. Answer with `agent.resume(answer, interrupt_id)`."""

    event_type: Literal["interrupt"] = "interrupt"
    question: str
    options: tuple[str, ...] | None = None
    interrupt_id: str
    metadata: JsonObject = EMPTY


class TerminateEvent(TulipEvent):
    """The run ended: exactly once, last.

    `reason` names what fired, `condition` is its repr, `stop_reason` the normalised literal that
    the result carries. `usage` is None when the provider reported none: unmetered, not zero.
    """

    event_type: Literal["terminate"] = "terminate"
    reason: str
    iterations_used: int = 0
    final_confidence: float = 0.0
    total_tool_calls: int = 0
    final_message: str | None = None
    usage: TokenCounts | None = None
    condition: str | None = None
    stop_reason: str = "complete"


class SpecialistStartEvent(TulipEvent):
    """A team handed a task to a member. Pairs with its complete by `member_run_id`."""

    event_type: Literal["specialist_start"] = "specialist_start"
    specialist_id: str
    specialist_type: str | None = None
    task: str
    member_run_id: str


class SpecialistCompleteEvent(TulipEvent):
    """A member answered, failed or was lost: exactly one per start."""

    event_type: Literal["specialist_complete"] = "specialist_complete"
    specialist_id: str
    specialist_type: str | None = None
    member_run_id: str
    result: str | None = None
    error: str | None = None
    confidence: float | None = None
    duration_ms: float = 0.0


class OrchestratorDecisionEvent(TulipEvent):
    """An orchestrator chose its next step, and why."""

    event_type: Literal["orchestrator_decision"] = "orchestrator_decision"
    decision: Decision
    specialists_selected: tuple[str, ...] = ()
    reasoning: str | None = None


class CausalNodeEvent(TulipEvent):
    """A new entity in a cause-effect graph."""

    event_type: Literal["causal_node"] = "causal_node"
    node_id: str
    label: str
    node_type: str = "intermediate"
    evidence: tuple[str, ...] = ()


class CausalEdgeEvent(TulipEvent):
    """A link between two entities of a cause-effect graph."""

    event_type: Literal["causal_edge"] = "causal_edge"
    source_id: str
    target_id: str
    relationship: str = "causes"
    confidence: float = 1.0


class RunRecoveredEvent(TulipEvent):
    """The run's process had ended, and another one goes on with it from its records.

    `iteration` is the turn in which it stood; of a turn that is made again, `chunks_discarded`
    chunks were shown before, and are void.
    """

    event_type: Literal["run_recovered"] = "run_recovered"
    iteration: int = 0
    chunks_discarded: int = 0


class AgentRestartedEvent(TulipEvent):
    """A host was started again after its process had ended; `source.run_id` is the host's id.

    `restarts` counts from 1; `runs` are those that it takes up.
    """

    event_type: Literal["agent_restarted"] = "agent_restarted"
    restarts: int
    runs: tuple[str, ...] = ()


LoopEvent = (
    ThinkEvent
    | ModelChunkEvent
    | ModelCompleteEvent
    | ToolStartEvent
    | ToolCompleteEvent
    | ReflectEvent
    | GroundingEvent
    | InterruptEvent
    | TerminateEvent
)
AgentEvent = LoopEvent
AllEvents = Annotated[
    LoopEvent
    | ToolProgressEvent
    | RunRecoveredEvent
    | AgentRestartedEvent
    | SpecialistStartEvent
    | SpecialistCompleteEvent
    | OrchestratorDecisionEvent
    | CausalNodeEvent
    | CausalEdgeEvent,
    Field(discriminator="event_type"),
]
"""Everything that may appear on a stream or on the bus, told apart by `event_type`."""
