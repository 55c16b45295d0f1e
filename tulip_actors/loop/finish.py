"""Terminate: what ends a run, and the one way out.

`ending_due` is asked at the top of every turn, in this order: cancel, `termination`, the built-in
caps, a tool loop. The cap on turns is followed by `summarise`. `completion` is asked after a turn.
`finish` tells the hooks, writes the final record and emits the TerminateEvent, whatever ended the
run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from tulip_actors.core.events import InterruptEvent, TerminateEvent
from tulip_actors.core.frozen import canonical
from tulip_actors.core.messages import Message, Role, ToolCall
from tulip_actors.core.ports import RunContext
from tulip_actors.core.runs import Added, RunEnded
from tulip_actors.core.state import AgentState
from tulip_actors.core.termination import (
    SUCCESSES,
    Ending,
    MaxIterations,
)
from tulip_actors.errors import RunCancelled
from tulip_actors.loop.config import AgentConfig, task_complete
from tulip_actors.loop.nodes import Setup, with_new_metadata
from tulip_actors.loop.think import answered, has_been_asked
from tulip_actors.memory.fold import SUMMARY, result_message

NATURAL_END = Ending("complete", "complete")
TERMINAL_TOOL = Ending("terminal_tool", "terminal_tool")
DECLARED_COMPLETE = Ending("complete", "complete", "task_complete")
TOOL_LOOP = Ending("tool_loop", "tool_loop")
CANCELLED = Ending("cancelled", "cancelled")
FAILED = Ending("error", "error")

_TOOL, _ASSISTANT = Role.TOOL, Role.ASSISTANT  # to look a member of an Enum up takes long

SUMMARY_PROMPT = (
    "You have used all the turns you have. Without calling any tool, give your final answer from "
    "what you know now, and say what is still open."
)


def ending_due(setup: Setup, state: AgentState, ctx: RunContext) -> Ending | None:
    """What ends the run before this turn, if anything does."""
    if ctx.cancel_requested:
        return CANCELLED
    if has_been_asked(state, ctx):  # goes on in mid-turn, and was judged when the turn began
        return None
    config = setup.config
    elapsed_s = ctx.elapsed_s
    if config.termination is not None:
        ending = config.termination.ending(state, elapsed_s=elapsed_s)
        if ending is not None:
            return ending
    for cap in setup.caps:
        ending = cap.ending(state, elapsed_s=elapsed_s)
        if ending is not None:
            return replace(ending, at_cap=isinstance(cap, MaxIterations))
    if config.completion_mode == "auto" and _repeats_itself(config, state):
        return TOOL_LOOP
    return None


def completion(setup: Setup, state: AgentState) -> Ending | None:
    """What ends the run after this turn: a terminal tool, or an answer that calls nothing."""
    terminal = setup.config.terminal_tools
    if terminal:
        done = {one.tool_name for one in state.executions_of_turn if one.success} & terminal
        if done:
            return DECLARED_COMPLETE if task_complete.__name__ in done else TERMINAL_TOOL
    spoke = state.messages[-1].role is _ASSISTANT
    return NATURAL_END if spoke and setup.config.completion_mode == "auto" else None


def interrupted(interrupts: tuple[InterruptEvent, ...]) -> Ending:
    """The end of a segment in which tools ask a human."""
    return Ending("interrupted", "interrupted", interrupts=interrupts)


async def summarise(setup: Setup, state: AgentState, ctx: RunContext, ending: Ending) -> AgentState:
    """At the built-in cap, the state with one last answer, made without tools; it is no turn."""
    if not ending.at_cap:
        return state
    request = Message.user(SUMMARY_PROMPT)
    last_two = list(islice(state.said_last(), 2))
    if request in last_two[1:]:  # a run that goes on has its answer already
        return state
    if request not in last_two:
        state = state.with_message(request)
        ctx.record(Added(*ctx.stamp(), (request,)))
    state, _ = await answered(setup, state, ctx, SUMMARY, ())
    return state


async def finish(
    setup: Setup,
    state: AgentState,
    ending: Ending | None,
    cause: BaseException | None,
    ctx: RunContext,
) -> tuple[AgentState, Ending]:
    """The final state, after the hooks, the last record and the TerminateEvent.

    The run came to an `ending` by itself, or was ended by a `cause`. Raises that cause, unless it
    was a cancel.
    """
    if ending is None or cause is not None:
        is_cancel = isinstance(cause, asyncio.CancelledError) or (
            isinstance(cause, RunCancelled) and cause.run_id == ctx.run_id
        )
        ending = CANCELLED if is_cancel else FAILED
    if ending.stop_reason != "interrupted":
        state = _answered(state)
    answer = _declared(state) if ending is DECLARED_COMPLETE else None
    if answer is not None:
        state = state.with_message(Message.assistant(answer))
    try:
        await setup.hooks.after_invocation(state, ending.stop_reason in SUCCESSES)
        ctx.raise_watcher_failure()
    except (asyncio.CancelledError, Exception) as raised:
        if cause is None:
            is_cancel = isinstance(raised, asyncio.CancelledError)
            ending, cause = (CANCELLED if is_cancel else FAILED), raised
    if setup.config.output_key is not None:
        ctx.set_metadata(setup.config.output_key, final_text(state))
    state = with_new_metadata(state, ctx)
    failure = cause if ending is FAILED else None
    error = None if failure is None else f"{type(failure).__name__}: {failure}"
    if error is not None:
        state = state.with_error(error)
    ctx.record(
        RunEnded(*ctx.stamp(), ending.stop_reason, ending.reason, state.iteration, answer, error)
    )
    ctx.terminate(
        TerminateEvent(
            reason=ending.reason,
            stop_reason=ending.stop_reason,
            condition=ending.condition,
            iterations_used=state.iteration,
            final_confidence=state.confidence,
            total_tool_calls=state.calls_made,
            final_message=final_text(state) or None,
            usage=state.usage,
        )
    )
    if failure is not None:
        raise failure
    return state, ending


def final_text(state: AgentState) -> str:
    """The assistant's last text in this run, empty if it never spoke."""
    spoken = (m.content for m in state.said_last() if m.role is _ASSISTANT and m.content)
    return next(spoken, "")


def _answered(state: AgentState) -> AgentState:
    """The state without a call that has no result, as its records will be read."""
    calls = state.messages[-1].tool_calls if state.messages else ()
    return state.with_messages(*(result_message(call, None) for call in calls))


def _declared(state: AgentState) -> str:
    """The summary that `task_complete` was called with."""
    results = (
        one.result
        for one in reversed(state.tool_executions)
        if one.tool_name == task_complete.__name__ and one.success
    )
    return next(results, None) or ""


def _repeats_itself(config: AgentConfig, state: AgentState) -> bool:
    """The same calls with the same arguments in each of the last `tool_loop_threshold` turns."""
    needed = config.tool_loop_threshold
    if state.iteration < needed:
        return False
    turns = _turns(state)
    calls, results = next(turns)
    if not calls:
        return False
    with_results = config.tool_loop_compare == "calls+results"
    for earlier, earlier_results in islice(turns, needed - 1):
        if not _same(calls, earlier) or (with_results and results != earlier_results):
            return False
    return True


def _same(calls: Sequence[ToolCall], others: Sequence[ToolCall]) -> bool:
    """Equal but for the calls' ids. Typed equality costs time, and most turns differ untyped."""
    if len(calls) != len(others):
        return False
    for a, b in zip(calls, others, strict=True):
        if a.arguments != b.arguments or a.name != b.name or a.malformed != b.malformed:
            return False
    pairs = zip(calls, others, strict=True)
    return all(canonical(a.arguments) == canonical(b.arguments) for a, b in pairs)


def _turns(state: AgentState) -> Iterator[tuple[Sequence[ToolCall], Sequence[str]]]:
    """What the turns of this run called and got, newest first."""
    results: list[str] = []
    for message in state.said_last():
        role = message.role
        if role is _TOOL:
            results.append(message.content)
        elif role is _ASSISTANT:
            yield message.tool_calls, results
            results = []
