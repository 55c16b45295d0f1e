"""An agent as the host conducts it: the loop, from a request to an AgentResult."""

from __future__ import annotations

from tulip_actors.core.ports import ChatModel, RunContext
from tulip_actors.loop.config import AgentConfig
from tulip_actors.loop.finish import final_text
from tulip_actors.loop.loop import run_loop
from tulip_actors.loop.nodes import Setup
from tulip_actors.loop.result import AgentResult, Metrics
from tulip_actors.memory.fold import standing
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
        state, ending = await run_loop(setup, stands, ctx)
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
                duration_ms=ctx.elapsed_s * 1000,
                reflexion_evaluations=len(state.confidence_history),
                grounding_evaluations=state.grounding_evaluations,
            ),
        )

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
