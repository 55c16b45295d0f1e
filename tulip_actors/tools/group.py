"""Tools that come as a group, and what tools keep open in the process of their agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from tulip_actors.core.calls import CallKind
from tulip_actors.tools.decorator import Tool


@runtime_checkable
class ToolGroup(Protocol):
    """Stands in `tools=[...]` for several tools, which are known once it is expanded."""

    def expand(self) -> Sequence[Tool]:
        """The tools, for one agent. May ask a server, and wait. Raises `ConfigError`."""
        ...


@runtime_checkable
class Closable(Protocol):
    """A tool's function that keeps something open where it is called."""

    async def aclose(self) -> None:
        """Close what this process and event loop keep open; a later call opens it again."""
        ...


async def close_tools(tools: Iterable[Tool]) -> None:
    """Close what inline tools keep open, on the running event loop; for the end of their agent."""
    functions: list[object] = [tool.fn for tool in tools if tool.policy.kind is CallKind.INLINE]
    await asyncio.gather(*(fn.aclose() for fn in functions if isinstance(fn, Closable)))
