"""Hooks that write what happens to Python's logging.

Neither logs what people or tools said: prompts, answers, arguments and results may hold personal
data. What is logged is what happened, to which run, and how long it took.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from tulip_actors.core.events import (
    InterruptEvent,
    ReflectEvent,
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
)
from tulip_actors.hooks.provider import HookPriority, HookProvider


def facts_of(event: TulipEvent) -> dict[str, object] | None:
    """What may be logged of an event; None for those that are not logged."""
    match event:
        case ThinkEvent(iteration=iteration, tool_calls=calls):
            return {"iteration": iteration, "tool_calls": [call.name for call in calls]}
        case ToolStartEvent(tool_name=name, tool_call_id=call_id):
            return {"tool": name, "call": call_id}
        case ToolCompleteEvent(tool_name=name, tool_call_id=call_id, error=error):
            ok = error is None
            return {"tool": name, "call": call_id, "ok": ok, "ms": round(event.duration_ms, 1)}
        case ReflectEvent(assessment=assessment, new_confidence=confidence):
            return {"assessment": assessment, "confidence": confidence}
        case InterruptEvent(interrupt_id=interrupt_id):
            return {"interrupt": interrupt_id}
        case TerminateEvent(reason=reason, stop_reason=stop_reason, iterations_used=turns):
            return {"reason": reason, "stop_reason": stop_reason, "turns": turns}
    return None


class LoggingHook(HookProvider):
    """One readable line per step, with the run's id. The last in the list sees what others did."""

    priority = HookPriority.LAST

    def __init__(self, logger: str = "tulip_actors.run", level: int = logging.INFO) -> None:
        self.logger = logger
        self.level = level

    def on_event(self, event: TulipEvent) -> None:
        """Log an event."""
        facts = facts_of(event)
        if facts is None:
            return
        source = event.source  # no run is current where a hook with runs_in = "caller" is called
        self.write(event.event_type, source.run_id if source else "-", facts)

    def write(self, event_type: str, run_id: str, facts: Mapping[str, object]) -> None:
        """Write one line."""
        told = " ".join(f"{name}={value}" for name, value in facts.items())
        logging.getLogger(self.logger).log(self.level, "%s %s %s", run_id, event_type, told)


class StructuredLoggingHook(LoggingHook):
    """The same as JSON, one object per line, at INFO by default."""

    def write(self, event_type: str, run_id: str, facts: Mapping[str, object]) -> None:
        """Write one line."""
        line = json.dumps({"event": event_type, "run_id": run_id, **facts}, default=str)
        logging.getLogger(self.logger).log(self.level, "%s", line)
