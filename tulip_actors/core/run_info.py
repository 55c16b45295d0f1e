"""A run as one sees it from outside: on a host, or in a store.

What may live here: data. Hosts make it of what they conduct, `memory.run_infos` of records.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class RunState(StrEnum):
    """How it stands with a run."""

    QUEUED = "queued"
    """It waits for its thread, and has not begun."""
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """It waits for an answer."""
    LEFT = "left"
    """It has not ended, and nobody conducts it: its process is gone, or was drained."""
    ENDED = "ended"
    UNREADABLE = "unreadable"
    """Its records are damaged, or of another release."""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A run at a glance. It is in its `state` since `since` (UTC). `agent` is the label of who
    conducts it, where that is known; `recoveries` counts how often it was taken up from its
    records; `stop_reason` is that of its last segment, once that has ended."""

    run_id: str
    thread_id: str
    agent: str | None
    agent_id: str
    state: RunState
    since: datetime | None
    recoveries: int = 0
    stop_reason: str | None = None


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run that a store has records of. `is_held` while somebody may write them who is there."""

    run_id: str
    thread_id: str
    is_held: bool
