"""Before a call is made: parse, validate, ask the hooks, validate again, look for its result.

A call that is refused here (malformed, unknown, invalid, vetoed) gets an error that tells the model
what to send; it never ends the run.
"""

from __future__ import annotations

from collections.abc import Mapping

from tulip_actors.core.calls import CallKey, CallScope, ToolRequest
from tulip_actors.core.frozen import FrozenDict, Json, freeze_object
from tulip_actors.core.messages import ToolCall
from tulip_actors.errors import NotSerialisable, ToolArgumentsInvalid, ToolError, ToolVetoed
from tulip_actors.hooks.provider import BeforeToolCallEvent
from tulip_actors.loop.nodes import HookRaised
from tulip_actors.loop.turn import Slot, Turn
from tulip_actors.tools.decorator import Tool


async def admit(turn: Turn, slot: Slot, tool: Tool) -> ToolRequest:
    """The call as the executor takes it. Raises `ToolError` with a text for the model."""
    call = slot.call
    if call.malformed is not None:
        raise ToolArgumentsInvalid(
            f"the arguments of {call.name} are not a JSON object: {call.malformed:.200}. "
            f"Send an object with: {', '.join(tool.signature.names) or 'nothing in it'}"
        )
    arguments = tool.validate(call.arguments)
    if turn.setup.hooks.steers_tools:
        arguments = await _steered(turn, call, tool, arguments)
    return request_for(turn, slot.key, tool, call.id, arguments)


def request_for(
    turn: Turn, key: CallKey, tool: Tool, tool_call_id: str, arguments: Mapping[str, Json]
) -> ToolRequest:
    """A request for a call whose arguments are valid."""
    setup, state, ctx = turn.setup, turn.state, turn.ctx
    scope = CallScope(
        ctx.run_id,
        ctx.thread_id,
        setup.config.name,
        ctx.agent_id,
        state.iteration,
        state.metadata,
        ctx.principal,
    )
    return ToolRequest(key, tool.name, tool_call_id, arguments, scope, setup.toolset, tool.policy)


async def _steered(turn: Turn, call: ToolCall, tool: Tool, arguments: FrozenDict) -> FrozenDict:
    """The arguments after the hooks. Raises `ToolVetoed` when one of them forbids the call."""
    event = BeforeToolCallEvent(call.name, call.id, arguments, turn.state.iteration, turn.state)
    try:
        await turn.setup.hooks.before_tool_call(event)
    except ToolError as error:  # a refusal is what `cancel` is for
        raise HookRaised(error) from None
    if event.cancel:
        reason = event.cancel if isinstance(event.cancel, str) else "not allowed"
        raise ToolVetoed(f"{call.name} was not called: {reason}")
    if event.arguments is arguments:
        return arguments
    try:
        return tool.validate(freeze_object(event.arguments, f"arguments of {call.name}"))
    except NotSerialisable as error:
        raise ToolError(f"a hook gave {call.name} arguments that cannot be used: {error}") from None
