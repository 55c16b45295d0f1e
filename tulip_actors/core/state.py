"""The value that flows through the loop.

What may live here: data and the ways to make a changed copy of it. No rule decides anything here;
conditions and the loop do that. Every update costs the same at message 10,000 as at message 10:
sequences are `History` views, and the running sums that conditions ask for are kept, not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Self, TypeAlias

from pydantic import TypeAdapter, ValidationError

from tulip_actors.core.frozen import EMPTY, FrozenDict, Json, JsonObject, freeze_object
from tulip_actors.core.grounding import GroundingResult
from tulip_actors.core.history import History
from tulip_actors.core.messages import Message
from tulip_actors.core.quick import quick_init
from tulip_actors.errors import NotSerialisable

CHECKPOINT_VERSION = 1
_new, _set = object.__new__, object.__setattr__

Usage: TypeAlias = Mapping[str, int]
"""`prompt_tokens`, `completion_tokens`, `total_tokens`."""


@quick_init
@dataclass(frozen=True, slots=True)
class ToolExecution:
    """A tool call that got its one result: `result` on success, `error` otherwise.

    `result` is the serialised text the model sees. A tool that returned None succeeded, with the
    result "null".
    """

    tool_name: str
    tool_call_id: str
    arguments: JsonObject = EMPTY
    result: str | None = None
    error: str | None = None
    duration_ms: float = 0.0
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))
    idempotent_cache_hit: bool = False
    run_id: str = ""

    def __post_init__(self) -> None:
        if type(self.arguments) is not FrozenDict:
            frozen = freeze_object(self.arguments, f"arguments of {self.tool_name}")
            object.__setattr__(self, "arguments", frozen)

    @property
    def success(self) -> bool:
        """True when the body returned."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class ReasoningStep:
    """The model's text of one turn, kept beside the messages for reflexion and readers."""

    iteration: int
    thought: str
    tool_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class AgentState:
    """One run's state. Frozen: every `with_...` returns a new one that shares what did not change.

    `iteration` counts completed turns. `thread_length` is the number of messages that earlier runs
    left, `opening_length` that before the run's first turn, `executions_before_turn` the number of
    calls before the present turn; `calls_made`, `tools_called` and `tools_succeeded` are of this
    run. `confidence` stays within 0 and 1. `metadata` is JSON-able, checked on entry, handed out
    read-only. `paused_run` is filled in by a checkpoint of a run that waits for answers: its
    records, for whoever resumes it from there.
    """

    run_id: str
    thread_id: str
    agent_id: str
    messages: History[Message] = field(default_factory=History)
    tool_executions: History[ToolExecution] = field(default_factory=History)
    reasoning_steps: History[ReasoningStep] = field(default_factory=History)
    iteration: int = 0
    confidence: float = 0.0
    confidence_history: History[float] = field(default_factory=History)
    total_tokens_used: int = 0
    prompt_tokens_used: int = 0
    completion_tokens_used: int = 0
    metered: bool = False
    thread_length: int = 0
    opening_length: int = 0
    executions_before_turn: int = 0
    calls_made: int = 0
    tools_called: frozenset[str] = frozenset()
    tools_succeeded: frozenset[str] = frozenset()
    grounding: GroundingResult | None = None
    grounding_evaluations: int = 0
    errors: History[str] = field(default_factory=History)
    metadata: JsonObject = EMPTY
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    updated_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    paused_run: tuple[JsonObject, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "metadata", freeze_object(self.metadata, "metadata"))

    def _changed(self, **changes: object) -> Self:
        """A copy with some fields changed; what they hold is checked already.

        A tenth of the time of `dataclasses.replace`, which sets all fields one by one; a turn makes
        half a dozen copies.
        """
        values = self.__dict__.copy()
        values.update(changes)
        copy = _new(self.__class__)
        _set(copy, "__dict__", values)
        return copy

    def with_message(self, message: Message, usage: Usage | None = None) -> AgentState:
        """The state with one more message, and with what it took to get it."""
        messages = self.messages.with_items(message)
        if usage is None:
            return self._changed(messages=messages)
        return self._changed(messages=messages, **self._spent(usage))

    def with_messages(self, *messages: Message) -> AgentState:
        """The state with more messages, in order."""
        return self._changed(messages=self.messages.with_items(*messages))

    def with_tool_execution(self, execution: ToolExecution) -> AgentState:
        """The state with one more finished call; one of an earlier run is kept, not counted."""
        return self.with_results((execution,), ())

    def with_results(
        self, executions: Iterable[ToolExecution], messages: Iterable[Message]
    ) -> AgentState:
        """The state with finished calls, as `with_tool_execution` adds them, and messages."""
        run_id, made = self.run_id, self.calls_made
        called, succeeded = self.tools_called, self.tools_succeeded
        for execution in executions:
            name = execution.tool_name
            if execution.run_id != run_id:
                continue
            made += 1
            if name not in called:
                called |= {name}
            if execution.error is None and name not in succeeded:
                succeeded |= {name}
        return self._changed(
            tool_executions=self.tool_executions.with_items(*executions),
            messages=self.messages.with_items(*messages),
            calls_made=made,
            tools_called=called,
            tools_succeeded=succeeded,
        )

    def with_reasoning_step(self, step: ReasoningStep) -> AgentState:
        """The state with one more reasoning step."""
        return self._changed(reasoning_steps=self.reasoning_steps.with_items(step))

    def next_iteration(self, at: datetime | None = None) -> AgentState:
        """The state after one more completed turn, which ended `at` that time (None = now)."""
        return self._changed(
            iteration=self.iteration + 1,
            executions_before_turn=len(self.tool_executions),
            updated_at=at or datetime.now(UTC),
        )

    def with_confidence(self, confidence: float) -> AgentState:
        """The state with that confidence, clamped to 0..1."""
        clamped = min(1.0, max(0.0, confidence))
        return self._changed(
            confidence=clamped,
            confidence_history=self.confidence_history.with_items(clamped),
        )

    def adjust_confidence(self, delta: float) -> AgentState:
        """The state with the confidence changed by `delta`, clamped to 0..1."""
        return self.with_confidence(self.confidence + delta)

    def with_grounding(self, result: GroundingResult) -> AgentState:
        """The state with a judgement of its answer."""
        return self._changed(grounding=result, grounding_evaluations=self.grounding_evaluations + 1)

    def with_error(self, error: str) -> AgentState:
        """The state with one more error text."""
        return self._changed(errors=self.errors.with_items(error))

    def with_metadata(self, key: str, value: object) -> AgentState:
        """The state with one metadata entry set. Raises `NotSerialisable` naming path and type."""
        return self._changed(metadata=freeze_object({**self.metadata, key: value}, "metadata"))

    def with_token_usage(self, usage: Usage | None) -> AgentState:
        """The state with a model call's usage added; None (unmetered) changes nothing."""
        return self if usage is None else self._changed(**self._spent(usage))

    def _spent(self, usage: Usage) -> dict[str, object]:
        """The fields that a model call's usage changes."""
        prompt = usage.get("prompt_tokens", 0)
        completion = usage.get("completion_tokens", 0)
        total = usage.get("total_tokens", prompt + completion)
        return {
            "prompt_tokens_used": self.prompt_tokens_used + prompt,
            "completion_tokens_used": self.completion_tokens_used + completion,
            "total_tokens_used": self.total_tokens_used + total,
            "metered": True,
        }

    def said_last(self) -> Iterator[Message]:
        """The messages of this run since its opening, newest first."""
        return self.messages.newest(self.opening_length)

    @property
    def executions_of_turn(self) -> tuple[ToolExecution, ...]:
        """The calls of the present turn."""
        return self.tool_executions[self.executions_before_turn :]

    @property
    def usage(self) -> dict[str, int] | None:
        """The run's token usage so far, None when the provider reported none."""
        if not self.metered:
            return None
        return {
            "prompt_tokens": self.prompt_tokens_used,
            "completion_tokens": self.completion_tokens_used,
            "total_tokens": self.total_tokens_used,
        }

    def to_checkpoint(self) -> dict[str, Json]:
        """Everything as JSON-able data; `from_checkpoint` reads it back to an equal state."""
        plain: dict[str, Json] = _adapter().dump_python(self, mode="json")
        return {"version": CHECKPOINT_VERSION, **plain}

    @classmethod
    def from_checkpoint(cls, data: Mapping[str, Json]) -> AgentState:
        """The state a checkpoint holds. Raises `NotSerialisable`, naming what is wrong with it."""
        plain = dict(data)
        version = plain.pop("version", None)
        if version != CHECKPOINT_VERSION:
            raise NotSerialisable(
                f"checkpoint version {version!r} is not {CHECKPOINT_VERSION}: "
                "it was written by another release of tulip_actors",
                path="version",
            )
        try:
            return _adapter().validate_python(plain)
        except ValidationError as error:
            path = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise NotSerialisable(f"not a checkpoint: {error}", path=path) from error


@cache
def _adapter() -> TypeAdapter[AgentState]:
    return TypeAdapter(AgentState)
