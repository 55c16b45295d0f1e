"""The loop: Think -> Execute -> Reflect -> Terminate, until something ends it.

    from             to                when
    iteration start  Terminate         a condition fires, or the run was cancelled
    iteration start  Think             otherwise
    Think            Execute           the model made tool calls
    Think            Terminate         it made none
    Execute          iteration start   always

What may live here: this one function. Each node is a file beside it; a node takes the state and
returns the next one, and speaks to the world through the context. `state` is bound anew after each
node, so whatever is raised, what finished is kept.
"""

from __future__ import annotations

import asyncio

from tulip_actors.core.ports import RunContext
from tulip_actors.core.state import AgentState
from tulip_actors.core.termination import Ending
from tulip_actors.errors import RunCancelled
from tulip_actors.loop.execute import execute
from tulip_actors.loop.finish import (
    CANCELLED,
    FAILED,
    NATURAL_END,
    ending_due,
    finish,
    summarise,
)
from tulip_actors.loop.nodes import NodeTorn, Setup
from tulip_actors.loop.think import think


async def run_loop(setup: Setup, state: AgentState, ctx: RunContext) -> tuple[AgentState, Ending]:
    """Run an agent from `state` to its end; every way out passes through `finish`.

    Raises what the model or a node raised, after the TerminateEvent that reports it.
    """
    failure: Exception | None = None
    try:
        while True:
            if (ending := ending_due(setup, state, ctx)) is not None:
                if ending.at_cap:
                    state = await summarise(setup, state, ctx)
                break
            state = await think(setup, state, ctx)
            calls = state.messages[-1].tool_calls
            if calls:
                state = await execute(setup, state, ctx)
            state = state.next_iteration()
            if not calls:
                ending = NATURAL_END
                break
    except NodeTorn as torn:
        state, ending = torn.state, CANCELLED
    except (asyncio.CancelledError, RunCancelled):
        ending = CANCELLED
    except Exception as error:  # reported by the TerminateEvent, then raised to the caller
        failure, ending = error, FAILED
    state = finish(state, ending, failure, ctx)
    if failure is not None:
        raise failure
    return state, ending
