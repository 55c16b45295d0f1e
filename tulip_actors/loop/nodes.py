"""What every node is given, and how one that is torn out hands over what it had finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tulip_actors.core.events import InterruptEvent
from tulip_actors.core.ports import ChatModel, RunContext
from tulip_actors.core.runs import Checkpointed, MetadataSet
from tulip_actors.core.state import AgentState
from tulip_actors.core.termination import (
    MaxIterations,
    TerminationCondition,
    TimeLimit,
    TokenLimit,
)
from tulip_actors.hooks.chain import HookChain
from tulip_actors.loop.config import AgentConfig


@dataclass(frozen=True, slots=True)
class Setup:
    """An agent as its loop sees it: the config, the model made, the hooks in order.

    `toolset` is the id under which the executor holds the agent's tools. `caps` are the built-in
    conditions, `max_iterations` first.
    """

    config: AgentConfig
    model: ChatModel
    toolset: str
    hooks: HookChain
    caps: tuple[TerminationCondition, ...]

    @classmethod
    def of(cls, config: AgentConfig, model: ChatModel, toolset: str) -> Setup:
        """Made once per agent and process."""
        caps: list[TerminationCondition] = [MaxIterations(config.max_iterations)]
        if config.token_budget is not None:
            caps.append(TokenLimit(config.token_budget))
        if config.time_budget_seconds is not None:
            caps.append(TimeLimit(config.time_budget_seconds))
        return cls(config, model, toolset, HookChain(config.hooks), tuple(caps))


class TurnPaused(Exception):
    """Calls of the turn ask a human; everything else of it has ended and is recorded."""

    def __init__(self, interrupts: Sequence[InterruptEvent]) -> None:
        super().__init__(f"{len(interrupts)} questions are open")
        self.interrupts = tuple(interrupts)


class NodeTorn(Exception):
    """A node was left in the middle; `state` holds what had finished, `cause` says why."""

    def __init__(self, state: AgentState, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.state = state
        self.cause = cause


def left_by(raised: BaseException, state: AgentState) -> tuple[AgentState, BaseException]:
    """What a raised exception leaves: the state so far, and why the run ends."""
    return (raised.state, raised.cause) if isinstance(raised, NodeTorn) else (state, raised)


class HookRaised(Exception):
    """A hook raised something that would otherwise be taken for a refusal of the call."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


def boundary(state: AgentState, ctx: RunContext) -> AgentState:
    """The state between two nodes: with what `set_metadata` was given.

    Raises `NodeTorn` for what an `on_event` raised meanwhile.
    """
    if not ctx.has_news:
        return state
    state = with_new_metadata(state, ctx)
    try:
        ctx.raise_watcher_failure()
    except Exception as failure:  # a hook's: it ends the run
        raise NodeTorn(state, failure) from None
    return state


def with_new_metadata(state: AgentState, ctx: RunContext) -> AgentState:
    """The state with what `set_metadata` was given, which is recorded."""
    entries = ctx.take_metadata()
    if not entries:
        return state
    ctx.record(MetadataSet(*ctx.stamp(), entries))
    for key, value in entries.items():
        state = state.with_metadata(key, value)
    return state


def checkpoint(setup: Setup, state: AgentState, ctx: RunContext) -> None:
    """Between two turns: mark a checkpoint, if the config wants one here."""
    every = setup.config.checkpoint_every_n_iterations
    if every is not None and state.iteration % every == 0:
        ctx.record(Checkpointed(*ctx.stamp(), state.iteration))
