"""Equal calls of idempotent tools: one of a thread is made, and the others are given its result.

A model's own calls are compared by the loop, with the thread's record; here the calls of tools are,
and both with each other, as long as this executor lives.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from tulip_actors.core.calls import ToolOutcome, ToolRequest
from tulip_actors.core.frozen import canonical
from tulip_actors.host.call import Call, outcome_of

RESULTS_MAX = 10_000
"""Results that are kept for later calls of their threads."""
LIGHT_MAX = 100_000
"""Characters of text and bytes of value up to which a result is kept; a larger one is for those who
wait for it now."""

_Identity: TypeAlias = tuple[str, str, str]
"""Thread, tool, and arguments as text."""


class SharedCalls:
    """Who leads, who follows, and what was found."""

    def __init__(self) -> None:
        self._leaders: dict[_Identity, Call] = {}
        self._results: OrderedDict[_Identity, ToolOutcome] = OrderedDict()

    def joins(self, call: Call) -> bool:
        """Whether an equal call is being made, so that this one waits for it. The first leads."""
        leader = self._leaders.setdefault(_identity(call.request), call)
        if leader is not call:
            leader.followers.append(call)
        return leader is not call

    def result(self, request: ToolRequest) -> ToolOutcome | None:
        """What an equal call gave: no time, no body."""
        outcome = self._results.get(_identity(request))
        if outcome is None:
            return None
        return outcome._replace(duration_ms=0.0, queued_ms=0.0, worker_pid=None, node_id=None)

    def ended(self, call: Call) -> list[Call]:
        """A call has ended; returns those that waited for it, and now have its result or, if it has
        none to share, are to be made."""
        identity = _identity(call.request)
        outcome = outcome_of(call.ended) if call.ended is not None else ToolOutcome()
        if outcome.error is None and outcome.interrupt is None and is_light(outcome):
            self._results[identity] = outcome
            while len(self._results) > RESULTS_MAX:
                self._results.popitem(last=False)
        if self._leaders.get(identity) is call:
            del self._leaders[identity]
        followers, call.followers = call.followers, []
        return [follower for follower in followers if follower.ended is None]


def _identity(request: ToolRequest) -> _Identity:
    return request.scope.thread_id, request.tool_name, canonical(request.arguments)


def is_light(outcome: ToolOutcome) -> bool:
    """Whether a result may be kept for later. Within one process values are objects, and count
    nothing."""
    value_bytes = len(outcome.value) if isinstance(outcome.value, bytes) else 0
    return value_bytes + len(outcome.result or "") <= LIGHT_MAX
