"""The calls of one turn: each gets exactly one result, which is kept, recorded and announced.

What may live here: the turn's bookkeeping, and what is written down of a call. When calls are made
and followed is `execute`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tulip_actors.core.calls import CallKey, ToolOutcome, ToolRequest
from tulip_actors.core.events import InterruptEvent, ToolCompleteEvent, ToolStartEvent
from tulip_actors.core.messages import ToolCall
from tulip_actors.core.ports import RunContext
from tulip_actors.core.runs import Paused, ToolFinished
from tulip_actors.core.state import AgentState, ToolExecution
from tulip_actors.loop.nodes import Setup
from tulip_actors.memory.fold import Reply, result_message

CANCELLED = "cancelled before it ended; its effect may have happened"


@dataclass(slots=True)
class Slot:
    """One call of the turn: what was asked, what goes to the executor, what came back.

    A call that is `refused` is in the conversation, but counts for nothing: it never ran. One that
    is `waiting` is not to run before every question is answered; `replies` is what was said to its
    own. `adopted` names the executor to which it was submitted before the run was lost, and `lost`
    counts how often it went with its executor. `followers` share the execution of this one:
    duplicates of an idempotent call within the turn. What one of these asks for, it `shares`.
    """

    key: CallKey
    call: ToolCall
    request: ToolRequest | None = None
    execution: ToolExecution | None = None
    announced: bool = False
    submitted: bool = False
    refused: bool = False
    waiting: bool = False
    followers: tuple[Slot, ...] = ()
    shares: ToolRequest | None = None
    replies: Sequence[Reply] = ()
    adopted: str | None = None
    lost: int = 0


@dataclass(slots=True)
class Turn:
    """The calls of one turn, and what came up meanwhile: children, questions, a hook's failure.

    `told` are children that were said to begin before the run was lost, and not to end.
    """

    setup: Setup
    state: AgentState
    ctx: RunContext
    slots: list[Slot]
    children: dict[CallKey, ToolRequest] = field(default_factory=dict)
    told: dict[tuple[str | None, str], ToolStartEvent] = field(default_factory=dict)
    paused: list[InterruptEvent] = field(default_factory=list)
    failure: Exception | None = None

    @classmethod
    def of(cls, setup: Setup, state: AgentState, ctx: RunContext) -> Turn:
        """The calls of the last message."""
        run_id, turn = ctx.run_id, state.iteration
        calls = enumerate(state.messages[-1].tool_calls)
        return cls(
            setup, state, ctx, [Slot(CallKey(run_id, turn, slot), call) for slot, call in calls]
        )


def announce(turn: Turn, slots: Iterable[Slot]) -> None:
    """Say that calls begin, once for each."""
    for slot in slots:
        if not slot.announced:
            slot.announced = True
            turn.ctx.emit(started(slot.request or slot.shares or slot.call))


def keep(turn: Turn, slot: Slot, outcome: ToolOutcome) -> ToolExecution:
    """The one result of a call: kept, recorded, announced."""
    call, ctx = slot.call, turn.ctx
    stamp = run_id, _, at = ctx.stamp()
    slot.execution = execution = ToolExecution(
        call.name,
        call.id,
        (slot.request or call).arguments,
        outcome.result,
        outcome.error,
        outcome.duration_ms,
        timestamp=at,
        run_id=run_id,
    )
    ctx.record(ToolFinished(*stamp, slot.key, execution, not slot.refused))
    ctx.emit(completed(call.name, call.id, outcome))
    return execution


def serve(turn: Turn, slot: Slot, request: ToolRequest, known: ToolExecution) -> None:
    """Give a call the result of another one: both events, no time, no body."""
    call, ctx = slot.call, turn.ctx
    if not slot.announced:
        slot.announced = True
        ctx.emit(started(request))
    stamp = run_id, _, at = ctx.stamp()
    slot.execution = replace(
        known,
        tool_call_id=call.id,
        duration_ms=0.0,
        timestamp=at,
        idempotent_cache_hit=known.success,
        run_id=run_id,
    )
    ctx.record(ToolFinished(*stamp, slot.key, slot.execution, not slot.refused))
    ctx.emit(completed(call.name, call.id, ToolOutcome(result=known.result, error=known.error)))


def close_open(turn: Turn, reason: str) -> None:
    """Give every call that has none a result, so that no start lacks its complete."""
    announce(turn, [slot for slot in turn.slots if slot.request is not None])
    close_children(turn)
    closed = ToolOutcome(error=reason, error_type="cancelled")
    for slot in turn.slots:
        if slot.execution is None:
            slot.refused = not slot.submitted  # it never ran, and counts for nothing
            announce(turn, (slot,))
            keep(turn, slot, closed)


def child_begins(turn: Turn, child: ToolRequest) -> None:
    """A tool makes a call of its own. One that was told of before the run was lost is not again."""
    known = (child.parent_call_id, child.tool_call_id)
    if turn.told.pop(known, None) is None and not turn.ctx.has_told_end(known[1], known[0]):
        turn.ctx.emit(started(child))
    turn.children[child.key] = child


def child_ends(turn: Turn, key: CallKey, outcome: ToolOutcome) -> None:
    """A call made by a tool has ended."""
    child = turn.children.pop(key, None)
    if child is None or turn.ctx.has_told_end(child.tool_call_id, child.parent_call_id):
        return
    turn.ctx.emit(completed(child.tool_name, child.tool_call_id, outcome, child.parent_call_id))


def close_children(turn: Turn) -> None:
    """Announce the end of children whose own end never came: lost with their executor."""
    if not turn.children and not turn.told:
        return
    closed = ToolOutcome(error=CANCELLED, error_type="cancelled")
    open_: list[ToolRequest | ToolStartEvent] = [*turn.children.values(), *turn.told.values()]
    for child in open_:
        if not turn.ctx.has_told_end(child.tool_call_id, child.parent_call_id):
            end = completed(child.tool_name, child.tool_call_id, closed, child.parent_call_id)
            turn.ctx.emit(end)
    turn.children.clear()
    turn.told.clear()


def with_results(turn: Turn) -> AgentState:
    """The state with the turn's results, in call order."""
    executions = [
        slot.execution for slot in turn.slots if slot.execution is not None and not slot.refused
    ]
    messages = [result_message(slot.call, slot.execution) for slot in turn.slots]
    return turn.state.with_results(executions, messages)


def started(asked: ToolRequest | ToolCall) -> ToolStartEvent:
    """The event of a call that begins; a call that is refused has no request."""
    if isinstance(asked, ToolCall):
        return ToolStartEvent(
            tool_name=asked.name, tool_call_id=asked.id, arguments=asked.arguments
        )
    return ToolStartEvent(
        tool_name=asked.tool_name,
        tool_call_id=asked.tool_call_id,
        arguments=asked.arguments,
        parent_call_id=asked.parent_call_id,
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


def asked(paused: Paused) -> InterruptEvent:
    """The event of a call that asks a human."""
    request = paused.request
    return InterruptEvent(
        question=request.question,
        options=request.options,
        interrupt_id=paused.interrupt_id,
        metadata=request.metadata,
    )
