"""The queue of calls, and the bounds on how many are in flight."""

from __future__ import annotations

from collections.abc import Sequence

from tulip_actors.core.calls import CallKey, CallScope, ToolPolicy, ToolRequest
from tulip_actors.host.call_queue import CallQueue, Limits


def request(
    run_id: str, slot: int, tool: str = "t", *, agent: str = "a", at_once: int | None = None
) -> ToolRequest:
    return ToolRequest(
        CallKey(run_id, 0, slot),
        tool,
        f"call_{slot}",
        {},
        CallScope(run_id, run_id, agent, agent),
        "toolset",
        ToolPolicy(max_concurrency=at_once),
    )


def queue_of(limits: Limits, *requests: ToolRequest) -> CallQueue:
    queue = CallQueue(limits)
    for one in requests:
        queue.push(one)
    return queue


def taken(queue: CallQueue) -> Sequence[tuple[str, int]]:
    keys = []
    while (one := queue.pop()) is not None:
        keys.append((one.key.run_id, one.key.slot))
    return keys


def test_runs_take_turns_and_keep_their_own_order() -> None:
    queue = queue_of(
        Limits(), *(request("a", n) for n in range(3)), *(request("b", n) for n in (0, 1))
    )
    assert taken(queue) == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]
    assert len(queue) == 0


def test_a_late_run_is_next_in_turn_whatever_waits_before_it() -> None:
    queue = queue_of(Limits(), *(request("a", n) for n in range(1000)))
    queue.pop()
    queue.push(request("b", 0))
    assert ("b", 0) in taken(queue)[:2]


def test_a_tool_at_its_bound_waits_and_holds_up_no_other() -> None:
    bounded = [request("a", n, "slow", at_once=2) for n in range(4)]
    queue = queue_of(limits := Limits(), *bounded, request("a", 9, "quick"))
    assert taken(queue) == [("a", 0), ("a", 9), ("a", 1)]
    limits.give_back(bounded[0])
    assert taken(queue) == [("a", 2)]


def test_an_agents_bound_counts_its_calls_over_all_runs_and_tools() -> None:
    limits = Limits()
    limits.set("a", 2)
    calls = [request(f"run_{n}", 0, f"tool_{n}") for n in range(4)]
    queue = queue_of(limits, *calls, request("other", 0, agent="b"))
    assert taken(queue) == [("run_0", 0), ("run_1", 0), ("other", 0)]
    limits.give_back(calls[0])
    limits.give_back(calls[1])
    assert taken(queue) == [("run_2", 0), ("run_3", 0)]


def test_a_call_that_comes_back_is_the_next() -> None:
    queue = queue_of(Limits(), request("a", 0), request("b", 0))
    queue.push_front(request("c", 0))
    assert taken(queue)[0] == ("c", 0)
