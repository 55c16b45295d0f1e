"""From a thread's records back to the state in which its newest run stands.

Pure: no model is asked and no call made. A new run of a thread, a run that paused and one whose
process died all begin here, and so does whoever reads a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tulip_actors.core.codec import record_from_json, record_to_json
from tulip_actors.core.frozen import Json
from tulip_actors.core.history import History
from tulip_actors.core.messages import Message, Role, ToolCall, ToolResult
from tulip_actors.core.runs import (
    Added,
    Answered,
    Checkpointed,
    Grounded,
    Hold,
    Intent,
    MetadataSet,
    ModelTurn,
    Opened,
    Paused,
    Record,
    RunEnded,
    RunStarted,
    Saved,
    ToolFinished,
    ToolIntents,
)
from tulip_actors.core.state import AgentState, ReasoningStep, ToolExecution
from tulip_actors.errors import NotSerialisable

UNANSWERED = "result unavailable; the effect may have happened"
"""What closes a call whose result was never recorded: a provider takes no call without one."""
NOT_ANSWERED: Mapping[Hold | None, str] = {
    None: "it asked a question that nobody answered, and did not go on from there",
    "approval": "it waited for an approval that nobody gave, and was not run",
    "lost": UNANSWERED,
}
"""What closes a call that waits for a human, when the conversation went on without the answer."""

_TOOL = Role.TOOL  # to look a member of an Enum up takes long

TURN = "turn:"
SUMMARY = "summary"
"""How the keys of a run's own model answers begin; those of others are not in the conversation."""


class Reply(NamedTuple):
    """What a human said to a question."""

    paused: Paused
    response: Json


@dataclass(slots=True)
class PendingTurn:
    """A turn that is not complete.

    By slot: results there are, the calls as they were admitted and to whom those that are under way
    were submitted, the replies so far. `open` are the questions without an answer; `reflection` is
    what the turn's reflection made, if it was due.
    """

    executions: dict[int, ToolFinished] = field(default_factory=dict)
    intents: dict[int, Intent] = field(default_factory=dict)
    executors: dict[int, str] = field(default_factory=dict)
    replies: dict[int, list[Reply]] = field(default_factory=dict)
    open: dict[str, Paused] = field(default_factory=dict)
    reflection: Added | None = None

    def take(self, record: Record) -> None:
        """Fold one more record of the turn in."""
        match record:
            case ToolIntents(intents=intents, executor=executor):
                for intent in intents:
                    self.intents[intent.key.slot] = intent
                    self.executors[intent.key.slot] = executor
            case ToolFinished(key=key):
                self.executions[key.slot] = record
            case Paused(interrupt_id=interrupt_id, key=key):
                self.open[interrupt_id] = record
                self.executors.pop(key.slot, None)  # that body has ended: it is submitted anew
            case Answered(interrupt_id=interrupt_id, response=response):
                paused = self.open.pop(interrupt_id, None)
                if paused is not None:
                    self.replies.setdefault(paused.key.slot, []).append(Reply(paused, response))


class Standing:
    """Where a thread's newest run stands, after the records taken so far.

    `turn` is the run's last turn, while it is not complete; `opened` tells whether the run has its
    opening messages. Of earlier runs the messages and the executions are left.
    """

    def __init__(self) -> None:
        self._state: AgentState | None = None
        self.turn: PendingTurn | None = None
        self.opened = False

    @property
    def is_empty(self) -> bool:
        """True while nothing was taken."""
        return self._state is None

    @property
    def state(self) -> AgentState:
        """The newest run's state. Raises `NotSerialisable` when no run has begun."""
        if self._state is None:
            raise NotSerialisable("the records of a thread begin with a run or a saved state")
        return self._state

    def take(self, record: Record) -> None:
        """Fold one more record in."""
        match record:
            case RunStarted():
                self._begin(record)
            case Saved(state=saved):
                self._state, self.turn = AgentState.from_checkpoint(saved), None
            case RunEnded():
                self._end(record)
            case Opened(kept=kept, messages=messages, metadata=metadata):
                self._open(kept, messages)
                self._state = replace(self.state, metadata=metadata)
            case ModelTurn():
                self._answer(record)
            case ToolIntents() | ToolFinished() | Paused() | Answered():
                if self.turn is not None:
                    self.turn.take(record)
            case _:
                self._between_turns(record)

    def _between_turns(self, record: Record) -> None:
        match record:
            case MetadataSet(entries=entries):
                for key, value in entries.items():
                    self._state = self.state.with_metadata(key, value)
            case Added(confidence=None, messages=messages):
                self._complete_turn(record)
                self._state = self.state.with_messages(*messages)
            case Added() if self.turn is not None:
                self.turn.reflection = record
            case Grounded():
                self._complete_turn(record)
                self._state = grounded(self.state, record)
            case Checkpointed():
                self._complete_turn(record)

    def _begin(self, started: RunStarted) -> None:
        """The state that continues the thread: counters, budgets and confidence are fresh."""
        if self._state is not None:
            self._close_turn()
        earlier = self._state
        messages = earlier.messages if earlier else History[Message]()
        executions = earlier.tool_executions if earlier else History[ToolExecution]()
        request = started.request
        self.opened = False
        self._state = AgentState(
            request.run_id,
            request.thread_id,
            started.agent_id,
            messages=messages,
            tool_executions=executions,
            executions_before_turn=len(executions),
            metadata=request.metadata,
            thread_length=len(messages),
            opening_length=len(messages),
            started_at=started.at,
            updated_at=started.at,
        )

    def _open(self, kept: int, messages: tuple[Message, ...]) -> None:
        earlier = self.state.messages
        opened = (
            earlier.with_items(*messages)
            if kept == len(earlier)
            else History((*earlier[:kept], *messages))
        )
        self.opened = True
        self._state = replace(self.state, messages=opened, opening_length=len(opened))

    def _answer(self, answer: ModelTurn) -> None:
        if not answer.key.startswith((TURN, SUMMARY)):
            return
        if answer.key.startswith(TURN):
            self._complete_turn(answer)
        state = self.state.with_token_usage(answer.usage)
        if answer.accepted:
            message = answer.message
            state = state.with_message(message)
            if answer.key.startswith(TURN):
                state = with_thought(state, message)
                self.turn = PendingTurn()
        self._state = state

    def _end(self, ended: RunEnded) -> None:
        if ended.stop_reason == "interrupted":
            return  # the turn stays open for its answers
        self._close_turn()
        if ended.iterations > self.state.iteration:
            self._state = self.state.next_iteration(ended.at)
        if ended.answer is not None:
            self._state = self.state.with_message(Message.assistant(ended.answer))
        if ended.error is not None:
            self._state = self.state.with_error(ended.error)

    def _complete_turn(self, record: Record) -> None:
        if self.turn is not None:
            self._close_turn()
            self._state = self.state.next_iteration(record.at)

    def _close_turn(self) -> None:
        """Answer the calls of the turn, in their order, and keep what reflection made of it."""
        turn, self.turn = self.turn or PendingTurn(), None
        state = self.state
        unanswered = {one.key.slot: NOT_ANSWERED[one.hold] for one in turn.open.values()}
        for slot, call in enumerate(state.messages[-1].tool_calls if state.messages else ()):
            finished = turn.executions.get(slot)
            execution = finished.execution if finished else None
            missing = unanswered.get(slot, UNANSWERED)
            state = state.with_message(result_message(call, execution, missing))
            if finished is not None and finished.is_counted:
                state = state.with_tool_execution(finished.execution)
        self._state = state if turn.reflection is None else reflected(state, turn.reflection)


def standing(records: Iterable[Record]) -> Standing:
    """Where a thread stands after its records."""
    fold = Standing()
    for record in records:
        fold.take(record)
    return fold


def checkpoints(records: Iterable[Record]) -> Iterator[tuple[str, AgentState]]:
    """A thread's checkpoints, oldest first: their ids, and the states at them.

    There is one at the end of every segment of a run, one where a run asked for it, and one where
    somebody saved a state.
    """
    fold = Standing()
    for record in records:
        fold.take(record)
        checkpoint_id = checkpoint_id_of(record)
        if checkpoint_id is not None:
            yield checkpoint_id, fold.state


def checkpoint_id_of(record: Record) -> str | None:
    """The id of the checkpoint that a record makes, None if it makes none."""
    if isinstance(record, Saved):
        return record.checkpoint_id
    if isinstance(record, Checkpointed):
        return f"{record.run_id}:turn-{record.iterations}"
    if isinstance(record, RunEnded):
        return f"{record.run_id}:{record.seq}"
    return None


def state_to_keep(records: Sequence[Record]) -> AgentState:
    """The state at the newest record; of a run that waits for answers with all its records."""
    state = standing(records).state
    own = since_started(records, state.run_id)
    last = next((one for one in reversed(own) if not isinstance(one, MetadataSet)), None)
    if isinstance(last, RunEnded) and last.stop_reason == "interrupted":
        return replace(state, paused_run=tuple(map(record_to_json, own)))
    return state


def since_started(records: Sequence[Record], run_id: str) -> Sequence[Record]:
    """A run's own records, from where it was last started: a copy of it may stand before that."""
    starts = [
        position
        for position, one in enumerate(records)
        if isinstance(one, RunStarted) and one.run_id == run_id
    ]
    return [one for one in records[starts[-1] :] if one.run_id == run_id] if starts else []


def seeded(state: AgentState, saved: Saved) -> Iterator[Record]:
    """Records that make a saved state again, together with the run that waits for answers in it."""
    if not state.paused_run:
        yield saved
        return
    earlier = replace(
        state,
        messages=History(state.messages[: state.thread_length]),
        tool_executions=History(one for one in state.tool_executions if one.run_id != state.run_id),
        paused_run=(),
    )
    yield replace(saved, state=earlier.to_checkpoint())
    yield from (record_from_json(record) for record in state.paused_run)
    yield MetadataSet(saved.run_id, saved.seq, saved.at, state.metadata)


def with_thought(state: AgentState, message: Message) -> AgentState:
    """The state with the reasoning step of a turn's message, if it says anything."""
    thought = message.reasoning or message.content
    if not thought:
        return state
    names = tuple(call.name for call in message.tool_calls)
    return state.with_reasoning_step(ReasoningStep(state.iteration, thought, names))


def reflected(state: AgentState, reflection: Added) -> AgentState:
    """The state with the confidence and the notes of a reflection."""
    if reflection.confidence is not None:
        state = state.with_confidence(reflection.confidence)
    return state.with_messages(*reflection.messages)


def grounded(state: AgentState, judgement: Grounded) -> AgentState:
    """The state with a judgement, and with what sends the answer back."""
    return state.with_grounding(judgement.result).with_messages(*judgement.messages)


def result_message(
    call: ToolCall, execution: ToolExecution | None, missing: str = UNANSWERED
) -> Message:
    """The tool message of a call: its result, its error, or that neither is known."""
    if execution is None:
        return Message.tool(ToolResult(call.id, call.name, missing, is_error=True))
    error = execution.error
    content = f"Error: {error}" if error is not None else execution.result or ""
    return Message(_TOOL, content, (), call.id, call.name, None, error is not None)
