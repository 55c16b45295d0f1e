"""Calls that wait for a place, and the bounds that keep them waiting.

What may live here: whose turn it is. What a call is, and what becomes of it, is `call_book`'s.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import TypeAlias

from tulip_actors.core.calls import ToolRequest

_Group: TypeAlias = tuple[str, str]
"""A run and a tool. What one bound keeps waiting holds up no other group."""


class Limits:
    """How many calls may be in flight: of each agent, and of each of its tools.

    A call that waits for calls of its own gives its place back meanwhile. `of_each` bounds an agent
    that has no bound of its own.
    """

    def __init__(self, of_each: int | None = None) -> None:
        self._of_each = of_each
        self._of_agents: dict[str, int] = {}
        self._in_flight: Counter[tuple[str, str]] = Counter()

    def set(self, agent_id: str, max_concurrency: int | None) -> None:
        """Bound an agent's calls over all its runs; None takes the bound away."""
        if max_concurrency is None:
            self._of_agents.pop(agent_id, None)
        else:
            self._of_agents[agent_id] = max_concurrency

    def admit(self, request: ToolRequest) -> bool:
        """Whether one more call fits in now."""
        agent_id = request.scope.agent_id
        of_agent = self._of_agents.get(agent_id, self._of_each)
        of_tool = request.policy.max_concurrency
        return (of_agent is None or self._in_flight[agent_id, ""] < of_agent) and (
            of_tool is None or self._in_flight[agent_id, request.tool_name] < of_tool
        )

    def take(self, request: ToolRequest) -> None:
        """The call is in flight."""
        self._count(request, 1)

    def give_back(self, request: ToolRequest) -> None:
        """It is no more, or waits for others."""
        self._count(request, -1)

    def _count(self, request: ToolRequest, step: int) -> None:
        agent_id = request.scope.agent_id
        if self._of_each is not None or agent_id in self._of_agents:
            self._in_flight[agent_id, ""] += step
        if request.policy.max_concurrency is not None:
            self._in_flight[agent_id, request.tool_name] += step


class CallQueue:
    """First in, first out within a run and tool; the groups take turns, so that no run waits behind
    another's thousand."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._groups: OrderedDict[_Group, deque[ToolRequest]] = OrderedDict()
        self._length = 0

    def push(self, request: ToolRequest) -> None:
        """Add a call behind the others of its group. It stays, also when it ends meanwhile."""
        group = (request.key.run_id, request.tool_name)
        waiting = self._groups.get(group)
        if waiting is None:
            waiting = self._groups[group] = deque()
        waiting.append(request)
        self._length += 1

    def push_front(self, request: ToolRequest) -> None:
        """Add a call that had its turn already."""
        group = (request.key.run_id, request.tool_name)
        self._groups.setdefault(group, deque()).appendleft(request)
        self._groups.move_to_end(group, last=False)
        self._length += 1

    def pop(self) -> ToolRequest | None:
        """The next call that no bound keeps waiting, now in flight; None if there is none."""
        for group, waiting in self._groups.items():
            if not self._limits.admit(waiting[0]):
                continue
            request = waiting.popleft()
            self._length -= 1
            if waiting:
                self._groups.move_to_end(group)
            else:
                del self._groups[group]
            self._limits.take(request)
            return request
        return None

    def __len__(self) -> int:
        return self._length
