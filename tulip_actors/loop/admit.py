"""Before a call is made: parse, validate, ask the hooks, validate again, look for its result.

A call that is refused here (malformed, unknown, invalid, vetoed) gets an error that tells the model
what to send; it never ends the run.
"""

from __future__ import annotations

from collections.abc import Mapping

from tulip_actors.core.calls import CallKey, CallScope, ToolRequest
from tulip_actors.core.frozen import FrozenDict, Json, freeze_object
from tulip_actors.core.messages import ToolCall
from tulip_actors.core.ports import RunContext
from tulip_actors.core.state import AgentState
from tulip_actors.errors import NotSerialisable, ToolArgumentsInvalid, ToolError, ToolVetoed
from tulip_actors.hooks.provider import BeforeToolCallEvent
from tulip_actors.loop.nodes import HookRaised, Setup
from tulip_actors.tools.decorator import Tool


async def admit(
    setup: Setup, state: AgentState, ctx: RunContext, slot: int, call: ToolCall
) -> ToolRequest:
    """The call as the executor takes it. Raises `ToolError` with a text for the model."""
    tool = setup.config.tools[call.name]
    if call.malformed is not None:
        raise ToolArgumentsInvalid(
            f"the arguments of {call.name} are not a JSON object: {call.malformed:.200}. "
            f"Send an object with: {', '.join(tool.signature.names) or 'nothing in it'}"
        )
    arguments = await _steered(setup, state, call, tool, tool.validate(call.arguments))
    key = CallKey(ctx.run_id, state.iteration, slot)
    return request_for(setup, state, ctx, key, tool, call.id, arguments)


def request_for(
    setup: Setup,
    state: AgentState,
    ctx: RunContext,
    key: CallKey,
    tool: Tool,
    tool_call_id: str,
    arguments: Mapping[str, Json],
) -> ToolRequest:
    """A request for a call whose arguments are valid."""
    return ToolRequest(
        key=key,
        tool_name=tool.name,
        tool_call_id=tool_call_id,
        arguments=arguments,
        scope=CallScope(
            run_id=ctx.run_id,
            thread_id=ctx.thread_id,
            agent=setup.config.name,
            agent_id=ctx.agent_id,
            iteration=state.iteration,
            metadata=state.metadata,
            principal=ctx.principal,
        ),
        toolset=setup.toolset,
        policy=tool.policy,
    )


async def _steered(
    setup: Setup, state: AgentState, call: ToolCall, tool: Tool, arguments: FrozenDict
) -> FrozenDict:
    """The arguments after the hooks. Raises `ToolVetoed` when one of them forbids the call."""
    if not setup.hooks.steers_tools:
        return arguments
    event = BeforeToolCallEvent(call.name, call.id, arguments, state.iteration, state)
    try:
        await setup.hooks.before_tool_call(event)
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
