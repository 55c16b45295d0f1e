"""Think: ask the model what to do next.

Emits ThinkEvent once, and before it a ModelChunkEvent per streamed piece when the caller asked for
tokens. Records the answer before anything is done with it, so that it is never paid for twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from tulip_actors.core.events import ModelChunkEvent, ThinkEvent
from tulip_actors.core.ports import RunContext, StreamingChatModel
from tulip_actors.core.runs import ModelResponse, ModelTurn
from tulip_actors.core.state import AgentState, ReasoningStep
from tulip_actors.loop.nodes import Setup
from tulip_actors.models.accumulate import accumulate, as_response


async def think(setup: Setup, state: AgentState, ctx: RunContext) -> AgentState:
    """The state with the model's message, usage and reasoning step."""
    response = await ask(setup, state, ctx)
    message = response.message
    ctx.record(
        ModelTurn(
            ctx.run_id,
            ctx.next_seq,
            ctx.clock.now(),
            f"turn:{state.iteration}",
            message,
            response.usage,
            response.stop_reason,
        )
    )
    thought = message.reasoning or message.content
    ctx.emit(
        ThinkEvent(
            iteration=state.iteration, reasoning=thought or None, tool_calls=message.tool_calls
        )
    )
    state = state.with_message(message).with_token_usage(response.usage)
    if thought:
        names = tuple(call.name for call in message.tool_calls)
        state = state.with_reasoning_step(ReasoningStep(state.iteration, thought, names))
    return state


async def ask(setup: Setup, state: AgentState, ctx: RunContext) -> ModelResponse:
    """The model's answer to the conversation so far, streamed if that was asked for."""
    tools = setup.config.tools.specs or None
    settings: dict[str, object] = dict(ctx.request.model_kwargs)
    if ctx.request.stream_tokens and isinstance(setup.model, StreamingChatModel):
        async with aclosing(setup.model.stream(state.messages, tools, **settings)) as chunks:
            return await accumulate(_shown(chunks, ctx))
    return as_response(await setup.model.complete(state.messages, tools, **settings))


async def _shown(
    chunks: AsyncIterator[ModelChunkEvent], ctx: RunContext
) -> AsyncIterator[ModelChunkEvent]:
    async for chunk in chunks:
        ctx.emit(chunk)
        yield chunk
