"""What a run of an agent gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tulip_actors.core.events import InterruptEvent
from tulip_actors.core.messages import Message
from tulip_actors.core.state import AgentState, ToolExecution
from tulip_actors.core.termination import SUCCESSES, StopReason


@dataclass(frozen=True, slots=True)
class Metrics:
    """Counts of one run. `duration_ms` is wall-clock time from start to end."""

    tool_calls: int = 0
    tool_errors: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    duration_ms: float = 0.0
    reflexion_evaluations: int = 0
    grounding_evaluations: int = 0


@dataclass(frozen=True, slots=True)
class AgentResult:
    """A finished segment of a run. `message` is the assistant's last text, also as `text`.

    `interrupts` are the questions for which it paused; answer them with `agent.resume`.
    """

    message: str
    state: AgentState
    stop_reason: StopReason
    metrics: Metrics
    interrupts: tuple[InterruptEvent, ...] = ()

    @property
    def text(self) -> str:
        """The assistant's last text."""
        return self.message

    @property
    def final_message(self) -> str | None:
        """The assistant's last text, None if there is none."""
        return self.message or None

    @property
    def success(self) -> bool:
        """True for `complete`, `terminal_tool` and `confidence_met` alone."""
        return self.stop_reason in SUCCESSES

    @property
    def iterations(self) -> int:
        """Turns completed."""
        return self.state.iteration

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation."""
        return self.state.messages

    @property
    def tool_executions(self) -> Sequence[ToolExecution]:
        """Every call that got a result."""
        return self.state.tool_executions

    @property
    def confidence(self) -> float:
        """Reflexion's confidence at the end, 0 to 1."""
        return self.state.confidence

    @property
    def grounding_score(self) -> float | None:
        """How far the tools' results support the answer, 0 to 1; None if it was not judged."""
        return None if self.state.grounding is None else self.state.grounding.score

    @property
    def ungrounded_claims(self) -> tuple[str, ...]:
        """The claims of the answer that the tools' results do not support."""
        return () if self.state.grounding is None else self.state.grounding.ungrounded_claims

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.state.run_id

    @property
    def thread_id(self) -> str:
        """The run's thread."""
        return self.state.thread_id

    def __repr__(self) -> str:
        text = self.message if len(self.message) <= 60 else self.message[:57] + "..."
        return (
            f"AgentResult({text!r}, stop_reason={self.stop_reason!r}, "
            f"iterations={self.iterations}, tool_calls={self.metrics.tool_calls}, "
            f"tokens={self.metrics.total_tokens}, run_id={self.run_id!r})"
        )
