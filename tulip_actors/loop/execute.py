"""Execute: make the calls the model asked for, all at once, and give each exactly one result.

Per call: admission (`admit`), ToolStartEvent, approval if its tool requires one (`hold`), body,
after-hooks, record, ToolCompleteEvent. A call that is refused, or served from an earlier execution,
emits both events too. The intents are stored before anything is submitted; results are put into the
state in call order, whatever order they came in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tulip_actors.core.calls import (
    CallFinished,
    CallKey,
    CallLost,
    CallSubmitted,
    ToolOutcome,
    ToolRequest,
)
from tulip_actors.core.frozen import canonical
from tulip_actors.core.interrupt import InterruptRequest
from tulip_actors.core.ports import RunContext
from tulip_actors.core.runs import Hold, Intent, Paused, ToolIntents
from tulip_actors.core.state import AgentState
from tulip_actors.errors import ToolError, ToolLost
from tulip_actors.hooks.provider import AfterToolCallEvent
from tulip_actors.loop.admit import admit, request_for
from tulip_actors.loop.hold import LOST, NEVER_BEGAN, approval_of, closed_by, repetition_of
from tulip_actors.loop.nodes import HookRaised, NodeTorn, Setup, TurnPaused
from tulip_actors.loop.turn import (
    CANCELLED,
    Slot,
    Turn,
    announce,
    asked,
    child_begins,
    child_ends,
    close_children,
    close_open,
    keep,
    serve,
    with_results,
)
from tulip_actors.memory.fold import PendingTurn, Reply
from tulip_actors.tools.executor import find_matching_execution
from tulip_actors.tools.invoke import result_text

MAX_RETRIES = 5
"""How often a hook may have one call run again."""
LOST_TRIES = 3
"""How often a call is made again that was lost with its executor, where its tool does not say."""

NOT_RUN = "not run: the run ended before"


async def execute(
    setup: Setup, state: AgentState, ctx: RunContext, pending: PendingTurn | None = None
) -> AgentState:
    """The state with one result per call of the last message, in call order.

    With `pending` the turn is completed: finished calls keep their results, and once no question
    is open, those that asked a human run again with the answers. Raises `TurnPaused` when calls
    ask a human; their siblings have ended and are recorded. Raises `NodeTorn` with the state so
    far when the run is cancelled meanwhile, or when a hook raises: calls that had not ended are
    closed with an error.
    """
    turn = Turn.of(setup, state, ctx)
    try:
        if pending is not None:
            _restore(turn, pending)
        for slots in _waves(turn):
            admitted = await _admit(turn, slots)
            if admitted:
                await _store_intents(turn, [slot for slot in admitted if slot.adopted is None])
                await _follow(turn, _free(turn, admitted))
    except TurnPaused:
        raise
    except (asyncio.CancelledError, Exception) as raised:
        cause = raised.cause if isinstance(raised, HookRaised) else raised
        close_open(turn, CANCELLED if isinstance(cause, asyncio.CancelledError) else NOT_RUN)
        raise NodeTorn(with_results(turn), cause) from None
    if turn.paused:
        raise TurnPaused(turn.paused)
    return with_results(turn)


def _restore(turn: Turn, pending: PendingTurn) -> None:
    """Take over what is recorded of the turn: results, open questions, and calls that asked."""
    turn.told = {(one.parent_call_id, one.tool_call_id): one for one in turn.ctx.told_calls}
    turn.paused.extend(asked(paused) for paused in pending.open.values())
    asking = {paused.key.slot for paused in pending.open.values()}
    has_paused = bool(pending.open or pending.replies)
    for position, slot in enumerate(turn.slots):
        finished = pending.executions.get(position)
        if finished is not None:
            slot.execution, slot.refused = finished.execution, not finished.is_counted
            continue
        slot.replies = pending.replies.get(position, ())
        shares = has_paused and position not in pending.intents  # the execution of one that asked
        slot.waiting = bool(asking) and (position in asking or shares or bool(slot.replies))
        slot.announced = shares
        if slot.waiting or position not in pending.intents:
            continue
        slot.request = _asked_again(turn, pending.intents[position], slot.replies)
        slot.announced = True
        if turn.ctx.request.continued:
            slot.adopted = pending.executors.get(position)


def _asked_again(turn: Turn, intent: Intent, replies: Sequence[Reply]) -> ToolRequest:
    tool = turn.setup.config.tools[intent.tool_name]
    request = request_for(turn, intent.key, tool, intent.tool_call_id, intent.arguments)
    return request._replace(
        attempt=1 + sum(reply.paused.hold != "approval" for reply in replies),
        answers=tuple(reply.response for reply in replies if reply.paused.hold is None),
    )


def _waves(turn: Turn) -> Sequence[Sequence[Slot]]:
    """The calls that run together: all, or one after the other."""
    if turn.setup.config.tool_execution == "sequential":
        return [[slot] for slot in turn.slots]
    return [turn.slots]


async def _admit(turn: Turn, slots: Sequence[Slot]) -> list[Slot]:
    """Check calls; returns those to be made. What is refused or known has its result at once."""
    made: list[Slot] = []
    for slot in slots:
        if slot.execution is None and not slot.waiting:
            if slot.request is None:
                slot.request = await _admitted(turn, slot)
            if slot.request is not None:
                made.append(slot)
    return made


async def _admitted(turn: Turn, slot: Slot) -> ToolRequest | None:
    """The request of one call, None if its result is there already, or will be another's."""
    call = slot.call
    try:
        tool = turn.setup.config.tools[call.name]
        request = await admit(turn, slot, tool)
    except ToolError as error:
        announce(turn, (slot,))
        slot.refused = True
        keep(turn, slot, ToolOutcome(error=error.message, error_type=error.code))
        return None
    if not tool.idempotent:
        return request
    known = None
    of_turn = [one.execution for one in turn.slots if one.execution is not None]
    for executions in (of_turn, turn.state.tool_executions):
        known = known or find_matching_execution(executions, call.name, request.arguments)
    if known is not None:
        serve(turn, slot, request, known)
        return None
    leader = _leader(turn, request)
    if leader is None:
        return request
    leader.followers += (slot,)
    slot.shares = request
    slot.announced |= leader.adopted is not None  # told of with it, before the run was lost
    if leader.announced:  # else it is told of with it
        announce(turn, (slot,))
    return None


def _leader(turn: Turn, request: ToolRequest) -> Slot | None:
    """The call of this turn, still to be made, whose execution an equal one shares."""
    wanted = canonical(request.arguments)
    for slot in turn.slots:
        other = slot.request
        if other is None or slot.execution is not None or other.tool_name != request.tool_name:
            continue
        if canonical(other.arguments) == wanted:
            return slot
    return None


async def _store_intents(turn: Turn, slots: Sequence[Slot]) -> None:
    """Write down that calls are about to be made, and say so. Those that share the execution of one
    are told of with it."""
    if not slots:
        return
    ctx = turn.ctx
    executor = await ctx.executor_id()
    requests = [slot.request for slot in slots if slot.request is not None]
    tools = turn.setup.config.tools
    intents = [
        Intent(r.key, r.tool_name, r.tool_call_id, r.arguments, tools[r.tool_name].schema_hash)
        for r in requests
    ]
    ctx.record(ToolIntents(*ctx.stamp(), tuple(intents), executor))
    announce(turn, [one for slot in slots for one in (slot, *slot.followers)])
    await ctx.durable()
    await ctx.reach("intents_stored")


def _free(turn: Turn, slots: Sequence[Slot]) -> list[Slot]:
    """Those that may run now. The others wait for a human, or have their result by what he said."""
    free: list[Slot] = []
    for slot in slots:
        replies = slot.replies
        needs_approval = turn.setup.config.tools[slot.call.name].requires_approval
        closed = closed_by(replies[-1]) if replies else None
        if closed is not None:
            _end(turn, slot, closed, is_counted=replies[-1].paused.hold != "approval")
        elif needs_approval and all(reply.paused.hold != "approval" for reply in replies):
            assert slot.request is not None, "it was admitted"
            _pause(turn, slot, approval_of(slot.request), "approval")
        else:
            free.append(slot)
    return free


async def _follow(turn: Turn, slots: Sequence[Slot]) -> None:
    """Submit calls, announce what becomes of them and of their children, run again what hooks want.

    Raises what a hook raised, once every call that had started has ended.
    """
    while slots:
        again: list[tuple[Slot, ToolOutcome]] = []
        requests: list[ToolRequest] = []
        adopted: dict[CallKey, str] = {}
        for slot in slots:
            assert slot.request is not None, "it was admitted"
            slot.submitted = True
            requests.append(slot.request)
            if slot.adopted is not None:
                adopted[slot.key], slot.adopted = slot.adopted, None
        async with turn.ctx.call_tools(requests, adopted) as updates:
            async for update in updates:
                match update:
                    case CallFinished(key, outcome):
                        await _settle(turn, key, outcome, again)
                    case CallSubmitted(child):
                        child_begins(turn, child)
                    case CallLost():
                        await _lost(turn, update, again)
        close_children(turn)
        if turn.failure is not None:  # the run ends: nothing is run again
            for slot, outcome in again:
                keep(turn, slot, outcome)
            raise turn.failure
        slots = [slot for slot, _ in again]
        await _store_intents(turn, [slot for slot in slots if slot.lost])


async def _lost(turn: Turn, lost: CallLost, again: list[tuple[Slot, ToolOutcome]]) -> None:
    """The worker of a call died: a human is asked, if its tool says so, or the model is told. One
    that went with its executor is made again if its tool allows that."""
    slot = turn.slots[lost.key.slot]
    request = None if lost.key.index else slot.request
    if request is not None and request.policy.on_unknown == "ask" and lost.started:
        _pause(turn, slot, repetition_of(request, lost.reason), "lost")
        return
    if request is not None and lost.with_executor and _may_repeat(request, slot):
        slot.request, slot.lost = request._replace(attempt=request.attempt + 1), slot.lost + 1
        again.append((slot, ToolOutcome(error=lost.reason, error_type=ToolLost.code)))
        return
    error = (LOST if lost.started else NEVER_BEGAN).format(reason=lost.reason)
    await _settle(turn, lost.key, ToolOutcome(error=error, error_type=ToolLost.code), again)


async def _settle(
    turn: Turn, key: CallKey, outcome: ToolOutcome, again: list[tuple[Slot, ToolOutcome]]
) -> None:
    """A call has ended. It is put among those to be run again if a hook wants that."""
    if key.index:
        child_ends(turn, key, outcome)
        return
    slot = turn.slots[key.slot]
    request = slot.request
    if request is None or slot.execution is not None:
        return
    if outcome.interrupt is not None:
        _pause(turn, slot, outcome.interrupt)
        return
    if turn.setup.hooks.steers_tools and turn.failure is None:
        try:
            outcome, retry = await _looked_at(turn, request, outcome)
        except Exception as raised:  # it ends the run, after the calls that are under way
            turn.failure = raised
        else:
            if retry:
                slot.request = request._replace(attempt=request.attempt + 1)
                again.append((slot, outcome))
                return
    _end(turn, slot, outcome)


def _end(turn: Turn, slot: Slot, outcome: ToolOutcome, *, is_counted: bool = True) -> None:
    """The result of a call, and of those that share its execution."""
    for one in (slot, *slot.followers):
        one.refused = not is_counted
    assert slot.request is not None, "it was admitted"
    execution = keep(turn, slot, outcome)
    for follower in slot.followers:
        serve(turn, follower, slot.request, execution)


def _pause(turn: Turn, slot: Slot, question: InterruptRequest, hold: Hold | None = None) -> None:
    """A call waits for a human: recorded and announced; it has no result yet."""
    ctx, key = turn.ctx, slot.key
    interrupt_id = f"{ctx.run_id}/{key.turn}.{key.slot}/{len(slot.replies)}"
    paused = Paused(*ctx.stamp(), key, interrupt_id, question, hold)
    ctx.record(paused)
    event = asked(paused)
    turn.paused.append(event)
    ctx.emit(event)


async def _looked_at(
    turn: Turn, request: ToolRequest, outcome: ToolOutcome
) -> tuple[ToolOutcome, bool]:
    """The outcome as the after-hooks leave it, and whether the call is to be run again."""
    event = AfterToolCallEvent(
        tool_name=request.tool_name,
        tool_call_id=request.tool_call_id,
        arguments=request.arguments,
        result=outcome.result,
        error=outcome.error,
        duration_ms=outcome.duration_ms,
        attempt=_tries(request),
        iteration=turn.state.iteration,
        state=turn.state,
    )
    await turn.setup.hooks.after_tool_call(event)
    if event.result is not outcome.result:
        text = result_text(event.result)
        outcome = outcome._replace(result=text, error=None, error_type=None)
    return outcome, event.retry and _tries(request) <= MAX_RETRIES


def _may_repeat(request: ToolRequest, slot: Slot) -> bool:
    """Whether a call whose outcome is unknown may be made again."""
    policy = request.policy
    return policy.on_unknown == "retry" and slot.lost < (policy.retries or LOST_TRIES)


def _tries(request: ToolRequest) -> int:
    """How often the body ran to its end, this time included; where it asked it did not."""
    return request.attempt - len(request.answers)
