"""Before the first turn: what the thread holds, what the user says, what the hooks make of it."""

from __future__ import annotations

import inspect
from dataclasses import replace

from tulip_actors.core.messages import Message
from tulip_actors.core.ports import RunContext
from tulip_actors.core.runs import MetadataSet, Opened
from tulip_actors.core.state import AgentState
from tulip_actors.errors import ConfigError
from tulip_actors.loop.config import AgentConfig
from tulip_actors.loop.nodes import Setup
from tulip_actors.memory.fold import Standing


async def begin(setup: Setup, standing: Standing, ctx: RunContext) -> AgentState:
    """The state after the hooks; what the run adds to its thread is recorded.

    The system prompt opens a thread; a later run does not repeat it. A run that goes on has its
    opening already: of what the hooks make of that, the metadata is taken.
    """
    state = standing.state
    if standing.opened:
        steered = await setup.hooks.before_invocation(ctx.request.input, state)
        if steered.metadata != state.metadata:
            ctx.record(MetadataSet(*ctx.stamp(), steered.metadata))
        return replace(state, metadata=steered.metadata)
    opening = [Message.user(ctx.request.input)]
    prompt = await _system_prompt(setup.config, ctx) if state.thread_length == 0 else None
    if prompt:
        opening.insert(0, Message.system(prompt))
    state = state.with_messages(*opening)
    opened = await setup.hooks.before_invocation(ctx.request.input, state)
    kept = state.thread_length if opened is state else _common_prefix(state, opened)
    messages = tuple(opened.messages[kept:])
    ctx.record(Opened(*ctx.stamp(), kept, messages, opened.metadata))
    return replace(opened, opening_length=len(opened.messages))


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
