"""From records back to a conversation, and to the state in which a run stands.

Pure: no model is asked and no call made. A new run of a thread continues with `fold`; a run that
paused goes on from `resumed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tulip_actors.core.frozen import Json
from tulip_actors.core.history import History
from tulip_actors.core.messages import Message, ToolCall, ToolResult
from tulip_actors.core.runs import (
    Added,
    Answered,
    Intent,
    ModelTurn,
    Opened,
    Paused,
    Record,
    RunEnded,
    ToolFinished,
    ToolIntents,
)
from tulip_actors.core.state import AgentState, ToolExecution

UNANSWERED = "result unavailable; the effect may have happened"
"""What closes a call whose result was never recorded: a provider takes no call without one."""


@dataclass(slots=True)
class Conversation:
    """What a thread holds: messages, and the executions that got a result."""

    messages: list[Message] = field(default_factory=list)
    executions: list[ToolExecution] = field(default_factory=list)
    _open: dict[int, ToolCall] = field(default_factory=dict)
    _results: dict[int, ToolFinished] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Fold one more record in."""
        match record:
            case Opened(kept=kept, messages=messages):
                self.close_turn()
                del self.messages[kept:]
                self.messages.extend(messages)
            case Added(messages=messages):
                self.close_turn()
                self.messages.extend(messages)
            case ModelTurn(message=message, accepted=True):
                self.close_turn()
                self.messages.append(message)
                self._open = dict(enumerate(message.tool_calls))
            case ToolFinished(key=key):
                self._results[key.slot] = record
            case RunEnded(stop_reason=stop_reason) if stop_reason != "interrupted":
                self.close_turn()  # a paused turn stays open for its answers

    def close_turn(self) -> None:
        """Answer the calls of the last turn, in their order."""
        for slot, call in self._open.items():
            finished = self._results.get(slot)
            self.messages.append(result_message(call, finished.execution if finished else None))
            if finished is not None and finished.is_counted:
                self.executions.append(finished.execution)
        self._open, self._results = {}, {}


@dataclass(slots=True)
class PendingTurn:
    """A turn that stopped because calls of it ask a human.

    By slot: results there are, the calls as they were admitted, the answers so far. `open` are the
    questions without an answer.
    """

    executions: dict[int, ToolFinished] = field(default_factory=dict)
    intents: dict[int, Intent] = field(default_factory=dict)
    answers: dict[int, list[Json]] = field(default_factory=dict)
    open: dict[str, Paused] = field(default_factory=dict)
    _asked: dict[str, int] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Fold one more record of the turn in."""
        match record:
            case ToolIntents(intents=intents):
                self.intents.update({intent.key.slot: intent for intent in intents})
            case ToolFinished(key=key):
                self.executions[key.slot] = record
            case Paused(key=key, interrupt_id=interrupt_id):
                self.open[interrupt_id] = record
                self._asked[interrupt_id] = key.slot
            case Answered(interrupt_id=interrupt_id, response=response):
                self.open.pop(interrupt_id, None)
                self.answers.setdefault(self._asked[interrupt_id], []).append(response)


def resumed(
    state: AgentState, earlier: Sequence[Record], own: Sequence[Record]
) -> tuple[AgentState, PendingTurn]:
    """The state in which a run stands, and its turn that is to be completed.

    `state` gives what is not in the records: ids and metadata. `earlier` are the thread's records
    of other runs, `own` the run's.
    """
    conversation = fold(earlier)
    state = replace(
        state,
        messages=History(conversation.messages),
        tool_executions=History(conversation.executions),
        executions_before_turn=len(conversation.executions),
        thread_length=len(conversation.messages),
    )
    pending = PendingTurn()
    turns = 0
    for record in own:
        match record:
            case Opened(kept=kept, messages=messages):
                opened = (*state.messages[:kept], *messages)
                state = replace(state, messages=History(opened), opening_length=len(opened))
            case Added(messages=messages, confidence=confidence):
                state, pending = _completed(state, pending).with_messages(*messages), PendingTurn()
                state = state if confidence is None else state.with_confidence(confidence)
            case ModelTurn(accepted=True, message=message):
                state, pending = _completed(state, pending), PendingTurn()
                state = state.next_iteration() if turns else state
                turns += 1
                state = state.with_message(message)
            case _:
                pending.take(record)
        if isinstance(record, ModelTurn):
            state = state.with_token_usage(record.usage)
    return state, pending


def _completed(state: AgentState, turn: PendingTurn) -> AgentState:
    """The state with the results of a turn, if its last message asked for any."""
    calls = state.messages[-1].tool_calls if state.messages else ()
    for slot, call in enumerate(calls):
        finished = turn.executions.get(slot)
        execution = finished.execution if finished else None
        state = state.with_message(result_message(call, execution))
        if finished is not None and finished.is_counted:
            state = state.with_tool_execution(finished.execution)
    return state


def fold(records: Iterable[Record]) -> Conversation:
    """The conversation that the records of whole runs make."""
    conversation = Conversation()
    for record in records:
        conversation.take(record)
    conversation.close_turn()
    return conversation


def result_message(call: ToolCall, execution: ToolExecution | None) -> Message:
    """The tool message of a call: its result, its error, or that neither is known."""
    if execution is None:
        return Message.tool(ToolResult(call.id, call.name, UNANSWERED, is_error=True))
    content = execution.result if execution.success else f"Error: {execution.error}"
    return Message.tool(
        ToolResult(call.id, call.name, content or "", is_error=not execution.success)
    )
