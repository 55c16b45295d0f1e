"""The calls of one turn: each gets exactly one result, which is kept, recorded and announced.

What may live here: the turn's bookkeeping, and what is written down of a call. When calls are made
and followed is `execute`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tulip_actors.core.calls import CallKey, ToolOutcome, ToolRequest
from tulip_actors.core.events import InterruptEvent, ToolCompleteEvent, ToolStartEvent
from tulip_actors.core.messages import Message, ToolCall
from tulip_actors.core.ports import RunContext
from tulip_actors.core.runs import ToolFinished
from tulip_actors.core.state import AgentState, ToolExecution
from tulip_actors.loop.nodes import Setup
from tulip_actors.memory.fold import Reply, result_message

CANCELLED = "cancelled before it ended; its effect may have happened"


@dataclass(slots=True)
class Turn:
    """The calls of one turn: what was asked, what goes to the executor, what came back.

    `followers` are the slots that share the execution of another one: duplicates of an idempotent
    call within the turn. `waiting` are those that are not to run before every question is answered,
    `replies` what was said to the questions of each slot.
    """

    setup: Setup
    state: AgentState
    ctx: RunContext
    calls: tuple[ToolCall, ...]
    requests: dict[CallKey, ToolRequest] = field(default_factory=dict)
    followers: dict[CallKey, list[int]] = field(default_factory=dict)
    children: dict[CallKey, ToolRequest] = field(default_factory=dict)
    executions: dict[int, ToolExecution] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    announced: set[CallKey] = field(default_factory=set)
    submitted: set[CallKey] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    replies: dict[int, list[Reply]] = field(default_factory=dict)
    paused: list[InterruptEvent] = field(default_factory=list)
    failure: Exception | None = None


def announce(turn: Turn, requests: Sequence[ToolRequest]) -> None:
    """Say that calls begin, once for each."""
    for request in requests:
        if request.key not in turn.announced:
            turn.announced.add(request.key)
            turn.ctx.emit(started(request))


def keep(turn: Turn, slot: int, asked: ToolRequest | ToolCall, outcome: ToolOutcome) -> None:
    """The one result of a call: kept, recorded, announced."""
    call = turn.calls[slot]
    execution = ToolExecution(
        tool_name=call.name,
        tool_call_id=call.id,
        arguments=asked.arguments,
        result=outcome.result,
        error=outcome.error,
        duration_ms=outcome.duration_ms,
        timestamp=turn.ctx.clock.now(),
        run_id=turn.ctx.run_id,
    )
    _record(turn, slot, execution)
    turn.ctx.emit(completed(call.name, call.id, outcome))


def serve(turn: Turn, slot: int, request: ToolRequest, known: ToolExecution) -> None:
    """Give a call the result of another one: both events, no time, no body.

    `request` is its own, or that of the call whose execution it shares.
    """
    call, ctx = turn.calls[slot], turn.ctx
    announce(turn, [request])
    served = replace(
        known,
        tool_call_id=call.id,
        duration_ms=0.0,
        timestamp=ctx.clock.now(),
        idempotent_cache_hit=known.success,
        run_id=ctx.run_id,
    )
    _record(turn, slot, served)
    ctx.emit(completed(call.name, call.id, ToolOutcome(result=known.result, error=known.error)))


def _record(turn: Turn, slot: int, execution: ToolExecution) -> None:
    ctx = turn.ctx
    turn.executions[slot] = execution
    key = CallKey(ctx.run_id, turn.state.iteration, slot)
    counted = slot not in turn.refused
    ctx.record(ToolFinished(*ctx.stamp(), key, execution, counted))


def close_open(turn: Turn, reason: str) -> None:
    """Give every call that has none a result, so that no start lacks its complete."""
    announce(turn, list(turn.requests.values()))
    close_children(turn)
    following = {slot for slots in turn.followers.values() for slot in slots}
    for slot, call in enumerate(turn.calls):
        if slot in turn.executions:
            continue
        request = turn.requests.get(CallKey(turn.ctx.run_id, turn.state.iteration, slot))
        if request is None or request.key not in turn.submitted:
            turn.refused.add(slot)  # it never ran, and counts for nothing
        if request is None and slot not in following:
            turn.ctx.emit(
                ToolStartEvent(tool_name=call.name, tool_call_id=call.id, arguments=call.arguments)
            )
        keep(turn, slot, request or call, ToolOutcome(error=reason, error_type="cancelled"))


def close_children(turn: Turn) -> None:
    """Announce the end of children whose own end never came: lost with their executor."""
    closed = ToolOutcome(error=CANCELLED, error_type="cancelled")
    for child in list(turn.children.values()):
        turn.ctx.emit(completed(child.tool_name, child.tool_call_id, closed, child.parent_call_id))
    turn.children.clear()


def with_results(turn: Turn) -> AgentState:
    """The state with the turn's results, in call order."""
    state = turn.state
    messages: list[Message] = []
    for slot, call in enumerate(turn.calls):
        execution = turn.executions[slot]
        if slot not in turn.refused:
            state = state.with_tool_execution(execution)
        messages.append(result_message(call, execution))
    return state.with_messages(*messages)


def started(request: ToolRequest) -> ToolStartEvent:
    """The event of a call that begins."""
    return ToolStartEvent(
        tool_name=request.tool_name,
        tool_call_id=request.tool_call_id,
        arguments=request.arguments,
        parent_call_id=request.parent_call_id,
    )


def completed(
    name: str, call_id: str, outcome: ToolOutcome, parent_call_id: str | None = None
) -> ToolCompleteEvent:
    """The event of a call that ended."""
    return ToolCompleteEvent(
        tool_name=name,
        tool_call_id=call_id,
        result=outcome.result,
        error=outcome.error,
        duration_ms=outcome.duration_ms,
        queued_ms=outcome.queued_ms,
        worker_pid=outcome.worker_pid,
        node_id=outcome.node_id,
        parent_call_id=parent_call_id,
    )
