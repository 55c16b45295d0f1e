"""Before the first turn: what the thread holds, what the user says, what the hooks make of it."""

from __future__ import annotations

from dataclasses import replace

from tulip_actors.core.history import History
from tulip_actors.core.messages import Message
from tulip_actors.core.ports import RunContext
from tulip_actors.core.runs import Opened
from tulip_actors.core.state import AgentState
from tulip_actors.loop.config import AgentConfig
from tulip_actors.loop.fold import Conversation
from tulip_actors.loop.nodes import Setup


def opening(config: AgentConfig, ctx: RunContext, earlier: Conversation) -> AgentState:
    """The state that continues a thread with the request's input.

    Counters, budgets and confidence are fresh. Earlier executions stay for idempotent calls. The
    system prompt opens a thread; a later run does not repeat it.
    """
    messages = list(earlier.messages)
    if not messages and config.system_prompt:
        prompt = config.system_prompt
        text = prompt(ctx.request.metadata) if callable(prompt) else prompt
        messages += [Message.system(text)] if text else []
    messages.append(Message.user(ctx.request.input))
    return AgentState(
        ctx.run_id,
        ctx.thread_id,
        ctx.agent_id,
        messages=History(messages),
        tool_executions=History(earlier.executions),
        executions_before_turn=len(earlier.executions),
        metadata=ctx.request.metadata,
        thread_length=len(earlier.messages),
        opening_length=len(messages),
    )


async def begin(setup: Setup, state: AgentState, ctx: RunContext) -> AgentState:
    """The state after the hooks; what the run adds to its thread is recorded."""
    opened = await setup.hooks.before_invocation(ctx.request.input, state)
    if ctx.request.answer is not None:
        return opened  # what a resumed run began with is recorded already
    kept = state.thread_length
    if opened is not state:
        kept = _common_prefix(state, opened)
        opened = replace(opened, opening_length=len(opened.messages))
    ctx.record(
        Opened(ctx.run_id, ctx.next_seq, ctx.clock.now(), kept, tuple(opened.messages[kept:]))
    )
    return opened


def _common_prefix(before: AgentState, after: AgentState) -> int:
    """How many of the thread's messages the hooks left as they were."""
    for position in range(before.thread_length):
        if position >= len(after.messages) or after.messages[position] != before.messages[position]:
            return position
    return before.thread_length
