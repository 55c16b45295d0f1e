"""Reflect: how the turn went, without asking a model.

Emits ReflectEvent; puts the guidance, if there is any, where the next Think reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tulip_actors.core.events import ReflectEvent
from tulip_actors.core.messages import Message, Role
from tulip_actors.core.ports import RunContext
from tulip_actors.core.runs import Added
from tulip_actors.core.state import AgentState
from tulip_actors.loop.nodes import Setup
from tulip_actors.memory.fold import PendingTurn, reflected
from tulip_actors.reasoning.reflexion import Reflector

NOTE = "reflexion"
"""The `name` of a system message that carries guidance."""


def reflection_due(setup: Setup, state: AgentState) -> bool:
    """Whether this turn is one of every N; turns count from 1 here."""
    reflexion = setup.config.reflexion
    return (
        reflexion is not None and (state.iteration + 1) % reflexion.evaluate_every_n_iterations == 0
    )


def shown(setup: Setup, state: AgentState) -> Sequence[Message]:
    """What the model is shown: of the guidance the latest only; all of it stays in the state."""
    if setup.config.reflexion is None:
        return state.messages
    notes = [
        position
        for position, message in enumerate(state.messages)
        if message.role is Role.SYSTEM and message.name == NOTE
    ]
    old = set(notes[:-1])
    if not old:
        return state.messages
    return [one for position, one in enumerate(state.messages) if position not in old]


def reflect(
    setup: Setup, state: AgentState, ctx: RunContext, pending: PendingTurn | None = None
) -> AgentState:
    """The state with the new confidence and, if there is any, the guidance.

    A pending turn that was reflected on already gets what that made.
    """
    if pending is not None and pending.reflection is not None:
        return reflected(state, pending.reflection)
    config = setup.config
    assert config.reflexion is not None, "asked only when it is due"
    reflector = Reflector(
        tool_loop_threshold=config.tool_loop_threshold,
        diminishing_returns=config.reflexion.diminishing_returns,
    )
    found = reflector.reflect(state)
    notes: tuple[Message, ...] = ()
    if found.guidance is not None and config.reflexion.include_guidance:
        notes = (Message(Role.SYSTEM, found.guidance, name=NOTE),)
    ctx.emit(
        ReflectEvent(
            iteration=state.iteration,
            assessment=found.assessment.value,
            confidence_delta=found.confidence_delta,
            new_confidence=found.new_confidence,
            guidance=found.guidance,
        )
    )
    reflection = Added(*ctx.stamp(), notes, found.new_confidence)
    ctx.record(reflection)
    return reflected(state, reflection)
