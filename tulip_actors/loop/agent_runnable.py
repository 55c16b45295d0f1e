"""An agent as the host conducts it: the loop, from a request to an AgentResult."""

from __future__ import annotations

from collections.abc import Sequence

from tulip_actors.core.ports import ChatModel, RunContext
from tulip_actors.core.runs import Answered, Record, RunEnded, RunStarted
from tulip_actors.core.state import AgentState
from tulip_actors.core.termination import Ending, stop_reason_of
from tulip_actors.errors import ToolChanged
from tulip_actors.loop.config import AgentConfig
from tulip_actors.loop.finish import final_text
from tulip_actors.loop.loop import run_loop
from tulip_actors.loop.nodes import Setup
from tulip_actors.loop.result import AgentResult, Metrics
from tulip_actors.loop.turn import asked
from tulip_actors.memory.fold import PendingTurn, Standing, standing
from tulip_actors.models.registry import get_model


class AgentRunnable:
    """Conducts the runs of one agent. The model is made once, in the process that uses it."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self._setup: Setup | None = None

    @property
    def name(self) -> str:
        """The agent's label."""
        return self.config.name

    async def conduct(self, input: str, ctx: RunContext) -> AgentResult:
        """Run the loop from where the run stands in its thread."""
        setup = self.setup(ctx.agent_id)
        if setup.hooks.sees_events:
            ctx.watch_events(setup.hooks.saw)
        stands = standing([*await ctx.thread_records(), *ctx.records])
        return _result(ctx, *await run_loop(setup, stands, ctx), ctx.elapsed_s * 1000)

    def check(self, thread: Sequence[Record]) -> None:
        """Raise `ToolChanged` when a call that is not over is of a tool that is another now."""
        stands = standing(thread)
        turn = stands.turn or PendingTurn()
        for slot, intent in turn.intents.items():
            tools, name = self.config.tools, intent.tool_name
            if slot in turn.executions or not intent.schema_hash:
                continue
            if name not in tools or tools[name].schema_hash != intent.schema_hash:
                raise _changed(stands.state.run_id, name, is_gone=name not in tools)

    async def recall(self, ctx: RunContext) -> AgentResult:
        """The result of a run that has ended."""
        stands = standing([*await ctx.thread_records(), *ctx.records])
        return _result(ctx, stands.state, *_ended_as(ctx.records, stands))

    def setup(self, toolset: str) -> Setup:
        """The agent as its loop sees it."""
        if self._setup is None:
            self._setup = Setup.of(self.config, self.model, toolset)
        return self._setup

    @property
    def model(self) -> ChatModel:
        """The agent's model."""
        if self._setup is not None:
            return self._setup.model
        model = self.config.model
        return get_model(model) if isinstance(model, str) else model


def _changed(run_id: str, name: str, *, is_gone: bool) -> ToolChanged:
    now = "which the agent has no more" if is_gone else "which takes other arguments now"
    return ToolChanged(
        f"run {run_id} cannot go on: a call of {name} is not over, {now}. Nothing was executed and "
        f"the run is as it was: attach to it, or answer it, with an agent that has {name} as it "
        "was; or begin another run in its thread, which gives the call up",
        run_id=run_id,
    )


def _result(ctx: RunContext, state: AgentState, ending: Ending, duration_ms: float) -> AgentResult:
    return AgentResult(
        message=final_text(state),
        state=state,
        stop_reason=ending.stop_reason,
        interrupts=ending.interrupts,
        metrics=Metrics(
            tool_calls=state.calls_made,
            tool_errors=sum(
                not execution.success
                for execution in state.tool_executions
                if execution.run_id == ctx.run_id
            ),
            prompt_tokens=state.prompt_tokens_used,
            completion_tokens=state.completion_tokens_used,
            total_tokens=state.total_tokens_used,
            duration_ms=duration_ms,
            reflexion_evaluations=len(state.confidence_history),
            grounding_evaluations=state.grounding_evaluations,
        ),
    )


def _ended_as(records: Sequence[Record], stands: Standing) -> tuple[Ending, float]:
    """How the last segment of a run ended, and how many milliseconds it took."""
    ended = next(one for one in reversed(records) if isinstance(one, RunEnded))
    pending = stands.turn.open.values() if stands.turn is not None else ()
    interrupts = tuple(map(asked, pending)) if ended.stop_reason == "interrupted" else ()
    began = next(one for one in reversed(records) if isinstance(one, Answered | RunStarted))
    took_ms = (ended.at - began.at).total_seconds() * 1000
    stop_reason = stop_reason_of(ended.stop_reason)
    return Ending(ended.reason, stop_reason, interrupts=interrupts), took_ms
