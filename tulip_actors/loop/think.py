"""Think: ask the model what to do next.

Emits ThinkEvent once, and before it a ModelChunkEvent per streamed piece when the caller asked for
tokens. The hooks see the messages before and the answer after; the answer is recorded before
anything is done with it, so that it is never paid for twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from itertools import count

from tulip_actors.core.events import ModelChunkEvent, ThinkEvent
from tulip_actors.core.messages import Message
from tulip_actors.core.ports import RunContext, StreamingChatModel
from tulip_actors.core.runs import ModelResponse, ModelTurn
from tulip_actors.core.state import AgentState, ReasoningStep
from tulip_actors.hooks.provider import AfterModelCallEvent, BeforeModelCallEvent
from tulip_actors.loop.nodes import NodeTorn, Setup
from tulip_actors.loop.reflect import shown
from tulip_actors.models.accumulate import accumulate, as_response

MAX_RETRIES = 5
"""How often a hook may have the model asked again in one turn."""


async def think(setup: Setup, state: AgentState, ctx: RunContext) -> AgentState:
    """The state with the model's message, usage and reasoning step."""
    try:
        before = BeforeModelCallEvent(shown(setup, state), state.iteration, state)
        await setup.hooks.before_model_call(before)
        empty_answers = 0
        for attempt in count(1):
            response = await ask(setup, before.messages, ctx)
            state = state.with_token_usage(response.usage)
            after = AfterModelCallEvent(response, state.iteration, attempt, state)
            await setup.hooks.after_model_call(after)
            response = _replaced(after)
            message = response.message
            is_empty = not (message.content or message.tool_calls)
            empty_answers += is_empty
            asked_again = (after.retry and attempt <= MAX_RETRIES) or (
                is_empty and empty_answers == 1  # asked for once more, with tools
            )
            _record(ctx, f"turn:{state.iteration}/{attempt}", response, not asked_again)
            if not asked_again:
                return _said(state, message, ctx)
    except (asyncio.CancelledError, Exception) as cause:  # what was paid for stays counted
        raise NodeTorn(state, cause) from None
    raise AssertionError("count() does not end")


def _replaced(after: AfterModelCallEvent) -> ModelResponse:
    response: object = after.response
    if not isinstance(response, ModelResponse | Message):
        raise TypeError(
            f"a hook set response to {type(response).__name__}; give it a ModelResponse"
        )
    return as_response(response)


def _said(state: AgentState, message: Message, ctx: RunContext) -> AgentState:
    thought = message.reasoning or message.content
    ctx.emit(
        ThinkEvent(
            iteration=state.iteration, reasoning=thought or None, tool_calls=message.tool_calls
        )
    )
    state = state.with_message(message)
    if thought:
        names = tuple(call.name for call in message.tool_calls)
        state = state.with_reasoning_step(ReasoningStep(state.iteration, thought, names))
    return state


def _record(ctx: RunContext, key: str, response: ModelResponse, accepted: bool) -> None:
    ctx.record(
        ModelTurn(
            ctx.run_id,
            ctx.next_seq,
            ctx.clock.now(),
            key,
            response.message,
            response.usage,
            response.stop_reason,
            accepted,
        )
    )


async def ask(setup: Setup, messages: Sequence[Message], ctx: RunContext) -> ModelResponse:
    """The model's answer to a conversation, streamed if that was asked for."""
    tools = setup.config.tools.specs or None
    settings: dict[str, object] = dict(ctx.request.model_kwargs)
    if ctx.request.stream_tokens and isinstance(setup.model, StreamingChatModel):
        async with aclosing(setup.model.stream(messages, tools, **settings)) as chunks:
            return await accumulate(_shown(chunks, ctx))
    return as_response(await setup.model.complete(messages, tools, **settings))


async def _shown(
    chunks: AsyncIterator[ModelChunkEvent], ctx: RunContext
) -> AsyncIterator[ModelChunkEvent]:
    async for chunk in chunks:
        ctx.emit(chunk)
        yield chunk
