"""One tool call as its executor keeps it.

What may live here: the data. What becomes of a call is `call_book`'s to say.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from tulip_actors.core.calls import (
    CallFinished,
    CallKey,
    CallLost,
    ToolOutcome,
    ToolPolicy,
    ToolRequest,
    ToolUpdate,
)
from tulip_actors.tools.children import ChildCall


class Why(StrEnum):
    """Why a call is stopped."""

    CANCELLED = "cancelled"
    TIMEOUT = "timeout"


Ticket: TypeAlias = str
"""Names the child calls of one `map`, for whoever waits for them."""


@dataclass(slots=True, eq=False)
class Call:
    """One call. `tries` are the bodies that were begun and ended badly; `shed` is one of which the
    outcome was too large to keep once it was told. `told` is what was told of it and of those under
    it, for a process that takes the place of its caller; `generation` is that of the caller."""

    request: ToolRequest
    client_id: str
    parent: Call | None = None
    ticket: Ticket | None = None
    queued_at_s: float = field(default_factory=time.time)
    queued: bool = False
    running: bool = False
    why: Why | None = None
    tries: int = 0
    ended: CallFinished | CallLost | None = None
    children: dict[int, Call] = field(default_factory=dict)
    shed: bool = False
    waits: int = 0
    followers: list[Call] = field(default_factory=list)
    deadline: asyncio.TimerHandle | None = None
    on_end: list[Callable[[], None]] = field(default_factory=list)
    told: list[ToolUpdate] = field(default_factory=list)
    generation: int = 0

    @property
    def key(self) -> CallKey:
        """The call's name."""
        return self.request.key

    @property
    def root(self) -> Call:
        """The model's call that this one is, or is under."""
        call = self
        while call.parent is not None:
            call = call.parent
        return call

    @property
    def attempt(self) -> int:
        """The number of this try, from 1, as the body is told."""
        return self.request.attempt + self.tries

    def below(self) -> Iterator[Call]:
        """The calls under this one, the deepest first."""
        for child in list(self.children.values()):
            yield from child.below()
            yield child


def child_requests(
    parent: ToolRequest,
    tool_name: str,
    policy: ToolPolicy,
    toolset: str,
    calls: Iterable[ChildCall],
) -> list[ToolRequest]:
    """The calls of a body as requests under its own."""
    return [
        parent._replace(
            key=parent.key.child(position),
            tool_name=tool_name,
            tool_call_id=f"{parent.tool_call_id}.{position}",
            arguments=arguments,
            toolset=toolset,
            policy=policy,
            parent_call_id=parent.tool_call_id,
            attempt=1,
            answers=(),
        )
        for position, arguments in calls
    ]


def outcome_of(ended: CallFinished | CallLost) -> ToolOutcome:
    """An end as a parent sees it: a lost call is an error."""
    if isinstance(ended, CallFinished):
        return ended.outcome
    return ToolOutcome(
        error=f"the worker died while it ran: {ended.reason}; its effect may have happened",
        error_type="tool_lost",
    )
