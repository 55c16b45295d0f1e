"""Execute: make the calls the model asked for, all at once, and give each exactly one result.

Per call: admission (`admit`), ToolStartEvent, approval if its tool requires one (`hold`), body,
after-hooks, record, ToolCompleteEvent. A call that is refused, or served from an earlier execution,
emits both events too. The intents are stored before anything is submitted; results are put into the
state in call order, whatever order they came in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from tulip_actors.core.calls import (
    CallFinished,
    CallKey,
    CallLost,
    CallSubmitted,
    ToolOutcome,
    ToolRequest,
)
from tulip_actors.core.events import InterruptEvent, ToolStartEvent
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
    Turn,
    announce,
    close_children,
    close_open,
    completed,
    keep,
    serve,
    started,
    with_results,
)
from tulip_actors.memory.fold import PendingTurn, Reply
from tulip_actors.tools.executor import find_matching_execution
from tulip_actors.tools.invoke import result_text

MAX_RETRIES = 5
"""How often a hook may have one call run again."""

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
    turn = Turn(setup, state, ctx, state.messages[-1].tool_calls)
    try:
        if pending is not None:
            _restore(turn, pending)
        for slots in _waves(turn):
            requests = await _admit(turn, slots)
            if requests:
                await _store_intents(turn, requests)
                announce(turn, requests)
                await _follow(turn, _free(turn, requests))
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
    for slot, finished in pending.executions.items():
        turn.executions[slot] = finished.execution
        if not finished.is_counted:
            turn.refused.add(slot)
    turn.paused.extend(_asked(paused) for paused in pending.open.values())
    asking = {paused.key.slot for paused in pending.open.values()}
    sharing = _sharing(turn, pending)
    turn.announced.update(CallKey(turn.ctx.run_id, turn.state.iteration, slot) for slot in sharing)
    turn.waiting |= (asking | sharing | set(pending.replies)) if asking else set()
    turn.replies.update(pending.replies)
    for slot, replies in pending.replies.items():
        if slot not in turn.executions and slot not in turn.waiting:
            intent = pending.intents[slot]
            turn.requests[intent.key] = _asked_again(turn, intent, replies)
            turn.announced.add(intent.key)


def _sharing(turn: Turn, pending: PendingTurn) -> set[int]:
    """The slots of a turn that paused which wait for the execution of a call that asked."""
    if not pending.open and not pending.replies:
        return set()
    return set(range(len(turn.calls))) - set(pending.executions) - set(pending.intents)


def _asked_again(turn: Turn, intent: Intent, replies: Sequence[Reply]) -> ToolRequest:
    tool = turn.setup.config.tools[intent.tool_name]
    request = request_for(
        turn.setup,
        turn.state,
        turn.ctx,
        intent.key,
        tool,
        intent.tool_call_id,
        intent.arguments,
    )
    return request._replace(
        attempt=1 + sum(reply.paused.hold != "approval" for reply in replies),
        answers=tuple(reply.response for reply in replies if reply.paused.hold is None),
    )


def _waves(turn: Turn) -> Iterator[Sequence[int]]:
    """The slots whose calls run together: all, or one after the other."""
    slots = range(len(turn.calls))
    if turn.setup.config.tool_execution == "sequential":
        yield from ([slot] for slot in slots)
    else:
        yield slots


async def _admit(turn: Turn, slots: Sequence[int]) -> list[ToolRequest]:
    """Check calls; returns those to be made. What is refused or known has its result at once."""
    made: list[ToolRequest] = []
    for slot in slots:
        if slot in turn.executions or slot in turn.waiting:
            continue
        restored = turn.requests.get(CallKey(turn.ctx.run_id, turn.state.iteration, slot))
        request = restored or await _admitted(turn, slot)
        if request is not None:
            turn.requests[request.key] = request
            made.append(request)
    return made


async def _admitted(turn: Turn, slot: int) -> ToolRequest | None:
    """The request of one call, None if its result is there already, or will be another's."""
    ctx, call = turn.ctx, turn.calls[slot]
    try:
        request = await admit(turn.setup, turn.state, ctx, slot, call)
    except ToolError as error:
        ctx.emit(
            ToolStartEvent(tool_name=call.name, tool_call_id=call.id, arguments=call.arguments)
        )
        turn.refused.add(slot)
        keep(turn, slot, call, ToolOutcome(error=error.message, error_type=error.code))
        return None
    if not turn.setup.config.tools[call.name].idempotent:
        return request
    known = None
    for executions in (list(turn.executions.values()), turn.state.tool_executions):
        known = known or find_matching_execution(executions, call.name, request.arguments)
    if known is not None:
        serve(turn, slot, request, known)
        return None
    leader = _leader(turn, request)
    if leader is None:
        return request
    turn.followers.setdefault(leader, []).append(slot)
    announce(turn, [request])
    return None


def _leader(turn: Turn, request: ToolRequest) -> CallKey | None:
    """The call of this turn, still to be made, whose execution an equal one shares."""
    wanted = canonical(request.arguments)
    for other in turn.requests.values():
        is_open = other.key.slot not in turn.executions
        is_same_tool = other.tool_name == request.tool_name
        if is_open and is_same_tool and canonical(other.arguments) == wanted:
            return other.key
    return None


async def _store_intents(turn: Turn, requests: Sequence[ToolRequest]) -> None:
    ctx = turn.ctx
    intents = tuple(Intent(r.key, r.tool_name, r.tool_call_id, r.arguments) for r in requests)
    executor = await ctx.executor_id()
    ctx.record(ToolIntents(*ctx.stamp(), intents, executor))
    await ctx.durable()
    await ctx.reach("intents_stored")


def _free(turn: Turn, requests: Sequence[ToolRequest]) -> Sequence[ToolRequest]:
    """Those that may run now. The others wait for a human, or have their result by what he said."""
    free: list[ToolRequest] = []
    for request in requests:
        replies = turn.replies.get(request.key.slot, [])
        needs_approval = turn.setup.config.tools[request.tool_name].requires_approval
        closed = closed_by(replies[-1]) if replies else None
        if closed is not None:
            _end(turn, request, closed, is_counted=replies[-1].paused.hold != "approval")
        elif needs_approval and all(reply.paused.hold != "approval" for reply in replies):
            _pause(turn, request, approval_of(request), "approval")
        else:
            free.append(request)
    return free


async def _follow(turn: Turn, requests: Sequence[ToolRequest]) -> None:
    """Submit calls, announce what becomes of them and of their children, run again what hooks want.

    Raises what a hook raised, once every call that had started has ended.
    """
    while requests:
        again: list[tuple[ToolRequest, ToolOutcome]] = []
        turn.submitted.update(request.key for request in requests)
        async with turn.ctx.call_tools(requests) as updates:
            async for update in updates:
                match update:
                    case CallSubmitted(child):
                        turn.children[child.key] = child
                        turn.ctx.emit(started(child))
                    case CallFinished(key, outcome):
                        again += await _settle(turn, key, outcome)
                    case CallLost():
                        again += await _lost(turn, update)
        close_children(turn)
        if turn.failure is not None:  # the run ends: nothing is run again
            for request, outcome in again:
                keep(turn, request.key.slot, request, outcome)
            again = []
        requests = [request for request, _ in again]
    if turn.failure is not None:
        raise turn.failure


async def _lost(turn: Turn, lost: CallLost) -> list[tuple[ToolRequest, ToolOutcome]]:
    """The worker of a call died: a human is asked, if its tool says so, or the model is told."""
    request = turn.requests.get(lost.key)
    if request is not None and request.policy.on_unknown == "ask" and lost.started:
        _pause(turn, request, repetition_of(request, lost.reason), "lost")
        return []
    error = (LOST if lost.started else NEVER_BEGAN).format(reason=lost.reason)
    return await _settle(turn, lost.key, ToolOutcome(error=error, error_type=ToolLost.code))


async def _settle(
    turn: Turn, key: CallKey, outcome: ToolOutcome
) -> list[tuple[ToolRequest, ToolOutcome]]:
    """A call has ended. Returns the request to be made again, if a hook wants that."""
    if key in turn.children:
        child = turn.children.pop(key)
        turn.ctx.emit(completed(child.tool_name, child.tool_call_id, outcome, child.parent_call_id))
        return []
    request = turn.requests.get(key)
    if request is None or key.slot in turn.executions:
        return []
    if outcome.interrupt is not None:
        _pause(turn, request, outcome.interrupt)
        return []
    if turn.setup.hooks.steers_tools and turn.failure is None:
        try:
            outcome, retry = await _looked_at(turn, request, outcome)
        except Exception as raised:  # it ends the run, after the calls that are under way
            turn.failure = raised
        else:
            if retry:
                turn.requests[key] = request._replace(attempt=request.attempt + 1)
                return [(turn.requests[key], outcome)]
    _end(turn, request, outcome)
    return []


def _end(
    turn: Turn, request: ToolRequest, outcome: ToolOutcome, *, is_counted: bool = True
) -> None:
    """The result of a call, and of those that share its execution."""
    slot, followers = request.key.slot, turn.followers.pop(request.key, [])
    if not is_counted:
        turn.refused.update((slot, *followers))
    keep(turn, slot, request, outcome)
    for follower in followers:
        serve(turn, follower, request, turn.executions[slot])


def _pause(
    turn: Turn, request: ToolRequest, asked: InterruptRequest, hold: Hold | None = None
) -> None:
    """A call waits for a human: recorded and announced; it has no result yet."""
    ctx, key = turn.ctx, request.key
    asked_before = len(turn.replies.get(key.slot, ()))
    interrupt_id = f"{ctx.run_id}/{key.turn}.{key.slot}/{asked_before}"
    paused = Paused(*ctx.stamp(), key, interrupt_id, asked, hold)
    ctx.record(paused)
    event = _asked(paused)
    turn.paused.append(event)
    ctx.emit(event)


def _asked(paused: Paused) -> InterruptEvent:
    asked = paused.request
    return InterruptEvent(
        question=asked.question,
        options=asked.options,
        interrupt_id=paused.interrupt_id,
        metadata=asked.metadata,
    )


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


def _tries(request: ToolRequest) -> int:
    """How often the body ran to its end, this time included; where it asked it did not."""
    return request.attempt - len(request.answers)
