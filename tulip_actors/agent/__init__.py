"""What a user holds: agents, teams, and handles on their runs."""

from tulip_actors.agent.agent import Agent
from tulip_actors.agent.event_bus import BusRecord, EventBus
from tulip_actors.agent.handle import RunHandle, RunStream
from tulip_actors.agent.team import Team
from tulip_actors.host.ports import ActorOptions, AgentStatus
from tulip_actors.loop.config import AgentConfig, GroundingConfig, ReflexionConfig
from tulip_actors.loop.result import AgentResult

__all__ = [
    "ActorOptions",
    "Agent",
    "AgentConfig",
    "AgentResult",
    "AgentStatus",
    "BusRecord",
    "EventBus",
    "GroundingConfig",
    "ReflexionConfig",
    "RunHandle",
    "RunStream",
    "Team",
]
