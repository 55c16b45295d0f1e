"""From a thread's records back to its conversation.

Pure: the records of every run of the thread, in the order they were written, give the messages and
executions that the next run continues with, without asking a model or making a call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tulip_actors.core.messages import Message, ToolCall, ToolResult
from tulip_actors.core.runs import Added, ModelTurn, Opened, Record, RunEnded, ToolFinished
from tulip_actors.core.state import ToolExecution

UNANSWERED = "result unavailable; the effect may have happened"
"""What closes a call whose result was never recorded: a provider takes no call without one."""


@dataclass(slots=True)
class Conversation:
    """What a thread holds: messages, and the executions that got a result."""

    messages: list[Message] = field(default_factory=list)
    executions: list[ToolExecution] = field(default_factory=list)
    _open: dict[int, ToolCall] = field(default_factory=dict)
    _results: dict[int, ToolExecution] = field(default_factory=dict)

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
            case ToolFinished(key=key, execution=execution, is_counted=counted):
                self._results[key.slot] = execution
                if counted:
                    self.executions.append(execution)
            case RunEnded():
                self.close_turn()

    def close_turn(self) -> None:
        """Answer the calls of the last turn, in their order."""
        for slot, call in self._open.items():
            self.messages.append(result_message(call, self._results.get(slot)))
        self._open, self._results = {}, {}


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
