"""What a file for `tulip-actors run` defines.

def job(target: Path, model: ChatModel) -> Job: ...     needed
def check(target: Path) -> None: ...                    raises ConfigError: nothing is started
DEFAULT_TARGET: Path = ...                              when no PATH is given; else the current
                                                        folder
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tulip_actors.agent.runner import Runner
from tulip_actors.core.events import TulipEvent
from tulip_actors.core.frozen import EMPTY

Deliver: TypeAlias = Callable[[Any, Sequence[TulipEvent], Path], Sequence[Path]]
"""`deliver(result, events, folder)` writes what the job leaves and returns the files' paths.

It is called once, in the program's own process, also after a failure or Ctrl-C: `result` is then
None and the events are those that came before.
"""

Problem: TypeAlias = Callable[[Any, Sequence[TulipEvent]], str | None]
"""`problem(result, events)` says why a finished job has failed all the same, None if it has not."""


def stated_problem(result: object, events: Sequence[TulipEvent]) -> str | None:
    """What the result itself says: its `error`, or its `stop_reason`, when `success` is false."""
    if getattr(result, "success", True):
        return None
    return str(getattr(result, "error", None) or f"stopped by {getattr(result, 'stop_reason', '')}")


@dataclass(frozen=True, slots=True)
class Job:
    """A team (or one agent), its task, and what to make of the outcome.

    `metadata` travels with the run to every tool.
    """

    team: Runner[Any]
    task: str
    deliver: Deliver
    metadata: Mapping[str, object] = EMPTY
    problem: Problem = stated_problem
