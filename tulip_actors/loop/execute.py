"""Execute: make the calls the model asked for, all at once, and give each exactly one result.

Per call: parse, validate, ToolStartEvent, body, record, ToolCompleteEvent. A call that is refused
emits both events too. The intents are stored before anything is submitted; results are put into
the state in call order, whatever order they came in.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field

from tulip_actors.core.calls import (
    CallFinished,
    CallKey,
    CallLost,
    CallScope,
    CallSubmitted,
    ToolOutcome,
    ToolRequest,
)
from tulip_actors.core.events import ToolCompleteEvent, ToolStartEvent
from tulip_actors.core.messages import Message, ToolCall, ToolResult
from tulip_actors.core.ports import RunContext
from tulip_actors.core.runs import Intent, ToolFinished, ToolIntents
from tulip_actors.core.state import AgentState, ToolExecution
from tulip_actors.errors import ToolError
from tulip_actors.loop.nodes import NodeTorn, Setup

LOST = "the worker died while it ran ({reason}); its effect may have happened"
CANCELLED = "cancelled before it ended; its effect may have happened"


@dataclass(slots=True)
class Turn:
    """The calls of one turn: what was asked, what goes to the executor, what came back."""

    setup: Setup
    state: AgentState
    ctx: RunContext
    calls: tuple[ToolCall, ...]
    requests: dict[CallKey, ToolRequest] = field(default_factory=dict)
    children: dict[CallKey, ToolRequest] = field(default_factory=dict)
    outcomes: dict[int, ToolOutcome] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    announced: set[CallKey] = field(default_factory=set)


async def execute(setup: Setup, state: AgentState, ctx: RunContext) -> AgentState:
    """The state with one result per call of the last message, in call order.

    Raises `NodeTorn` with the same when the run is cancelled meanwhile: calls that had not ended
    are closed with an error.
    """
    turn = Turn(setup, state, ctx, state.messages[-1].tool_calls)
    try:
        await _announce(turn)
        if turn.requests:
            await _follow(turn)
    except asyncio.CancelledError:
        _close_open(turn)
        raise NodeTorn(_with_results(turn)) from None
    return _with_results(turn)


async def _announce(turn: Turn) -> None:
    """Check every call, store the intents of those that will run, then announce them all."""
    ctx = turn.ctx
    for slot, call in enumerate(turn.calls):
        try:
            request = _request(turn, slot, call)
        except ToolError as error:
            ctx.emit(
                ToolStartEvent(tool_name=call.name, tool_call_id=call.id, arguments=call.arguments)
            )
            turn.refused.add(slot)
            _finish(turn, slot, ToolOutcome(error=error.message, error_type=error.code))
        else:
            turn.requests[request.key] = request
    if turn.requests:
        intents = tuple(
            Intent(r.key, r.tool_name, r.tool_call_id, r.arguments) for r in turn.requests.values()
        )
        executor = await ctx.executor_id()
        ctx.record(ToolIntents(ctx.run_id, ctx.next_seq, ctx.clock.now(), intents, executor))
        await ctx.durable()
        await ctx.reach("intents_stored")
    _announce_rest(turn)


def _announce_rest(turn: Turn) -> None:
    for key, request in turn.requests.items():
        if key not in turn.announced:
            turn.announced.add(key)
            turn.ctx.emit(_start(request))


def _request(turn: Turn, slot: int, call: ToolCall) -> ToolRequest:
    """The call as the executor takes it. Raises `ToolError` with a text for the model."""
    tool = turn.setup.config.tools[call.name]
    if call.malformed is not None:
        raise ToolError(
            f"the arguments of {call.name} are not a JSON object: {call.malformed:.200}. "
            f"Send an object with: {', '.join(tool.signature.names) or 'nothing in it'}"
        )
    ctx, state = turn.ctx, turn.state
    return ToolRequest(
        key=CallKey(ctx.run_id, state.iteration, slot),
        tool_name=tool.name,
        tool_call_id=call.id,
        arguments=tool.validate(call.arguments),
        scope=CallScope(
            run_id=ctx.run_id,
            thread_id=ctx.thread_id,
            agent=turn.setup.config.name,
            agent_id=ctx.agent_id,
            iteration=state.iteration,
            metadata=state.metadata,
        ),
        toolset=turn.setup.toolset,
        demand=tool.demand,
    )


async def _follow(turn: Turn) -> None:
    """Submit the calls and announce what becomes of them and of their children, as it comes."""
    async with aclosing(turn.ctx.call_tools(list(turn.requests.values()))) as updates:
        async for update in updates:
            match update:
                case CallSubmitted(child):
                    turn.children[child.key] = child
                    turn.ctx.emit(_start(child))
                case CallFinished(key, outcome):
                    _settle(turn, key, outcome)
                case CallLost(key, reason):
                    text = LOST.format(reason=reason)
                    _settle(turn, key, ToolOutcome(error=text, error_type="tool_lost"))
    _close_children(turn)


def _settle(turn: Turn, key: CallKey, outcome: ToolOutcome) -> None:
    """A call has ended: the model's own is finished, a child's end is announced."""
    if key in turn.requests:
        if key.slot not in turn.outcomes:
            _finish(turn, key.slot, outcome)
    elif key in turn.children:
        child = turn.children.pop(key)
        turn.ctx.emit(_complete(child.tool_name, child.tool_call_id, outcome, child.parent_call_id))


def _finish(turn: Turn, slot: int, outcome: ToolOutcome) -> None:
    """The one result of a call: kept, recorded, announced."""
    ctx, call = turn.ctx, turn.calls[slot]
    turn.outcomes[slot] = outcome
    key = CallKey(ctx.run_id, turn.state.iteration, slot)
    ctx.record(ToolFinished(ctx.run_id, ctx.next_seq, ctx.clock.now(), key, _execution(turn, slot)))
    ctx.emit(_complete(call.name, call.id, outcome))


def _close_open(turn: Turn) -> None:
    """Give every call that has none a result, so that no start lacks its complete."""
    closed = ToolOutcome(error=CANCELLED, error_type="cancelled")
    _announce_rest(turn)
    _close_children(turn)
    for slot in range(len(turn.calls)):
        if slot not in turn.outcomes:
            _finish(turn, slot, closed)


def _close_children(turn: Turn) -> None:
    """Announce the end of children whose own end never came: lost with their executor."""
    for key in list(turn.children):
        _settle(turn, key, ToolOutcome(error=CANCELLED, error_type="cancelled"))


def _with_results(turn: Turn) -> AgentState:
    state = turn.state
    messages: list[Message] = []
    for slot, call in enumerate(turn.calls):
        outcome = turn.outcomes[slot]
        if slot not in turn.refused:
            state = state.with_tool_execution(_execution(turn, slot))
        content = outcome.result if outcome.error is None else f"Error: {outcome.error}"
        result = ToolResult(call.id, call.name, content or "", is_error=outcome.error is not None)
        messages.append(Message.tool(result))
    return state.with_messages(*messages)


def _execution(turn: Turn, slot: int) -> ToolExecution:
    call, outcome = turn.calls[slot], turn.outcomes[slot]
    key = CallKey(turn.ctx.run_id, turn.state.iteration, slot)
    request = turn.requests.get(key)
    return ToolExecution(
        tool_name=call.name,
        tool_call_id=call.id,
        arguments=request.arguments if request else call.arguments,
        result=outcome.result,
        error=outcome.error,
        duration_ms=outcome.duration_ms,
        timestamp=turn.ctx.clock.now(),
        run_id=turn.ctx.run_id,
    )


def _start(request: ToolRequest) -> ToolStartEvent:
    return ToolStartEvent(
        tool_name=request.tool_name,
        tool_call_id=request.tool_call_id,
        arguments=request.arguments,
        parent_call_id=request.parent_call_id,
    )


def _complete(
    name: str, call_id: str, outcome: ToolOutcome, parent_call_id: str | None = None
) -> ToolCompleteEvent:
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
