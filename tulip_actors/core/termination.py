"""When a run stops: conditions and their algebra.

What may live here: pure rules over `AgentState`. The loop asks once per turn, before Think. A
condition says what fired (`reason`, its class name unless it has a better one), and to which
normalised literal that belongs (`stop_reason`), so nobody ever searches in text.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, cast, get_args

from tulip_actors.core.events import InterruptEvent
from tulip_actors.core.messages import Message, Role
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


def stop_reason_of(text: str) -> StopReason:
    """The stop reason of that name; "complete" for any other text."""
    return cast(StopReason, text) if text in STOP_REASONS else "complete"


@dataclass(frozen=True, slots=True)
class Ending:
    """What ends a run: `reason` for readers, `stop_reason` for programs, `condition` its repr.

    `at_cap` is set by the loop on its built-in cap, which alone asks for a summary; `interrupts`
    are the questions for which a run paused.
    """

    reason: str
    stop_reason: StopReason
    condition: str | None = None
    at_cap: bool = False
    interrupts: tuple[InterruptEvent, ...] = ()


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
        if not isinstance(other, TerminationCondition):
            return NotImplemented
        return AndCondition(self, other)

    def __or__(self, other: TerminationCondition) -> OrCondition:
        if not isinstance(other, TerminationCondition):
            return NotImplemented
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


class TokenLimit(TerminationCondition):
    """Fires when the run has used `limit` tokens, as far as the provider reported them."""

    stop_reason = "token_budget"

    def __init__(self, limit: int) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(f"TokenLimit needs a whole number of tokens from 1, not {limit!r}")
        self.limit = limit

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        return state.total_tokens_used >= self.limit, None

    def __repr__(self) -> str:
        return f"TokenLimit({self.limit})"


class TimeLimit(TerminationCondition):
    """Fires when the run, or its part since a resume, has taken `seconds` of wall-clock time."""

    stop_reason = "time_budget"

    def __init__(self, seconds: float) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ValueError(f"TimeLimit needs a number of seconds above 0, not {seconds!r}")
        self.seconds = seconds

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        elapsed_s = ctx.get("elapsed_s", 0.0)
        return isinstance(elapsed_s, int | float) and elapsed_s >= self.seconds, None

    def __repr__(self) -> str:
        return f"TimeLimit({self.seconds})"


class NoToolCalls(TerminationCondition):
    """Fires when the model's last message made no tool calls."""

    stop_reason = "no_tools"

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        last = _last_answer(state)
        return last is not None and not last.tool_calls, None


class ToolCalled(TerminationCondition):
    """Fires when a tool was called in this run; with `require_success`, without an error."""

    stop_reason = "terminal_tool"

    def __init__(self, tool_name: str, require_success: bool = False) -> None:
        if not isinstance(tool_name, str) or not tool_name:
            raise ValueError(f"ToolCalled needs a tool's name, not {tool_name!r}")
        self.tool_name = tool_name
        self.require_success = require_success

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        names = state.tools_succeeded if self.require_success else state.tools_called
        return self.tool_name in names, None

    def __repr__(self) -> str:
        more = ", require_success=True" if self.require_success else ""
        return f"ToolCalled({self.tool_name!r}{more})"


class ConfidenceMet(TerminationCondition):
    """Fires when reflexion's confidence has reached `threshold`."""

    stop_reason = "confidence_met"

    def __init__(self, threshold: float) -> None:
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise ValueError(f"ConfidenceMet needs a number from 0 to 1, not {threshold!r}")
        if not 0 <= threshold <= 1:
            raise ValueError(f"ConfidenceMet needs a number from 0 to 1, not {threshold}")
        self.threshold = threshold

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        return state.confidence >= self.threshold, None

    def __repr__(self) -> str:
        return f"ConfidenceMet({self.threshold})"


class TextMention(TerminationCondition):
    """Fires when the model's last text contains `text`, in any case unless `case_sensitive`."""

    def __init__(self, text: str, case_sensitive: bool = False) -> None:
        if not isinstance(text, str) or not text:
            raise ValueError(f"TextMention needs the text to look for, not {text!r}")
        self.text = text
        self.case_sensitive = case_sensitive

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        last = _last_answer(state)
        if last is None:
            return False, None
        if self.case_sensitive:
            return self.text in last.content, None
        return self.text.casefold() in last.content.casefold(), None

    def __repr__(self) -> str:
        more = ", case_sensitive=True" if self.case_sensitive else ""
        return f"TextMention({self.text!r}{more})"


class CustomCondition(TerminationCondition):
    """Fires when `fn(state, **ctx)` returns True or `(True, reason)`.

    A reason that is one of the normalised literals is the run's `stop_reason` as well.
    """

    def __init__(self, fn: Callable[..., bool | tuple[bool, str | None]]) -> None:
        if not callable(fn):
            raise ValueError(f"CustomCondition needs a function of the state, not {fn!r:.80}")
        if inspect.iscoroutinefunction(fn):
            raise ValueError("CustomCondition needs a plain function: conditions are not awaited")
        self.fn = fn

    def check(self, state: AgentState, **ctx: object) -> tuple[bool, str | None]:
        answer: object = self.fn(state, **ctx)
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise TypeError(f"{self!r} is async; conditions are not awaited: write it plain")
        fires, reason = answer if isinstance(answer, tuple) else (answer, None)
        return bool(fires), None if reason is None else str(reason)

    def ending(self, state: AgentState, **ctx: object) -> Ending | None:
        fires, reason = self.check(state, **ctx)
        if not fires:
            return None
        literal = _LITERALS.get(reason or "", self.stop_reason)
        return Ending(reason or type(self).__name__, literal, repr(self))

    def __repr__(self) -> str:
        return f"CustomCondition({getattr(self.fn, '__name__', type(self.fn).__name__)})"


_LITERALS: dict[str, StopReason] = {literal: literal for literal in get_args(StopReason)}


def _last_answer(state: AgentState) -> Message | None:
    return next((m for m in state.said_last() if m.role is Role.ASSISTANT), None)
