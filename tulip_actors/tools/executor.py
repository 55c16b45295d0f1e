"""Looking for a call's result among those the thread has already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tulip_actors.core.frozen import Json, canonical
from tulip_actors.core.ports import ToolExecutor
from tulip_actors.core.state import ToolExecution

__all__ = ["ToolExecutor", "find_matching_execution"]


def find_matching_execution(
    executions: Sequence[ToolExecution], tool_name: str, arguments: Mapping[str, Json]
) -> ToolExecution | None:
    """The newest execution of that tool with equal arguments that succeeded, None if there is none.

    Equality is typed: 1, 1.0 and True differ. Failed executions are never a match.
    """
    wanted = canonical(arguments)
    for execution in reversed(executions):
        if (
            execution.tool_name == tool_name
            and execution.success
            and canonical(execution.arguments) == wanted
        ):
            return execution
    return None
