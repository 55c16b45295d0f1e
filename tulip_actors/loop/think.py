"""Think: ask the model what to do next.

Emits ThinkEvent once, and before it a ModelChunkEvent per streamed piece when the caller asked for
tokens. The hooks see the messages before and the answer after; every answer is recorded before
anything is done with it, so that it is never paid for twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from itertools import count

from tulip_actors.core.calls import ToolSpec
from tulip_actors.core.events import ModelChunkEvent, ThinkEvent
from tulip_actors.core.messages import Message
from tulip_actors.core.ports import RunContext, StreamingChatModel
from tulip_actors.core.runs import ModelResponse, ModelTurn, Recovered
from tulip_actors.core.state import AgentState
from tulip_actors.loop.nodes import NodeTorn, Setup
from tulip_actors.loop.reflect import shown
from tulip_actors.memory.fold import TURN, with_thought
from tulip_actors.models.accumulate import accumulate, as_response

MAX_RETRIES = 5
"""How often a hook may have the model asked again in one turn."""
SILENCE = Message.assistant()


async def think(setup: Setup, state: AgentState, ctx: RunContext) -> AgentState:
    """The state with the model's message, usage and reasoning step."""
    tools = setup.config.tools.specs
    state, message = await answered(setup, state, ctx, f"{TURN}{state.iteration}", tools)
    thought = message.reasoning or message.content or None
    calls = message.tool_calls
    ctx.emit(ThinkEvent(iteration=state.iteration, reasoning=thought, tool_calls=calls))
    return with_thought(state, message)


async def answered(
    setup: Setup, state: AgentState, ctx: RunContext, key: str, tools: Sequence[ToolSpec]
) -> tuple[AgentState, Message]:
    """The state with what was spent and the model's message: the first that need not be asked for
    again. Raises `NodeTorn`, with what was spent, for whatever hooks or model raise."""
    hooks = setup.hooks
    try:
        messages = shown(setup, state)
        if hooks.steers_models:
            messages = await hooks.before_model_call(messages, state)
        earlier = _asked_before(ctx, key)
        empty_answers = sum([is_empty(response.message) for response in earlier])
        for attempt in count(1 + len(earlier)):
            response = await _ask(setup, messages, tools, ctx)
            spent = response.usage
            retry = False
            if hooks.steers_models:
                try:
                    seen = state.with_token_usage(spent)
                    response, retry = await hooks.after_model_call(response, attempt, seen)
                except BaseException:  # it was paid for; what it says no hook has let pass
                    state = state.with_token_usage(spent)
                    ctx.record(
                        ModelTurn(*ctx.stamp(), f"{key}/{attempt}", SILENCE, spent, accepted=False)
                    )
                    raise
            message = response.message
            if message.tool_calls and not tools:  # they could never be answered
                message = Message.assistant(message.content, reasoning=message.reasoning)
            asked_again = retry and attempt <= MAX_RETRIES
            if is_empty(message):
                empty_answers += 1
                asked_again |= empty_answers == 1  # asked for once more, with tools
            name, why = f"{key}/{attempt}", response.stop_reason
            ctx.record(ModelTurn(*ctx.stamp(), name, message, spent, why, not asked_again))
            if not asked_again:
                return state.with_message(message, spent), message
            state = state.with_token_usage(spent)
    except (asyncio.CancelledError, Exception) as cause:
        raise NodeTorn(state, cause) from None
    raise AssertionError("count() does not end")


def _asked_before(ctx: RunContext, key: str) -> Sequence[ModelTurn]:
    """The answers under this key that were not accepted, of a run that goes on."""
    answers: list[ModelTurn] = []
    for record in reversed(ctx.records):
        if isinstance(record, Recovered):
            continue
        if not isinstance(record, ModelTurn) or record.accepted:
            break
        if record.key.startswith(f"{key}/"):
            answers.append(record)
    return answers


def has_been_asked(state: AgentState, ctx: RunContext) -> bool:
    """Whether the model was asked in this turn already, without an answer to go on with: the run
    stopped in mid-turn and goes on."""
    return bool(_asked_before(ctx, f"{TURN}{state.iteration}"))


def is_empty(message: Message) -> bool:
    """Neither text nor calls."""
    return not (message.content or message.tool_calls)


async def _ask(
    setup: Setup, messages: Sequence[Message], tools: Sequence[ToolSpec], ctx: RunContext
) -> ModelResponse:
    """The model's answer to a conversation, streamed if that was asked for."""
    settings: dict[str, object] = dict(ctx.request.model_kwargs)
    if ctx.request.stream_tokens and isinstance(setup.model, StreamingChatModel):
        async with aclosing(setup.model.stream(messages, tools or None, **settings)) as chunks:
            return await accumulate(_shown(chunks, ctx))
    return as_response(await setup.model.complete(messages, tools or None, **settings))


async def _shown(
    chunks: AsyncIterator[ModelChunkEvent], ctx: RunContext
) -> AsyncIterator[ModelChunkEvent]:
    async for chunk in chunks:
        ctx.emit(chunk)
        yield chunk
