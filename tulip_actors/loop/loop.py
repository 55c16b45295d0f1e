"""The loop: Think -> Execute -> Reflect -> Terminate, until something ends it.

    from             to                when
    iteration start  Terminate         a condition fires, or the run was cancelled
    iteration start  Think             otherwise
    Think            Execute           the model made tool calls
    Think            Terminate         it made none, in completion_mode="auto"; first through Ground
                                       when grounding is on and the run has called tools
    Ground           iteration start   the answer fails and may be tried again
    Execute          Reflect           Reflexion is configured and this turn is due
    Execute          Terminate         a terminal tool succeeded, or a tool asks a human
    Execute          iteration start   otherwise
    Reflect          iteration start   always

What may live here: this one function. Each node is a file beside it; a node takes the state and
returns the next one, and speaks to the world through the context. `state` is bound anew after each
node, so whatever is raised, what finished is kept.
"""

from __future__ import annotations

import asyncio

from tulip_actors.core.ports import RunContext
from tulip_actors.core.state import AgentState
from tulip_actors.core.termination import Ending
from tulip_actors.loop.begin import begin
from tulip_actors.loop.execute import execute
from tulip_actors.loop.finish import completion, ending_due, finish, interrupted, summarise
from tulip_actors.loop.ground import ground, grounding_due
from tulip_actors.loop.nodes import Setup, TurnPaused, boundary, checkpoint, left_by
from tulip_actors.loop.reflect import reflect, reflection_due
from tulip_actors.loop.think import think
from tulip_actors.memory.fold import Standing


async def run_loop(setup: Setup, standing: Standing, ctx: RunContext) -> tuple[AgentState, Ending]:
    """Run an agent from where it stands to its end; every way out passes through `finish`.

    A run that goes on comes with the `pending` turn in which it paused or was lost.

    Raises what the model, a node or a hook raised, after the TerminateEvent that reports it.
    """
    hooks, state, pending = setup.hooks, standing.state, standing.turn
    ending: Ending | None = None
    cause: BaseException | None = None
    try:
        state = await begin(setup, standing, ctx)
        while True:
            state = boundary(state, ctx)
            if pending is None:
                if (ending := ending_due(setup, state, ctx)) is not None:
                    state = await summarise(setup, state, ctx, ending)
                    break
                await hooks.iteration_start(state.iteration, state)
                state = boundary(await think(setup, state, ctx), ctx)

            turn, pending = pending, None
            if state.messages[-1].tool_calls:
                state = await execute(setup, state, ctx, turn)
                if reflection_due(setup, state):
                    state = reflect(setup, state, ctx, turn)

            state = boundary(state, ctx)
            await hooks.iteration_end(state.iteration, state)
            ending = completion(setup, state)
            if grounding_due(setup, state, ctx, ending):
                state, ending = await ground(setup, state, ctx)
            state = state.next_iteration()
            if ending is not None:
                break
            checkpoint(setup, state, ctx)
    except TurnPaused as paused:
        ending = interrupted(paused.interrupts)
    except (asyncio.CancelledError, Exception) as raised:
        state, cause = left_by(raised, state)
    return await finish(setup, state, ending, cause, ctx)
