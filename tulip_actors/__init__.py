"""LLM agents as Ray actors, tools as parallel Ray tasks, teams that pass messages.

The public names. Each is imported from its room when it is first asked for, so importing the
package is cheap, and neither Ray nor an HTTP client is loaded before something needs it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tulip_actors.agent import (
        ActorOptions,
        Agent,
        AgentConfig,
        AgentResult,
        AgentStatus,
        BusRecord,
        EventBus,
        RunHandle,
        RunStream,
        Team,
    )
    from tulip_actors.core.current import (
        current_run,
    )
    from tulip_actors.core.events import (
        AgentEvent,
        AgentRestartedEvent,
        AllEvents,
        CausalEdgeEvent,
        CausalNodeEvent,
        EventSource,
        GroundingEvent,
        InterruptEvent,
        LoopEvent,
        ModelChunkEvent,
        ModelCompleteEvent,
        OrchestratorDecisionEvent,
        ReflectEvent,
        RunRecoveredEvent,
        SpecialistCompleteEvent,
        SpecialistStartEvent,
        TerminateEvent,
        ThinkEvent,
        ToolCompleteEvent,
        ToolProgressEvent,
        ToolStartEvent,
        TulipEvent,
    )
    from tulip_actors.core.interrupt import (
        interrupt,
    )
    from tulip_actors.core.messages import (
        Message,
        Role,
        ToolCall,
        ToolResult,
    )
    from tulip_actors.core.ports import (
        ChatModel,
        RunContext,
        Runnable,
    )
    from tulip_actors.core.runs import (
        ModelResponse,
    )
    from tulip_actors.core.state import (
        AgentState,
        ToolExecution,
    )
    from tulip_actors.errors import (
        ActorLost,
        BusRestarted,
        ClusterError,
        ClusterUnreachable,
        ConfigError,
        InterruptNotPending,
        MissingExtra,
        ModelAuthError,
        ModelBadResponse,
        ModelError,
        ModelInvalidRequest,
        ModelNotFound,
        ModelThrottled,
        ModelUnavailable,
        NotSerialisable,
        RemoteError,
        RunCancelled,
        RunError,
        RunLost,
        RunNotFound,
        ScriptExhausted,
        StaleEpoch,
        StoreUnavailable,
        SubscriberLagged,
        ThreadBusy,
        ThreadForgotten,
        ToolArgumentsInvalid,
        ToolChanged,
        ToolError,
        ToolLost,
        ToolNotFound,
        ToolVetoed,
        TulipError,
        VersionMismatch,
    )
    from tulip_actors.hooks import (
        HookProvider,
    )
    from tulip_actors.loop.config import (
        GroundingConfig,
        ReflexionConfig,
    )
    from tulip_actors.models.registry import (
        get_model,
        register_provider,
    )
    from tulip_actors.tools import (
        Tool,
        ToolContext,
        tool,
    )
    from tulip_actors.tools.mcp import (
        MCPTools,
    )

_NAMES_OF = {
    "tulip_actors.agent": (
        "ActorOptions",
        "Agent",
        "AgentConfig",
        "AgentResult",
        "AgentStatus",
        "BusRecord",
        "EventBus",
        "RunHandle",
        "RunStream",
        "Team",
    ),
    "tulip_actors.tools": (
        "Tool",
        "ToolContext",
        "tool",
    ),
    "tulip_actors.tools.mcp": ("MCPTools",),
    "tulip_actors.core.events": (
        "AgentEvent",
        "AgentRestartedEvent",
        "AllEvents",
        "CausalEdgeEvent",
        "CausalNodeEvent",
        "EventSource",
        "GroundingEvent",
        "InterruptEvent",
        "LoopEvent",
        "ModelChunkEvent",
        "ModelCompleteEvent",
        "OrchestratorDecisionEvent",
        "ReflectEvent",
        "RunRecoveredEvent",
        "SpecialistCompleteEvent",
        "SpecialistStartEvent",
        "TerminateEvent",
        "ThinkEvent",
        "ToolCompleteEvent",
        "ToolProgressEvent",
        "ToolStartEvent",
        "TulipEvent",
    ),
    "tulip_actors.core.interrupt": ("interrupt",),
    "tulip_actors.core.messages": (
        "Message",
        "Role",
        "ToolCall",
        "ToolResult",
    ),
    "tulip_actors.core.state": (
        "AgentState",
        "ToolExecution",
    ),
    "tulip_actors.core.runs": ("ModelResponse",),
    "tulip_actors.core.ports": (
        "ChatModel",
        "RunContext",
        "Runnable",
    ),
    "tulip_actors.core.current": ("current_run",),
    "tulip_actors.models.registry": (
        "get_model",
        "register_provider",
    ),
    "tulip_actors.errors": (
        "ActorLost",
        "BusRestarted",
        "ClusterError",
        "ClusterUnreachable",
        "ConfigError",
        "InterruptNotPending",
        "MissingExtra",
        "ModelAuthError",
        "ModelBadResponse",
        "ModelError",
        "ModelInvalidRequest",
        "ModelNotFound",
        "ModelThrottled",
        "ModelUnavailable",
        "NotSerialisable",
        "RemoteError",
        "RunCancelled",
        "RunError",
        "RunLost",
        "RunNotFound",
        "ScriptExhausted",
        "StaleEpoch",
        "StoreUnavailable",
        "SubscriberLagged",
        "ThreadBusy",
        "ThreadForgotten",
        "ToolArgumentsInvalid",
        "ToolChanged",
        "ToolError",
        "ToolLost",
        "ToolNotFound",
        "ToolVetoed",
        "TulipError",
        "VersionMismatch",
    ),
    "tulip_actors.hooks": ("HookProvider",),
    "tulip_actors.loop.config": ("GroundingConfig", "ReflexionConfig"),
}
_ROOM_OF = {name: room for room, names in _NAMES_OF.items() for name in names}

__all__ = [
    "ActorLost",
    "ActorOptions",
    "Agent",
    "AgentConfig",
    "AgentEvent",
    "AgentRestartedEvent",
    "AgentResult",
    "AgentState",
    "AgentStatus",
    "AllEvents",
    "BusRecord",
    "BusRestarted",
    "CausalEdgeEvent",
    "CausalNodeEvent",
    "ChatModel",
    "ClusterError",
    "ClusterUnreachable",
    "ConfigError",
    "EventBus",
    "EventSource",
    "GroundingConfig",
    "GroundingEvent",
    "HookProvider",
    "InterruptEvent",
    "InterruptNotPending",
    "LoopEvent",
    "MCPTools",
    "Message",
    "MissingExtra",
    "ModelAuthError",
    "ModelBadResponse",
    "ModelChunkEvent",
    "ModelCompleteEvent",
    "ModelError",
    "ModelInvalidRequest",
    "ModelNotFound",
    "ModelResponse",
    "ModelThrottled",
    "ModelUnavailable",
    "NotSerialisable",
    "OrchestratorDecisionEvent",
    "ReflectEvent",
    "ReflexionConfig",
    "RemoteError",
    "Role",
    "RunCancelled",
    "RunContext",
    "RunError",
    "RunHandle",
    "RunLost",
    "RunNotFound",
    "RunRecoveredEvent",
    "RunStream",
    "Runnable",
    "ScriptExhausted",
    "SpecialistCompleteEvent",
    "SpecialistStartEvent",
    "StaleEpoch",
    "StoreUnavailable",
    "SubscriberLagged",
    "Team",
    "TerminateEvent",
    "ThinkEvent",
    "ThreadBusy",
    "ThreadForgotten",
    "Tool",
    "ToolArgumentsInvalid",
    "ToolCall",
    "ToolChanged",
    "ToolCompleteEvent",
    "ToolContext",
    "ToolError",
    "ToolExecution",
    "ToolLost",
    "ToolNotFound",
    "ToolProgressEvent",
    "ToolResult",
    "ToolStartEvent",
    "ToolVetoed",
    "TulipError",
    "TulipEvent",
    "VersionMismatch",
    "current_run",
    "get_model",
    "interrupt",
    "register_provider",
    "tool",
]


def __getattr__(name: str) -> object:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'tulip_actors' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_ROOM_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
