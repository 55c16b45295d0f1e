"""The dispatcher's queue."""

from __future__ import annotations

import pytest

from tulip_actors.core.calls import CallKey
from tulip_actors.runtime.fair_queue import FairQueue


def key(run_id: str, slot: int) -> CallKey:
    return CallKey(run_id, 0, slot)


def test_runs_take_turns_and_keep_their_own_order() -> None:
    queue = FairQueue()
    for slot in range(3):
        queue.push(key("a", slot))
    for slot in range(2):
        queue.push(key("b", slot))
    taken = [queue.pop() for _ in range(len(queue))]
    assert taken == [key("a", 0), key("b", 0), key("a", 1), key("b", 1), key("a", 2)]


def test_a_late_run_is_next_in_turn_whatever_waits_before_it() -> None:
    queue = FairQueue()
    for slot in range(1000):
        queue.push(key("a", slot))
    queue.pop()
    queue.push(key("b", 0))
    assert key("b", 0) in [queue.pop(), queue.pop()]


def test_an_empty_queue_says_so() -> None:
    queue = FairQueue()
    assert not queue
    assert len(queue) == 0
    with pytest.raises(IndexError):
        queue.pop()
