"""What every node is given, and how one that is torn out hands over what it had finished."""

from __future__ import annotations

from dataclasses import dataclass

from tulip_actors.core.ports import ChatModel
from tulip_actors.core.state import AgentState
from tulip_actors.loop.config import AgentConfig


@dataclass(frozen=True, slots=True)
class Setup:
    """An agent as its loop sees it: the config, the model made, the tools' place known.

    `toolset` is the id under which the executor holds the agent's tools.
    """

    config: AgentConfig
    model: ChatModel
    toolset: str


class NodeTorn(Exception):
    """The run was cancelled inside a node; `state` holds what had finished."""

    def __init__(self, state: AgentState) -> None:
        super().__init__("cancelled")
        self.state = state
