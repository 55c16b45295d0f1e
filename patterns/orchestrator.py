"""Orchestrator: choose the specialists a task needs, run them in parallel, say what they found.

invoke_specialist   a router, or a model answering by a schema, chooses; when its answer names
                    nobody, all are run and the decision says so
correlate           several reports are laid side by side
summarize           the model, if there is one, writes the answer from them
finalize            the result
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from tulip_actors import (
    ActorOptions,
    Agent,
    AgentResult,
    AgentState,
    ChatModel,
    ConfigError,
    MCPTools,
    Message,
    ModelAuthError,
    OrchestratorDecisionEvent,
    RunCancelled,
    RunContext,
    SpecialistCompleteEvent,
    SpecialistStartEvent,
    Team,
    Tool,
    TulipError,
)

Router = Callable[[str, Sequence["Specialist"]], Sequence[str]]
Decision = Literal["invoke_specialist", "correlate", "summarize", "finalize"]


class Specialist:
    """A member: an agent of its own, with its tools, in an actor of its own.

    `description` tells a router what it is good for. `model=None` takes the orchestrator's.
    `agent_options` are those of `Agent` (max_iterations, actor, ...).
    """

    def __init__(
        self,
        *,
        id: str,
        name: str | None = None,
        specialist_type: str | None = None,
        description: str = "",
        system_prompt: str | None = None,
        tools: Sequence[Tool | MCPTools | Callable[..., object]] = (),
        model: ChatModel | str | None = None,
        **agent_options: Any,
    ) -> None:
        if not isinstance(id, str) or not id.strip():
            raise ConfigError(f"id: give a specialist a short name such as 'docs', not {id!r:.80}")
        self.id = id
        self.name = name or id
        self.specialist_type = specialist_type
        self.description = description
        self.system_prompt = system_prompt
        self.tools = tuple(tools)
        self.model = model
        self.agent_options = agent_options

    def agent(self, model: ChatModel | str | None, runtime: str, namespace: str) -> Agent:
        """The agent that does this specialist's work."""
        chosen = self.model if self.model is not None else model
        if chosen is None:
            raise ConfigError(
                f"specialist {self.id!r} has no model: give it one, or give the orchestrator one"
            )
        options = {"runtime": runtime, "namespace": namespace, **self.agent_options}
        return Agent(chosen, self.tools, self.system_prompt, name=self.name, **options)

    def __repr__(self) -> str:
        return f"Specialist({self.id!r}, tools={list(self.tools)})"


@dataclass(frozen=True, slots=True)
class SpecialistResult:
    """What one specialist gave. `state` holds its messages and tool results."""

    specialist_id: str
    specialist_type: str | None
    output: str
    confidence: float
    duration_ms: float
    state: AgentState | None
    error: str | None
    success: bool


@dataclass(frozen=True, slots=True)
class OrchestratorResult:
    """What the team gave. `success` is false when any specialist failed; results are kept."""

    success: bool
    summary: str
    specialist_results: Mapping[str, SpecialistResult]
    decisions: Sequence[OrchestratorDecisionEvent]
    duration_ms: float
    error: str | None
    stop_reason: str
    run_id: str
    interrupts: Sequence[object] = ()

    @property
    def final_message(self) -> str | None:
        """The summary."""
        return self.summary or None

    def __repr__(self) -> str:
        each = ", ".join(
            f"{one.specialist_id}: {'ok' if one.success else 'failed'}"
            for one in self.specialist_results.values()
        )
        return f"OrchestratorResult(success={self.success}, [{each}], run_id={self.run_id!r})"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which specialists, and why."""

    ids: tuple[str, ...]
    reasoning: str


class Orchestrator(Team[OrchestratorResult]):
    """A team of specialists. `await orchestrator.arun(task)`, or iterate `orchestrator.run(task)`.

    `router(task, specialists)` returns the ids to run; without one `model` chooses; without either
    all are run. At most `max_parallel_specialists` run at once.
    """

    def __init__(
        self,
        *,
        specialists: Sequence[Specialist],
        name: str = "orchestrator",
        model: ChatModel | str | None = None,
        router: Router | None = None,
        max_parallel_specialists: int = 5,
        runtime: str | None = None,
        actor: ActorOptions | None = None,
        namespace: str | None = None,
    ) -> None:
        super().__init__(name, runtime=runtime, actor=actor, namespace=namespace)
        if max_parallel_specialists < 1:
            raise ConfigError(
                f"max_parallel_specialists: give at least 1, not {max_parallel_specialists}"
            )
        self.specialists = {one.id: one for one in specialists}
        if not self.specialists:
            raise ConfigError("specialists: an orchestrator needs at least one Specialist")
        if len(self.specialists) < len(specialists):
            raise ConfigError("specialists: two specialists have the same id; rename one")
        self.model = model
        self.router = router
        self.max_parallel_specialists = max_parallel_specialists
        self._agents = {
            one.id: one.agent(model, self.runtime, self.namespace)
            for one in self.specialists.values()
        }

    def members(self) -> Sequence[Agent]:
        """The specialists' agents."""
        return list(self._agents.values())

    async def execute(self, task: str) -> OrchestratorResult:
        """The same as `arun(task)`."""
        return await self.arun(task)

    async def stop(self, drain_s: float = 0) -> None:
        """End the team and its specialists; running runs get `drain_s` to end."""
        await super().stop(drain_s)
        await asyncio.gather(*(agent.stop(drain_s) for agent in self._agents.values()))

    async def conduct(self, input: str, ctx: RunContext) -> OrchestratorResult:
        """Choose, run in parallel, correlate, summarise."""
        began_s = ctx.clock.monotonic_s()
        log = DecisionLog(ctx)
        choice = await self._choose(input, ctx)
        log.decide("invoke_specialist", choice.ids, choice.reasoning)
        places = asyncio.Semaphore(self.max_parallel_specialists)
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(self._invoke(self.specialists[one], input, ctx, places))
                for one in choice.ids
            ]
        results = {task.result().specialist_id: task.result() for task in running}
        failed = [one for one in results.values() if not one.success]
        if len(results) > 1:
            log.decide("correlate", tuple(results), _correlation(results, failed))
        summary = await self._summarise(input, results, ctx, log)
        log.decide("finalize", (), f"{len(results) - len(failed)} of {len(results)} succeeded")
        return OrchestratorResult(
            success=not failed and not ctx.cancel_requested,
            summary=summary,
            specialist_results=results,
            decisions=log.taken,
            duration_ms=(ctx.clock.monotonic_s() - began_s) * 1000,
            error="; ".join(f"{one.specialist_id}: {one.error}" for one in failed) or None,
            stop_reason=_stop_reason(ctx, failed),
            run_id=ctx.run_id,
        )

    async def _choose(self, task: str, ctx: RunContext) -> Choice:
        everyone = tuple(self.specialists)
        if self.router is not None:
            ids = tuple(dict.fromkeys(self.router(task, list(self.specialists.values()))))
            unknown = [one for one in ids if one not in self.specialists]
            if unknown or not ids:
                problem = f"named {unknown}" if unknown else "named nobody"
                return Choice(everyone, f"fallback to all specialists: the router {problem}")
            return Choice(ids, "chosen by the router")
        if self.model is None:
            return Choice(everyone, "all specialists: there is neither a router nor a model")
        try:
            response = await ctx.complete(
                self.model,
                self._routing_messages(task),
                key="route:0",
                response_format=self._routing_format(),
            )
        except (ModelAuthError, RunCancelled):
            raise  # no specialist would fare better
        except TulipError as error:
            return Choice(everyone, f"fallback to all specialists: the model failed: {error}")
        return self._read_choice(response.message.content)

    def _routing_messages(self, task: str) -> list[Message]:
        lines = [f"- {one.id}: {one.description or one.id}" for one in self.specialists.values()]
        return [
            Message.system(
                "Choose which specialists are needed for the task. Answer with JSON: "
                '{"specialists": [ids], "reasoning": "one sentence"}.\nSpecialists:\n'
                + "\n".join(lines)
            ),
            Message.user(task),
        ]

    def _routing_format(self) -> dict[str, object]:
        """A schema under which every answer names at least one specialist that exists."""
        schema = {
            "type": "object",
            "properties": {
                "specialists": {
                    "type": "array",
                    "items": {"enum": list(self.specialists)},
                    "minItems": 1,
                    "maxItems": len(self.specialists),
                },
                "reasoning": {"type": "string", "maxLength": 200},
            },
            "required": ["specialists", "reasoning"],
            "additionalProperties": False,
        }
        return {"type": "json_schema", "json_schema": {"name": "route", "schema": schema}}

    def _read_choice(self, answer: str) -> Choice:
        try:
            parsed = json.loads(answer)
            named = [str(one) for one in parsed["specialists"]]
            reasoning = str(parsed.get("reasoning", ""))
        except (ValueError, TypeError, KeyError, AttributeError):
            return Choice(
                tuple(self.specialists),
                f"fallback to all specialists: the routing answer was not usable: {answer[:120]!r}",
            )
        ids = tuple(dict.fromkeys(one for one in named if one in self.specialists))
        if not ids:
            return Choice(
                tuple(self.specialists),
                f"fallback to all specialists: the model named nobody who exists: {named}",
            )
        unknown = [one for one in named if one not in self.specialists]
        if unknown:
            reasoning += f" (nobody is called {', '.join(unknown)})"
        return Choice(ids, reasoning)

    async def _invoke(
        self, specialist: Specialist, task: str, ctx: RunContext, places: asyncio.Semaphore
    ) -> SpecialistResult:
        """One assignment: its start, the member's run, and exactly one complete."""
        key = f"round:0/{specialist.id}"
        async with places:
            run = Assignment.begin(specialist, task, ctx, ctx.child_run_id(key))
            try:
                result = await ctx.run(
                    self._agents[specialist.id], task, key=key, specialist_id=specialist.id
                )
            except asyncio.CancelledError:
                run.end(None, "cancelled")
                raise
            except Exception as error:  # a member's failure is its result, whatever it was
                return run.end(None, f"{type(error).__name__}: {error}")
            if not isinstance(result, AgentResult):
                return run.end(None, f"an agent gives an AgentResult, not {type(result).__name__}")
            error_text = None if result.success else f"stopped by {result.stop_reason}"
            return run.end(result, error_text)

    async def _summarise(
        self,
        task: str,
        results: Mapping[str, SpecialistResult],
        ctx: RunContext,
        log: DecisionLog,
    ) -> str:
        """The model's answer from the reports; the reports themselves when there is no model."""
        reports = "\n\n".join(f"{one.specialist_id}: {_report(one)}" for one in results.values())
        if self.model is None:
            return reports
        log.decide("summarize", tuple(results), None)
        try:
            response = await ctx.complete(
                self.model,
                [
                    Message.system("Answer the task from the specialists' reports, briefly."),
                    Message.user(f"Task: {task}\n\nReports:\n{reports}"),
                ],
                key="summarize",
            )
        except RunCancelled:
            raise
        except TulipError as error:
            return f"{reports}\n\n(The summary failed: {error})"
        return response.message.content or reports


@dataclass(slots=True)
class DecisionLog:
    """The decisions of one run, each also an event."""

    ctx: RunContext
    taken: list[OrchestratorDecisionEvent] = field(default_factory=list)

    def decide(self, decision: Decision, ids: tuple[str, ...], reasoning: str | None) -> None:
        """Take a decision."""
        event = OrchestratorDecisionEvent(
            decision=decision, specialists_selected=ids, reasoning=reasoning
        )
        self.taken.append(event)
        self.ctx.emit(event)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A specialist at work: the pair of its events."""

    specialist: Specialist
    ctx: RunContext
    run_id: str
    began_s: float

    @classmethod
    def begin(cls, specialist: Specialist, task: str, ctx: RunContext, run_id: str) -> Self:
        """Announce the start."""
        ctx.emit(
            SpecialistStartEvent(
                specialist_id=specialist.id,
                specialist_type=specialist.specialist_type,
                task=task,
                member_run_id=run_id,
            )
        )
        return cls(specialist, ctx, run_id, ctx.clock.monotonic_s())

    def end(self, result: AgentResult | None, error: str | None) -> SpecialistResult:
        """Announce the end, and what it gave."""
        duration_ms = (self.ctx.clock.monotonic_s() - self.began_s) * 1000
        output = result.message if result else ""
        confidence = result.confidence if result else 0.0
        self.ctx.emit(
            SpecialistCompleteEvent(
                specialist_id=self.specialist.id,
                specialist_type=self.specialist.specialist_type,
                member_run_id=self.run_id,
                result=output if error is None else None,
                error=error,
                confidence=confidence,
                duration_ms=duration_ms,
            )
        )
        return SpecialistResult(
            specialist_id=self.specialist.id,
            specialist_type=self.specialist.specialist_type,
            output=output,
            confidence=confidence,
            duration_ms=duration_ms,
            state=result.state if result else None,
            error=error,
            success=error is None,
        )


def _stop_reason(ctx: RunContext, failed: Sequence[SpecialistResult]) -> str:
    if ctx.cancel_requested:
        return "cancelled"
    return "error" if failed else "complete"


def _report(one: SpecialistResult) -> str:
    return one.output if one.error is None else f"(failed: {one.error})"


def _correlation(
    results: Mapping[str, SpecialistResult], failed: Sequence[SpecialistResult]
) -> str:
    names = ", ".join(one.specialist_id for one in failed)
    return f"{len(results)} reports" + (f", failed: {names}" if failed else "")
