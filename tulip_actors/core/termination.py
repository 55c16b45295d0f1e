"""When a run stops: conditions and their algebra.

What may live here: pure rules over `AgentState`. The loop asks once per turn, before Think. A
condition says what fired (`reason`, its class name unless it has a better one), and to which
normalised literal that belongs (`stop_reason`), so nobody ever searches in text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from tulip_actors.core.state import AgentState

StopReason = Literal[
    "complete",
    "terminal_tool",
    "confidence_met",
    "max_iterations",
    "tool_loop",
    "no_tools",
    "grounding_failed",
    "token_budget",
    "time_budget",
    "interrupted",
    "error",
    "cancelled",
]
"""How a run ended, in the fixed vocabulary of `AgentResult.stop_reason`."""

STOP_REASONS: frozenset[str] = frozenset(get_args(StopReason))
SUCCESSES: frozenset[str] = frozenset({"complete", "terminal_tool", "confidence_met"})


@dataclass(frozen=True, slots=True)
class Ending:
    """What ends a run: `reason` for readers, `stop_reason` for programs, `condition` its repr.

    `at_cap` is set by the loop on its built-in cap, which alone asks for a summary.
    """

    reason: str
    stop_reason: StopReason
    condition: str | None = None
    at_cap: bool = False


class TerminationCondition(ABC):
    """A rule that may end a run. Combine with `&` and `|`; subclass and write `check`."""

    stop_reason: ClassVar[StopReason] = "complete"

    @abstractmethod
    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        """(fires, reason). A reason of None stands for the class name.

        `ctx` holds what is not state; read what you know and accept the rest.
        """

    def ending(self, state: AgentState, **ctx: object) -> Ending | None:
        """What ends the run if this condition fires now, else None."""
        fires, reason = self.check(state, **ctx)
        if not fires:
            return None
        return Ending(reason or type(self).__name__, self.stop_reason, repr(self))

    def __and__(self, other: TerminationCondition) -> AndCondition:
        return AndCondition(self, other)

    def __or__(self, other: TerminationCondition) -> OrCondition:
        return OrCondition(self, other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _as_check(ending: Ending | None) -> tuple[bool, str | None]:
    return (False, None) if ending is None else (True, ending.reason)


class AndCondition(TerminationCondition):
    """Fires when both sides do; its reason joins the leaves, its literal is the first leaf's."""

    def __init__(self, left: TerminationCondition, right: TerminationCondition) -> None:
        self.left, self.right = left, right

    def ending(self, state: AgentState, **ctx: object) -> Ending | None:
        left = self.left.ending(state, **ctx)
        if left is None:
            return None
        right = self.right.ending(state, **ctx)
        if right is None:
            return None
        return Ending(
            f"{left.reason} & {right.reason}",
            left.stop_reason,
            f"{left.condition} & {right.condition}",
        )

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        return _as_check(self.ending(state, **ctx))

    def __repr__(self) -> str:
        return f"({self.left!r} & {self.right!r})"


class OrCondition(TerminationCondition):
    """Fires when one side does, left first; it reports the side that fired."""

    def __init__(self, left: TerminationCondition, right: TerminationCondition) -> None:
        self.left, self.right = left, right

    def ending(self, state: AgentState, **ctx: object) -> Ending | None:
        left = self.left.ending(state, **ctx)
        return left if left is not None else self.right.ending(state, **ctx)

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        return _as_check(self.ending(state, **ctx))

    def __repr__(self) -> str:
        return f"({self.left!r} | {self.right!r})"


class MaxIterations(TerminationCondition):
    """Fires after `limit` completed turns."""

    stop_reason = "max_iterations"

    def __init__(self, limit: int) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(f"MaxIterations needs a whole number of turns from 1, not {limit!r}")
        self.limit = limit

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        return state.iteration >= self.limit, None

    def __repr__(self) -> str:
        return f"MaxIterations({self.limit})"
