"""What makes an agent, checked when it is made."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from tulip_actors.core.current import PRINCIPAL
from tulip_actors.core.interrupt import interrupt
from tulip_actors.core.ports import ChatModel, Grounder, RunStore
from tulip_actors.core.runs import OnBusy
from tulip_actors.core.termination import TerminationCondition
from tulip_actors.errors import ConfigError
from tulip_actors.hooks.chain import overrides
from tulip_actors.hooks.provider import STEERING, HookProvider
from tulip_actors.memory.checkpointer import BaseCheckpointer
from tulip_actors.memory.urls import checkpointer_of
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.registry import ToolRegistry

DEFAULT_MAX_ITERATIONS = 20
DEFAULT_TOOL_LOOP_THRESHOLD = 3

Prompt: TypeAlias = str | None
SystemPrompt: TypeAlias = str | Callable[[Mapping[str, object]], Prompt | Awaitable[Prompt]]
"""Text, or a function (plain or async) of the run's metadata that gives it when a thread begins."""


def _said(problem: ErrorDetails) -> str:
    field = ".".join(map(str, problem["loc"]))
    what = problem["msg"].removeprefix("Value error, ")
    return f"{field}: {what}, not {problem['input']!r:.80}"


class _Part(BaseModel):
    """A config that is part of an agent's. Raises `ConfigError`, as that does."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True
    )

    def __init__(self, **fields: object) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            told = "; ".join(_said(one) for one in error.errors(include_url=False))
            raise ConfigError(f"{type(self).__name__}: {told}") from None


class ReflexionConfig(_Part):
    """When and how the loop evaluates itself.

    `evaluate_every_n_iterations` counts turns from 1. `include_guidance` lets the model read what
    the evaluation advises. `diminishing_returns` scales a rise by what is missing to 1.
    """

    evaluate_every_n_iterations: Annotated[int, Field(ge=1)] = 1
    include_guidance: bool = True
    diminishing_returns: bool = True


def _no_dict(value: object) -> object:
    if isinstance(value, dict):
        raise ValueError("not a config")
    return value


def _evaluator(value: object) -> object:
    evaluate = getattr(value, "evaluate", None)
    if isinstance(value, type) or not inspect.iscoroutinefunction(evaluate):
        raise ValueError("give an object with async evaluate(answer, evidence) -> GroundingResult")
    return value


class GroundingConfig(_Part):
    """How the final answer is checked against what the tools returned.

    `evaluator` judges; an answer whose score is below `threshold` is sent back, at most
    `max_replans` times, and then returned as "grounding_failed".
    """

    evaluator: Annotated[Grounder, BeforeValidator(_evaluator)]
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.65
    max_replans: Annotated[int, Field(ge=0)] = 2


def _model(value: object) -> object:
    if isinstance(value, ChatModel) and isinstance(value, type):
        raise ValueError("a class, not an object")
    if isinstance(value, str) and not value.strip():
        raise ValueError("no name")
    return value


def _tools(value: object) -> object:
    return ToolRegistry(value) if isinstance(value, list | tuple) else value


def _hooks(value: object) -> object:
    hooks = tuple(value) if isinstance(value, list) else value
    for hook in hooks if isinstance(hooks, tuple) else ():
        if isinstance(hook, HookProvider):
            _check_hook(hook)
    return hooks


def _check_hook(hook: HookProvider) -> None:
    name = type(hook).__name__
    if not isinstance(hook.priority, int):
        raise ConfigError(f"hooks: the priority of {hook!r:.80} is no number")
    if inspect.iscoroutinefunction(hook.on_event):
        raise ConfigError(
            f"hooks: on_event of {name} is async, but events are not awaited; write it plain"
        )
    where: object = hook.runs_in
    if where not in ("actor", "caller"):
        raise ConfigError(f"hooks: runs_in of {name} is 'actor' or 'caller', not {where!r:.80}")
    steers = [callback for callback in STEERING if overrides(hook, callback)]
    if where == "caller" and steers:
        raise ConfigError(
            f"hooks: {name} has {', '.join(steers)}, which the loop waits for, so it cannot have "
            "runs_in = 'caller': that is for hooks with on_event alone"
        )


def _names(value: object) -> object:
    if isinstance(value, list | tuple | set) and all(isinstance(one, str) for one in value):
        return frozenset(value)
    return value


def _reflexion(value: object) -> object:
    if isinstance(value, bool):
        return ReflexionConfig() if value else None
    if isinstance(value, dict):
        raise ValueError("not a config")
    return value


def _checkpointer(value: object) -> object:
    return checkpointer_of(value) if isinstance(value, str) else value


class AgentConfig(BaseModel):
    """Everything the loop needs to know of an agent.

    `model` is a ChatModel, or "provider:name", made where the loop runs. `termination` is checked
    beside the built-in caps: `max_iterations` turns, `token_budget`, `time_budget_seconds` of
    wall-clock time. A tool named in `terminal_tools` ends the run once it has succeeded. With
    `completion_mode="explicit"` an answer in text does not end the run; the tool
    `task_complete(summary)` does. `output_key` names the metadata entry that gets the final text.
    `checkpointer` is where the records of threads are kept, or the URL of that; there is a
    checkpoint at the end of every run, before it pauses, and every
    `checkpoint_every_n_iterations` turns.
    `max_concurrency` bounds the tool calls in flight over all runs.
    `on_busy` says what a run does whose thread another run holds: "refuse" raises `ThreadBusy`,
    "wait" goes on with the conversation once the thread is free.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True
    )

    name: str = Field(description="give a label such as 'reviewer'")
    model: Annotated[ChatModel | str, BeforeValidator(_model)] = Field(
        description="give 'provider:name' or an object with "
        "async complete(messages, tools=None, **settings)"
    )
    tools: Annotated[ToolRegistry, BeforeValidator(_tools)] = Field(
        description="give a list of tools"
    )
    system_prompt: SystemPrompt | None = Field(
        None, description="give text, or a function of the run's metadata that returns it"
    )
    max_iterations: int = Field(
        DEFAULT_MAX_ITERATIONS, ge=1, description="give a whole number of turns from 1"
    )
    termination: TerminationCondition | None = Field(
        None, description="give a condition such as MaxIterations(10) | ToolCalled('x')"
    )
    hooks: Annotated[tuple[HookProvider, ...], BeforeValidator(_hooks)] = Field(
        (), description="give a list of HookProvider objects"
    )
    reflexion: Annotated[ReflexionConfig | None, BeforeValidator(_reflexion)] = Field(
        None, description="give True, False or ReflexionConfig(...)"
    )
    grounding: Annotated[GroundingConfig | None, BeforeValidator(_no_dict)] = Field(
        None, description="give GroundingConfig(evaluator=...); a judge of our own comes later"
    )
    completion_mode: Literal["auto", "explicit"] = Field(
        "auto", description="give 'auto' or 'explicit'"
    )
    terminal_tools: Annotated[frozenset[str], BeforeValidator(_names)] = Field(
        frozenset(), description="give a list of tool names"
    )
    tool_execution: Literal["concurrent", "sequential"] = Field(
        "concurrent", description="give 'concurrent' or 'sequential'"
    )
    max_concurrency: int | None = Field(
        None, ge=1, description="give a whole number of tool calls from 1, or None"
    )
    tool_loop_threshold: int = Field(
        DEFAULT_TOOL_LOOP_THRESHOLD, ge=2, description="give a whole number of turns from 2"
    )
    tool_loop_compare: Literal["calls", "calls+results"] = Field(
        "calls", description="give 'calls' or 'calls+results'"
    )
    token_budget: int | None = Field(
        None, ge=1, description="give a whole number of tokens from 1, or None"
    )
    time_budget_seconds: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="give a number of seconds above 0, or None"
    )
    output_key: str | None = Field(
        None, min_length=1, description="give the name of a metadata entry, or None"
    )
    on_busy: OnBusy = Field("refuse", description="give 'refuse' or 'wait'")

    checkpointer: Annotated[BaseCheckpointer | RunStore | None, BeforeValidator(_checkpointer)] = (
        Field(
            None,
            description="give a URL such as 'sqlite:///runs.db', MemoryCheckpointer(), "
            "FileCheckpointer(folder), SQLiteBackend(path) or a BaseCheckpointer of your own",
        )
    )
    checkpoint_every_n_iterations: int | None = Field(
        None, ge=1, description="give a whole number of turns from 1, or None"
    )

    @classmethod
    def checked(cls, **fields: object) -> AgentConfig:
        """A config, or `ConfigError` that names the field and says what would be right."""
        try:
            config = cls.model_validate(fields)
        except ValidationError as error:
            told = {str(one["loc"][0]): _told(one) for one in error.errors()}
            raise ConfigError("; ".join(told.values())) from None
        if config.completion_mode == "explicit":
            config = config._with_task_complete()
        if config.output_key == PRINCIPAL:
            raise ConfigError(
                f"output_key: {PRINCIPAL!r} says on whose behalf a run is; give another name"
            )
        unknown = config.terminal_tools - set(config.tools)
        if unknown:
            raise ConfigError(
                f"terminal_tools: there is no tool {', '.join(sorted(unknown))}; "
                f"the tools are: {', '.join(config.tools) or 'none at all'}"
            )
        return config

    def _with_task_complete(self) -> AgentConfig:
        tools = ToolRegistry([*self.tools.values(), Tool(task_complete), Tool(ask_user)])
        return self.model_copy(
            update={
                "tools": tools,
                "terminal_tools": self.terminal_tools | {task_complete.__name__},
            }
        )


def task_complete(summary: str) -> str:
    """Say that the task is done. Call this, and nothing else, when you have finished.

    Args:
        summary: the final answer, complete in itself
    """
    return summary


def ask_user(question: str, options: list[str] | None = None) -> str:
    """Ask the user something you cannot go on without, and wait for the answer.

    Args:
        question: what to ask
        options: the answers to choose from, if there are only some
    """
    return str(interrupt(question, options))


def _told(problem: ErrorDetails) -> str:
    """One problem as a sentence: the field, what would be right, what was given."""
    name = str(problem["loc"][0])
    raised = problem.get("ctx", {}).get("error")
    if isinstance(raised, ConfigError):  # says more than the field's description
        return raised.message
    given = problem["input"]
    field = AgentConfig.model_fields.get(name)
    if field is None:
        return f"{name}: there is no such option; the options are: {', '.join(_OPTIONS)}"
    return f"{name}: {field.description}, not {given!r:.80}"


_OPTIONS = tuple(AgentConfig.model_fields)
