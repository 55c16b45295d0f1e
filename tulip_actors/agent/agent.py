"""`Agent`: a model, tools and a prompt, run by the loop in an actor of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal, TypedDict, Unpack

from tulip_actors.agent.handle import EventHandler
from tulip_actors.agent.runner import Runner, checked_id
from tulip_actors.agent.runtimes import runtime_named
from tulip_actors.agent.travel import check_that_it_travels
from tulip_actors.core.defaults import derived_id
from tulip_actors.core.ports import ChatModel, Runnable, RunStore
from tulip_actors.core.runs import OnBusy, Record, RunRequest
from tulip_actors.core.state import AgentState
from tulip_actors.core.termination import TerminationCondition
from tulip_actors.errors import ConfigError, ToolError
from tulip_actors.hooks.chain import observers
from tulip_actors.hooks.provider import HookProvider
from tulip_actors.host.ports import ActorOptions
from tulip_actors.loop.agent_runnable import AgentRunnable
from tulip_actors.loop.config import AgentConfig, GroundingConfig, ReflexionConfig, SystemPrompt
from tulip_actors.loop.result import AgentResult
from tulip_actors.memory.backends.memory import MemoryCheckpointer
from tulip_actors.memory.checkpointer import BaseCheckpointer, newest_first, state_at
from tulip_actors.memory.fold import checkpoints
from tulip_actors.tools.context import ToolContext
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.group import ToolGroup


class LoopOptions(TypedDict, total=False):
    """What the loop may be told beside model, tools and prompt; see `AgentConfig` for each."""

    max_iterations: int
    termination: TerminationCondition | None
    hooks: Sequence[HookProvider]
    reflexion: bool | ReflexionConfig | None
    grounding: GroundingConfig | None
    completion_mode: Literal["auto", "explicit"]
    terminal_tools: Sequence[str]
    tool_execution: Literal["concurrent", "sequential"]
    max_concurrency: int | None
    tool_loop_threshold: int
    tool_loop_compare: Literal["calls", "calls+results"]
    token_budget: int | None
    time_budget_seconds: float | None
    output_key: str | None
    checkpointer: BaseCheckpointer | RunStore | str | None
    checkpoint_every_n_iterations: int | None
    on_busy: OnBusy


class Agent(Runner[AgentResult]):
    """An agent. Nothing is started until its first run.

    With `runtime="ray"` (the default) its loop runs in an actor and its tools in Ray tasks; what is
    handed over here is copied when the actor starts, and later changes are seen on neither side.
    With `runtime="inline"` (or TULIP_RUNTIME=inline) everything runs in this process and is shared.
    One agent serves any number of runs at once. `callback_handler(event)` is called in the
    caller's process with every event of the runs that are awaited or iterated here, after the hooks
    with `runs_in = "caller"`; these are not in `config`, which travels to the actor.

    Raises `ConfigError`, naming the argument and what would be right; on Ray also for what cannot
    be sent to the actor (a lock, a connection, an open file), naming where it is.
    """

    def __init__(
        self,
        model: ChatModel | str,
        tools: Sequence[Tool | ToolGroup | Callable[..., object]] = (),
        system_prompt: SystemPrompt | None = None,
        *,
        name: str | None = None,
        runtime: str | None = None,
        actor: ActorOptions | None = None,
        namespace: str | None = None,
        callback_handler: EventHandler | None = None,
        **options: Unpack[LoopOptions],
    ) -> None:
        label = "agent" if name is None else name
        super().__init__(
            label,
            kind="agent",
            runtime=runtime,
            actor=actor,
            namespace=namespace,
            callback_handler=callback_handler,
        )
        config = AgentConfig.checked(
            name=label, model=model, tools=tools, system_prompt=system_prompt, **options
        )
        here = [hook for hook in config.hooks if hook.runs_in == "caller"]
        there = tuple(hook for hook in config.hooks if hook.runs_in == "actor")
        self._handlers = (*observers(here), *self._handlers)
        self.config = config.model_copy(update={"hooks": there})
        self._runnable = AgentRunnable(self.config)
        checkpointer = self.config.checkpointer
        if isinstance(checkpointer, MemoryCheckpointer):
            self._settle(checkpointer)
        if self.runtime == "ray":
            check_that_it_travels(self._runnable)

    @property
    def runnable(self) -> Runnable[object]:
        """The loop over this agent's config."""
        return self._runnable

    @property
    def on_busy(self) -> OnBusy:
        """What a run does whose thread another run holds."""
        return self.config.on_busy

    def as_tool(self, name: str | None = None, description: str | None = None) -> Tool:
        """This agent as a tool of another: a call is a run of it, and returns its text.

        The run's id follows from the call's key, and its events name the call as their parent. A
        run that does not succeed is the tool's error.
        """

        async def ask(prompt: Annotated[str, "what it is to do"], ctx: ToolContext) -> str:
            result = await self.result_of(
                RunRequest(
                    run_id=derived_id("run", ctx.run_id, ctx.idempotency_key),
                    thread_id=derived_id("run", ctx.run_id, ctx.idempotency_key),
                    input=prompt,
                    metadata=ctx.metadata,
                    parent_run_id=ctx.run_id,
                    parent_call_id=ctx.tool_call_id,
                )
            )
            if not result.success:
                raise ToolError(f"{self.name} stopped: {result.stop_reason}. {result.text}")
            return result.text

        told = description or f"Ask the agent {self.name!r}."
        return Tool(ask, name=name or self.name, description=told)

    async def get_state(self, thread_id: str) -> AgentState | None:
        """Where a thread stands: the state of its newest run, None if the thread has none.

        Of a run without a thread: give its run_id.
        """
        return state_at(await self._thread(thread_id))

    async def get_state_history(
        self, thread_id: str, limit: int | None = None
    ) -> Sequence[AgentState]:
        """The states at a thread's checkpoints, newest first: the ends of runs, pauses, and every
        `checkpoint_every_n_iterations`-th turn."""
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise ConfigError(f"limit: give a whole number from 1, or None, not {limit!r:.80}")
        records = await self._thread(thread_id)
        return newest_first([state for _, state in checkpoints(records)], limit)

    async def _thread(self, thread_id: str) -> Sequence[Record]:
        if thread_id is None:
            raise ConfigError("thread_id: give the id of a thread, or of a run that had none")
        checked_id("thread_id", thread_id)
        return await self._client.records(thread_id)

    async def model_trace(self) -> Sequence[object]:
        """What the agent's model double was asked so far (`ModelRequest`s), in its process."""
        return await self._client.model_trace()

    def _settle(self, checkpointer: MemoryCheckpointer) -> None:
        if self.runtime == "inline":
            checkpointer.use("this process", None)
            return
        runtime = runtime_named(self.runtime, self.namespace)
        where = f"the cluster's namespace {self.namespace!r}"
        checkpointer.use(where, partial(runtime.store, checkpointer.id))

    def __repr__(self) -> str:
        config = self.config
        model = config.model if isinstance(config.model, str) else type(config.model).__name__
        tools = ", ".join(config.tools) or "none"
        return (
            f"Agent({self.name!r}, model={model!r}, tools=[{tools}], "
            f"runtime={self.runtime!r}, id={self.id!r})"
        )
