"""Reflexion: a turn's calls weighed into a confidence, without asking a model.

    raw   = 0.15 * successes - 0.2 * errors      (0.05 if there were neither)
    raw  *= 1 - confidence                       if it is positive, with diminishing returns
    raw  -= 0.3                                  if the tools repeat
    new   = confidence + raw, within 0 and 1

The figures are the contract's (C23). Results served from an earlier execution count neither way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from tulip_actors.core.messages import Role
from tulip_actors.core.state import AgentState, ToolExecution

SUCCESS_GAIN = 0.15
ERROR_COST = 0.2
IDLE_GAIN = 0.05
LOOP_COST = 0.3
STUCK_BELOW = -0.05
FINDINGS_OVER_CHARACTERS = 100


class AssessmentCategory(StrEnum):
    """How a turn went."""

    ON_TRACK = "on_track"
    STUCK = "stuck"
    NEW_FINDINGS = "new_findings"
    LOOP_DETECTED = "loop_detected"


@dataclass(frozen=True, slots=True)
class ReflectionResult:
    """One evaluation. `confidence_delta` is the change really made; confidences are 0 to 1."""

    assessment: AssessmentCategory
    confidence_delta: float
    new_confidence: float
    guidance: str | None = None


@dataclass(frozen=True, slots=True)
class Reflector:
    """Evaluates the turn a state stands in. `tool_loop_threshold` turns alike are a loop."""

    tool_loop_threshold: int = 3
    diminishing_returns: bool = True

    def reflect(self, state: AgentState) -> ReflectionResult:
        """How the present turn went."""
        counted = [one for one in state.executions_of_turn if not one.idempotent_cache_hit]
        successes = [one for one in counted if one.success]
        errors = [one for one in counted if not one.success]
        repeated = self._repeated_tools(state)
        raw = self._raw(len(successes), len(errors), state.confidence)
        if repeated:
            raw -= LOOP_COST
        new = round(min(1.0, max(0.0, state.confidence + raw)), 10)
        delta = round(new - state.confidence, 10)
        assessment = _assessment(successes, errors, delta, is_loop=bool(repeated))
        return ReflectionResult(
            assessment, delta, new, self._guidance(assessment, repeated, errors)
        )

    def _raw(self, successes: int, errors: int, confidence: float) -> float:
        if not successes and not errors:
            raw = IDLE_GAIN
        else:
            raw = SUCCESS_GAIN * successes - ERROR_COST * errors
        return raw * (1 - confidence) if raw > 0 and self.diminishing_returns else raw

    def _repeated_tools(self, state: AgentState) -> tuple[str, ...]:
        """The tools that each of the last turns with tools called, this one included."""
        turns = (
            tuple(call.name for call in message.tool_calls)
            for message in state.said_last()
            if message.role is Role.ASSISTANT and message.tool_calls
        )
        last = list(islice(turns, self.tool_loop_threshold))
        if len(last) < self.tool_loop_threshold or any(one != last[0] for one in last):
            return ()
        return last[0]

    def _guidance(
        self,
        assessment: AssessmentCategory,
        repeated: tuple[str, ...],
        errors: Sequence[ToolExecution],
    ) -> str | None:
        if assessment is AssessmentCategory.LOOP_DETECTED:
            return (
                f"You have called {', '.join(dict.fromkeys(repeated))} in each of the last "
                f"{self.tool_loop_threshold} turns. Do something else, or answer from what you "
                "have."
            )
        if assessment is AssessmentCategory.STUCK and errors:
            names = ", ".join(dict.fromkeys(one.tool_name for one in errors))
            return (
                f"{len(errors)} failed in this turn, of {names}. The last error: "
                f"{errors[-1].error}. Change the arguments or take another way."
            )
        return None


def evaluate_progress(state: AgentState) -> ReflectionResult:
    """One evaluation with the default settings."""
    return Reflector().reflect(state)


def _assessment(
    successes: Sequence[ToolExecution],
    errors: Sequence[ToolExecution],
    delta: float,
    *,
    is_loop: bool,
) -> AssessmentCategory:
    if is_loop:
        return AssessmentCategory.LOOP_DETECTED
    if sum(len(one.result or "") for one in successes) > FINDINGS_OVER_CHARACTERS:
        return AssessmentCategory.NEW_FINDINGS
    if len(errors) > len(successes) or delta < STUCK_BELOW:
        return AssessmentCategory.STUCK
    return AssessmentCategory.ON_TRACK
