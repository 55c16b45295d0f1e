"""Terminate: what ends a run, and the one way out.

`ending_due` is asked at the top of every turn, in this order: cancel, `termination`, the built-in
cap, which is followed by `summarise`. `finish` writes the final record and emits the
TerminateEvent, whatever ended the run.
"""

from __future__ import annotations

from dataclasses import replace

from tulip_actors.core.events import TerminateEvent
from tulip_actors.core.messages import Message, Role
from tulip_actors.core.ports import RunContext
from tulip_actors.core.runs import RunEnded
from tulip_actors.core.state import AgentState
from tulip_actors.core.termination import Ending, MaxIterations
from tulip_actors.loop.nodes import Setup

NATURAL_END = Ending("complete", "complete")
CANCELLED = Ending("cancelled", "cancelled")
FAILED = Ending("error", "error")

SUMMARY_PROMPT = (
    "You have used all the turns you have. Without calling any tool, give your final answer from "
    "what you know now, and say what is still open."
)


def ending_due(setup: Setup, state: AgentState, ctx: RunContext) -> Ending | None:
    """What ends the run before this turn, if anything does."""
    if ctx.cancel_requested:
        return CANCELLED
    condition = setup.config.termination
    if condition is not None:
        ending = condition.ending(state)
        if ending is not None:
            return ending
    capped = MaxIterations(setup.config.max_iterations).ending(state)
    return None if capped is None else replace(capped, at_cap=True)


async def summarise(setup: Setup, state: AgentState, ctx: RunContext) -> AgentState:
    """The state with one last answer, made without tools; it is no turn."""
    asked = state.with_message(Message.user(SUMMARY_PROMPT))
    response = await ctx.complete(
        setup.model, asked.messages, key="summary", **dict(ctx.request.model_kwargs)
    )
    answer = Message.assistant(response.message.content, reasoning=response.message.reasoning)
    return asked.with_message(answer).with_token_usage(response.usage)


def finish(
    state: AgentState, ending: Ending, failure: Exception | None, ctx: RunContext
) -> AgentState:
    """The final state, after the last record and the TerminateEvent."""
    if failure is not None:
        state = state.with_error(f"{type(failure).__name__}: {failure}")
    ctx.record(
        RunEnded(ctx.run_id, ctx.next_seq, ctx.clock.now(), ending.stop_reason, ending.reason)
    )
    ctx.emit(
        TerminateEvent(
            reason=ending.reason,
            stop_reason=ending.stop_reason,
            condition=ending.condition,
            iterations_used=state.iteration,
            final_confidence=state.confidence,
            total_tool_calls=len(state.tool_executions),
            final_message=final_text(state) or None,
            usage=state.usage,
        )
    )
    return state


def final_text(state: AgentState) -> str:
    """The assistant's last text, empty if it never spoke."""
    for message in reversed(state.messages):
        if message.role is Role.ASSISTANT and message.content:
            return message.content
    return ""
