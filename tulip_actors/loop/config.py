"""What makes an agent, checked when it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tulip_actors.core.ports import ChatModel
from tulip_actors.core.termination import TerminationCondition
from tulip_actors.errors import ConfigError
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.registry import ToolRegistry

DEFAULT_MAX_ITERATIONS = 20


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Everything the loop needs to know of an agent.

    `model` is a ChatModel, or "provider:name", made where the loop runs. `termination` is checked
    beside the built-in cap of `max_iterations` turns.
    """

    name: str
    model: ChatModel | str
    tools: ToolRegistry
    system_prompt: str | None = None
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    termination: TerminationCondition | None = None

    @classmethod
    def checked(
        cls,
        *,
        name: str,
        model: object,
        tools: object,
        system_prompt: object,
        max_iterations: object,
        termination: object,
    ) -> AgentConfig:
        """A config, or `ConfigError` that names the field and says what would be right."""
        if isinstance(model, type) or not isinstance(model, str | ChatModel):
            raise ConfigError(
                "model: give 'provider:name' or an object with "
                f"async complete(messages, tools=None, **settings), not {model!r:.80}"
            )
        if not isinstance(tools, list | tuple):
            raise ConfigError(f"tools: give a list of tools, not {tools!r:.80}")
        if system_prompt is not None and not isinstance(system_prompt, str):
            raise ConfigError(f"system_prompt: give text, not {system_prompt!r:.80}")
        if isinstance(max_iterations, bool) or not isinstance(max_iterations, int):
            raise ConfigError(f"max_iterations: give a whole number, not {max_iterations!r:.80}")
        if max_iterations < 1:
            raise ConfigError(f"max_iterations: give at least 1 turn, not {max_iterations}")
        if termination is not None and not isinstance(termination, TerminationCondition):
            raise ConfigError(
                "termination: give a condition such as MaxIterations(10) | ToolCalled('x'), "
                f"not {termination!r:.80}"
            )
        listed: list[Tool | Callable[..., object]] = list(tools)
        return cls(name, model, ToolRegistry(listed), system_prompt, max_iterations, termination)
