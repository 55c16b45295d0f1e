"""What starts a run, what a model answers, and the records that rebuild a run.

What may live here: the data the RunStore, ChatModel and Runnable ports speak in. A run's records
are append-only, one list per thread, each with its `run_id` and the `seq` its next event would
get; folding them gives the run's state without asking a model or repeating a finished call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from tulip_actors.core.calls import CallKey
from tulip_actors.core.frozen import EMPTY, Json, JsonObject
from tulip_actors.core.grounding import GroundingResult
from tulip_actors.core.interrupt import InterruptRequest
from tulip_actors.core.messages import Message
from tulip_actors.core.quick import quick_init
from tulip_actors.core.state import ToolExecution

OnBusy: TypeAlias = Literal["refuse", "wait"]
"""What a run does whose thread another run holds."""

Hold: TypeAlias = Literal["approval", "lost"]
"""A question of the runtime's own about a call: may it run, and may it run again."""


@quick_init
@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A model's answer. `usage` is None when the provider reported none."""

    message: Message
    usage: Mapping[str, int] | None = None
    stop_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a human says to a paused run. The interrupt's id may be left out when one question is
    open; `id` names the answer itself, so that one that is sent again is taken once."""

    response: Json
    interrupt_id: str | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Everything that starts a run; the same for an agent and for a team.

    `parent_run_id`, `parent_call_id` and `specialist_id` are set on runs that a team or a tool
    started, and appear in every event's source. With `answer` it resumes the run of that id, whose
    thread, metadata and the like are those it was started with. With `continued` it may have been
    started before: then it is followed, or taken up from its records. `on_busy` says what becomes
    of it while another run holds its thread: refused with `ThreadBusy`, or it waits.
    """

    run_id: str
    thread_id: str
    input: str
    metadata: JsonObject = EMPTY
    stream_tokens: bool = False
    model_kwargs: JsonObject = EMPTY
    parent_run_id: str | None = None
    parent_call_id: str | None = None
    specialist_id: str | None = None
    answer: Answer | None = None
    continued: bool = False
    on_busy: OnBusy = "refuse"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The first record of a run, on the agent or team of that id."""

    run_id: str
    seq: int
    at: datetime
    request: RunRequest
    agent_id: str
    kind: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True)
class Opened:
    """The messages with which an agent's run begins, after the hooks: its prompt and the like.

    They follow the first `kept` messages of the thread: all of them, unless a hook changed some.
    """

    run_id: str
    seq: int
    at: datetime
    kept: int
    messages: tuple[Message, ...]
    metadata: JsonObject = EMPTY
    kind: Literal["opened"] = "opened"


@dataclass(frozen=True, slots=True)
class Added:
    """Messages that the loop itself put into the conversation: guidance, the request to sum up.

    With a `confidence` they are a reflection's, and belong to the turn that they stand after.
    """

    run_id: str
    seq: int
    at: datetime
    messages: tuple[Message, ...]
    confidence: float | None = None
    kind: Literal["added"] = "added"


@dataclass(frozen=True, slots=True)
class Grounded:
    """The answer of a turn was judged; with `messages` it was sent back."""

    run_id: str
    seq: int
    at: datetime
    result: GroundingResult
    messages: tuple[Message, ...] = ()
    kind: Literal["grounded"] = "grounded"


@dataclass(frozen=True, slots=True)
class MetadataSet:
    """Entries of the state's metadata were set."""

    run_id: str
    seq: int
    at: datetime
    entries: JsonObject
    kind: Literal["metadata_set"] = "metadata_set"


@quick_init
@dataclass(frozen=True, slots=True)
class ModelTurn:
    """A model answered. `key` tells the loop's own turns ("turn:3/1") from others ("summary").

    `accepted` is false for an answer that was asked for again and is not in the conversation.
    """

    run_id: str
    seq: int
    at: datetime
    key: str
    message: Message
    usage: Mapping[str, int] | None = None
    stop_reason: str | None = None
    accepted: bool = True
    kind: Literal["model_turn"] = "model_turn"


@quick_init
@dataclass(frozen=True, slots=True)
class Intent:
    """A call that is about to be made. `schema_hash` is its tool's, as of then; empty where an
    earlier release wrote it."""

    key: CallKey
    tool_name: str
    tool_call_id: str
    arguments: JsonObject
    schema_hash: str = ""


@quick_init
@dataclass(frozen=True, slots=True)
class ToolIntents:
    """The calls of one turn, written before any of them is submitted.

    `executor` names the incarnation that will own them: recovery asks that one.
    """

    run_id: str
    seq: int
    at: datetime
    intents: tuple[Intent, ...]
    executor: str
    kind: Literal["tool_intents"] = "tool_intents"


@quick_init
@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call has its result. A refused one is in the conversation, but not counted."""

    run_id: str
    seq: int
    at: datetime
    key: CallKey
    execution: ToolExecution
    is_counted: bool = True
    kind: Literal["tool_finished"] = "tool_finished"


@dataclass(frozen=True, slots=True)
class Paused:
    """A call waits for a human and has no result until the answer is there.

    With `hold` the question is the runtime's own; without one its body asked.
    """

    run_id: str
    seq: int
    at: datetime
    key: CallKey
    interrupt_id: str
    request: InterruptRequest
    hold: Hold | None = None
    kind: Literal["paused"] = "paused"


@dataclass(frozen=True, slots=True)
class Answered:
    """A human's answer to one `Paused`."""

    run_id: str
    seq: int
    at: datetime
    interrupt_id: str
    response: Json
    answer_id: str = ""
    kind: Literal["answered"] = "answered"


@dataclass(frozen=True, slots=True)
class Recovered:
    """Another process took the run up, where its records end."""

    run_id: str
    seq: int
    at: datetime
    kind: Literal["recovered"] = "recovered"


@dataclass(frozen=True, slots=True)
class StepDone:
    """A keyed effect of a team's `conduct` has its value; conducted again, it is not repeated."""

    run_id: str
    seq: int
    at: datetime
    key: str
    value: JsonObject
    kind: Literal["step_done"] = "step_done"


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """So many turns are complete, and the run asked for a checkpoint here."""

    run_id: str
    seq: int
    at: datetime
    iterations: int
    kind: Literal["checkpointed"] = "checkpointed"


@dataclass(frozen=True, slots=True)
class Saved:
    """A whole state that somebody saved into a thread; what came before it need not be read."""

    run_id: str
    seq: int
    at: datetime
    checkpoint_id: str
    state: JsonObject
    kind: Literal["saved"] = "saved"


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last record of a segment.

    `iterations` are the turns completed; `answer` is what the model declared to be its answer.
    """

    run_id: str
    seq: int
    at: datetime
    stop_reason: str
    reason: str
    iterations: int = 0
    answer: str | None = None
    error: str | None = None
    kind: Literal["run_ended"] = "run_ended"


Record: TypeAlias = (
    RunStarted
    | Opened
    | Added
    | Grounded
    | MetadataSet
    | ModelTurn
    | ToolIntents
    | ToolFinished
    | Paused
    | Answered
    | Recovered
    | StepDone
    | Checkpointed
    | Saved
    | RunEnded
)
"""One line of a thread's log."""
