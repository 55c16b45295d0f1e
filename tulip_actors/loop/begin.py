"""Before the first turn: what the thread holds, what the user says, what the hooks make of it."""

from __future__ import annotations

import inspect
from dataclasses import replace

from tulip_actors.core.history import History
from tulip_actors.core.messages import Message
from tulip_actors.core.ports import RunContext
from tulip_actors.core.runs import Opened
from tulip_actors.core.state import AgentState
from tulip_actors.errors import ConfigError
from tulip_actors.loop.config import AgentConfig
from tulip_actors.loop.fold import Conversation
from tulip_actors.loop.nodes import Setup


def opening(ctx: RunContext, earlier: Conversation) -> AgentState:
    """The state that continues a thread with the request's input.

    Counters, budgets and confidence are fresh. Earlier executions stay for idempotent calls.
    """
    messages = [*earlier.messages, Message.user(ctx.request.input)]
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
    """The state after the hooks; what the run adds to its thread is recorded.

    The system prompt opens a thread; a later run does not repeat it.
    """
    if state.thread_length == 0 and ctx.request.answer is None:
        prompt = await _system_prompt(setup.config, ctx)
        if prompt:
            messages = (Message.system(prompt), *state.messages)
            state = replace(state, messages=History(messages), opening_length=len(messages))
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


async def _system_prompt(config: AgentConfig, ctx: RunContext) -> str | None:
    prompt = config.system_prompt
    if not callable(prompt):
        return prompt
    text = prompt(ctx.request.metadata)
    if inspect.isawaitable(text):
        text = await text
    if text is not None and not isinstance(text, str):
        raise ConfigError(
            f"system_prompt: the function returned {type(text).__name__}; return text"
        )
    return text


def _common_prefix(before: AgentState, after: AgentState) -> int:
    """How many of the thread's messages the hooks left as they were."""
    for position in range(before.thread_length):
        if position >= len(after.messages) or after.messages[position] != before.messages[position]:
            return position
    return before.thread_length
