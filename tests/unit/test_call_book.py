"""The lives of calls, without anything that runs them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tulip_actors.core.calls import (
    CallEmitted,
    CallFinished,
    CallKey,
    CallLost,
    CallScope,
    CallSetMetadata,
    CallStatus,
    CallSubmitted,
    ToolOutcome,
    ToolPolicy,
    ToolRequest,
    ToolUpdate,
)
from tulip_actors.core.frozen import FrozenDict
from tulip_actors.core.interrupt import InterruptRequest
from tulip_actors.host import call_book
from tulip_actors.host.call import Call, Why, child_requests
from tulip_actors.host.call_book import CallBook
from tulip_actors.host.call_queue import CallQueue
from tulip_actors.tools.children import ChildCall

GOOD = ToolOutcome(result="good", value="good")
BAD = ToolOutcome(error="ValueError: bad", error_type="ValueError")
ASKS = ToolOutcome(interrupt=InterruptRequest("ok?"))


class Bench:
    """A book, and bodies that a test begins and ends by hand."""

    def __init__(self) -> None:
        self.told: list[ToolUpdate] = []
        self.stopped: list[tuple[CallKey, Why | None]] = []
        self.has_stopped = asyncio.Event()
        self.book = CallBook(self, lambda client_id, update: self.told.append(update))
        self.queue = CallQueue(self.book.limits)

    def queue_of(self, request: ToolRequest) -> CallQueue:
        return self.queue

    def fill(self) -> None:
        pass

    def stop(self, call: Call) -> None:
        self.stopped.append((call.key, call.why))
        self.has_stopped.set()

    def submit(self, slot: int = 0, run: str = "run", attempt: int = 1, **policy: Any) -> CallKey:
        key = CallKey(run, 0, slot)
        scope = CallScope(run, "thread", "a", "a")
        arguments = FrozenDict(x=1)
        one = ToolRequest(
            key, "t", f"c{slot}", arguments, scope, "set", ToolPolicy(**policy), attempt=attempt
        )
        self.book.submit("client", one)
        return key

    def children(self, parent: Call, *positions: int, **policy: Any) -> None:
        calls = [ChildCall(position, FrozenDict(x=1)) for position in positions]
        made = child_requests(parent.request, "child", ToolPolicy(**policy), "set", calls)
        self.book.submit_children(parent, "ticket", made)

    def begin(self) -> Call:
        call = self.book.begin(self.queue)
        assert call is not None
        return call

    @property
    def ends(self) -> list[tuple[CallKey, ToolOutcome | str]]:
        return [
            (one.key, one.outcome if isinstance(one, CallFinished) else one.reason)
            for one in self.told
            if isinstance(one, CallFinished | CallLost)
        ]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(call_book, "RETRY_DELAY_S", 0.0)
    return Bench()


async def later() -> None:
    """Let what is due now happen."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_an_agent_is_told_a_result_without_the_value(bench: Bench) -> None:
    key = bench.submit()
    bench.book.finished(bench.begin(), GOOD)
    assert bench.ends == [(key, GOOD._replace(value=None))]


async def test_a_known_call_is_adopted_and_not_made_again(bench: Bench) -> None:
    key = bench.submit()
    bench.submit()
    bench.book.finished(bench.begin(), GOOD)
    assert bench.book.begin(bench.queue) is None
    bench.submit()
    assert [one for one, _ in bench.ends] == [key, key]
    bench.submit(attempt=2)
    assert bench.begin().attempt == 2


async def test_a_released_call_is_forgotten_and_an_open_one_is_not(bench: Bench) -> None:
    key = bench.submit()
    bench.book.release([key])
    assert bench.book.status(key) is CallStatus.QUEUED
    call = bench.begin()
    assert bench.book.status(key) is CallStatus.RUNNING
    bench.book.finished(call, GOOD)
    assert bench.book.status(key) is CallStatus.FINISHED
    bench.book.release([key])
    assert bench.book.status(key) is CallStatus.NEVER_SEEN


async def test_a_tool_that_raised_is_tried_again_as_often_as_it_says(bench: Bench) -> None:
    key = bench.submit(retries=1)
    bench.book.finished(bench.begin(), BAD)
    await later()
    again = bench.begin()
    assert again.attempt == 2
    bench.book.finished(again, BAD)
    assert bench.ends == [(key, BAD)]


@pytest.mark.parametrize("error_type", ["cancelled", "timeout", "config", "ToolArgumentsInvalid"])
async def test_what_another_try_would_meet_again_is_not_tried_again(
    bench: Bench, error_type: str
) -> None:
    bench.submit(retries=3)
    bench.book.finished(bench.begin(), ToolOutcome(error="no", error_type=error_type))
    assert len(bench.ends) == 1


async def test_a_lost_call_is_reported_unless_it_may_be_repeated(bench: Bench) -> None:
    lost = bench.submit()
    bench.book.lost(bench.begin(), "gone")
    assert bench.told[-1] == CallLost(lost, "gone", started=True)
    bench.submit(1, on_unknown="retry")
    for _ in range(call_book.LOST_TRIES):
        bench.book.lost(bench.begin(), "gone")
        await later()
    assert len(bench.ends) == 1
    bench.book.lost(bench.begin(), "gone")
    assert len(bench.ends) == 2


async def test_a_call_that_was_handed_on_and_not_begun_is_the_next(bench: Bench) -> None:
    bench.submit(0)
    bench.submit(1)
    first = bench.begin()
    bench.book.put_back(first)
    assert bench.begin() is first
    assert bench.told == []


async def test_a_stopped_call_that_was_not_begun_does_not_come_back(bench: Bench) -> None:
    key = bench.submit()
    call = bench.begin()
    bench.book.stop(call, Why.CANCELLED)
    bench.book.put_back(call)
    assert bench.book.begin(bench.queue) is None
    assert [(one, outcome.error) for one, outcome in bench.ends] == [(key, "cancelled")]  # type: ignore[union-attr]


async def test_another_try_comes_after_the_children_of_the_last_and_knows_no_failure_of_them(
    bench: Bench,
) -> None:
    key = bench.submit(retries=1)
    parent = bench.begin()
    bench.children(parent, 0, 1, 2)
    good, bad, open_ = bench.begin(), bench.begin(), bench.begin()
    bench.book.finished(good, GOOD)
    bench.book.finished(bad, BAD)
    bench.book.finished(parent, BAD)
    await later()
    assert bench.book.begin(bench.queue) is None, "a child is still there"
    assert bench.stopped == [(key.child(2), Why.CANCELLED)]
    bench.book.finished(open_, BAD)
    await later()
    again = bench.begin()
    assert (again.key, again.attempt) == (key, 2)
    bench.children(again, 0, 1, 2)
    assert [bench.begin().key, bench.begin().key] == [key.child(1), key.child(2)]
    assert bench.book.begin(bench.queue) is None


async def test_who_waits_for_a_map_that_is_abandoned_does_so_no_more(bench: Bench) -> None:
    bench.submit()
    parent = bench.begin()
    bench.children(parent, 0)
    waiting = asyncio.ensure_future(bench.book.children(parent, "ticket"))
    await later()
    bench.book.abandon(parent, "ticket")
    assert await asyncio.wait_for(waiting, 10) == []


async def test_a_call_that_waits_is_cancelled_at_once_and_one_that_runs_is_told(
    bench: Bench,
) -> None:
    first, second = bench.submit(0), bench.submit(1)
    running = bench.begin()
    for key in (first, second):
        call = bench.book.get(key)
        assert call is not None
        bench.book.stop(call, Why.CANCELLED)
    assert [key for key, _ in bench.ends] == [second]
    assert bench.stopped == [(first, Why.CANCELLED)]
    bench.book.stop(running, Why.CANCELLED)
    assert len(bench.stopped) == 1, "a second word would tear it out of its clean-up"
    bench.book.finished(running, BAD)
    assert bench.ends[-1][1].error == "cancelled"  # type: ignore[union-attr]
    assert bench.book.begin(bench.queue) is None


async def test_a_call_that_ended_well_before_it_heard_of_the_cancel_keeps_its_result(
    bench: Bench,
) -> None:
    key = bench.submit()
    call = bench.begin()
    bench.book.stop(call, Why.CANCELLED)
    bench.book.finished(call, GOOD)
    assert bench.ends == [(key, GOOD._replace(value=None))]


async def test_a_deadline_counts_from_the_beginning_of_the_body(bench: Bench) -> None:
    key = bench.submit(timeout_s=0.01)
    await asyncio.sleep(0.03)
    assert bench.stopped == []
    call = bench.begin()
    await asyncio.wait_for(bench.has_stopped.wait(), 10)
    assert bench.stopped == [(key, Why.TIMEOUT)]
    bench.book.give_up(call)
    bench.book.finished(call, GOOD)
    assert len(bench.ends) == 1
    outcome = bench.ends[0][1]
    assert isinstance(outcome, ToolOutcome)
    assert (outcome.error_type, outcome.error) == (
        "timeout",
        "timed out after 0.01 s; its effect may have happened",
    )


async def test_children_are_announced_and_told_to_who_waits_with_their_values(
    bench: Bench,
) -> None:
    bench.submit()
    parent = bench.begin()
    bench.children(parent, 0, 1)
    assert [type(one) for one in bench.told] == [CallSubmitted, CallSubmitted]
    first, second = bench.begin(), bench.begin()
    bench.book.finished(second, GOOD)
    (child,) = await bench.book.children(parent, "ticket")
    assert (child.position, child.outcome.value) == (1, "good")
    bench.book.finished(first, BAD)
    (child,) = await bench.book.children(parent, "ticket")
    assert (child.position, child.outcome.error) == (0, "ValueError: bad")
    assert await bench.book.children(parent, "ticket") == []


async def test_a_parent_ends_after_the_children_it_did_not_wait_for(bench: Bench) -> None:
    key = bench.submit()
    parent = bench.begin()
    bench.children(parent, 0, 1)
    running = bench.begin()
    bench.book.finished(parent, GOOD)
    assert [one for one, _ in bench.ends] == [key.child(1)]
    bench.book.finished(running, BAD)
    assert [one for one, _ in bench.ends] == [key.child(1), key.child(0), key]


async def test_c38_a_process_that_takes_the_place_of_a_caller_is_told_all_again(
    bench: Bench,
) -> None:
    """What bodies emitted and set, and how their children ended, also after their own end."""
    bench.book = CallBook(
        bench, lambda client_id, update: bench.told.append(update), keeps_told=True
    )
    bench.submit()
    parent = bench.begin()
    bench.children(parent, 0)
    child = bench.begin()
    bench.book.report(child, CallEmitted(child.key, b"event"))
    bench.book.finished(child, GOOD)
    bench.book.report(parent, CallSetMetadata(parent.key, "name", "value"))
    bench.book.finished(parent, GOOD)
    first, bench.told = bench.told, []
    assert [type(one) for one in first] == [
        CallSubmitted,
        CallEmitted,
        CallFinished,
        CallSetMetadata,
        CallFinished,
    ]
    bench.book.submit("client", parent.request, 1)
    assert bench.told == first
    bench.book.submit("client", parent.request, 1)
    assert bench.told == [*first, first[-1]], "the same process was told the rest"


async def test_c22_a_body_that_runs_again_is_served_what_its_children_gave(bench: Bench) -> None:
    key = bench.submit()
    parent = bench.begin()
    bench.children(parent, 0)
    bench.book.finished(bench.begin(), GOOD)
    await bench.book.children(parent, "ticket")
    bench.book.finished(parent, ASKS)
    bench.book.release([key])
    bench.submit(attempt=2)
    again = bench.begin()
    bench.children(again, 0, 1)
    assert bench.begin().key == key.child(1)
    (child,) = await bench.book.children(again, "ticket")
    assert (child.position, child.outcome.value) == (0, "good")


async def test_c20_equal_calls_share_one_execution_and_the_next_one_leads_if_it_fails(
    bench: Bench,
) -> None:
    for slot in range(3):
        bench.submit(slot, idempotent=True)
    bench.book.finished(bench.begin(), BAD)
    assert len(bench.ends) == 1
    bench.book.finished(bench.begin(), GOOD)
    assert len(bench.ends) == 3
    bench.submit(3, run="another", idempotent=True)
    assert len(bench.ends) == 4
    assert bench.book.begin(bench.queue) is None


async def test_c20_one_that_is_run_again_on_purpose_shares_nothing(bench: Bench) -> None:
    bench.submit(idempotent=True)
    bench.book.finished(bench.begin(), GOOD)
    bench.submit(attempt=2, idempotent=True)
    assert bench.begin().attempt == 2


async def test_more_calls_than_may_wait_are_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_book, "QUEUED_MAX", 2)
    for slot in range(3):
        bench.submit(slot)
    assert bench.book.queued == 2
    assert [outcome.error_type for _, outcome in bench.ends] == ["queue_full"]  # type: ignore[union-attr]


async def test_who_waits_for_calls_is_told_when_the_last_has_ended(bench: Bench) -> None:
    keys = [bench.submit(0), bench.submit(1)]
    running = [bench.begin(), bench.begin()]
    done = asyncio.ensure_future(bench.book.cancel([*keys, CallKey("never", 0, 0)]))
    await later()
    assert bench.stopped == [(key, Why.CANCELLED) for key in keys]
    bench.book.finished(running[0], BAD)
    await later()
    assert not done.done()
    bench.book.finished(running[1], BAD)
    await asyncio.wait_for(done, 10)
    await asyncio.wait_for(bench.book.cancel(keys), 10)


async def test_f44_what_a_child_gave_is_not_kept_if_it_is_large(bench: Bench) -> None:
    key = bench.submit()
    parent = bench.begin()
    bench.children(parent, 0)
    large = ToolOutcome(result="x" * 1_000_000, value=b"x" * 1_000_000)
    bench.book.finished(bench.begin(), large)
    (child,) = await bench.book.children(parent, "ticket")
    assert child.outcome == large
    kept = bench.book.get(key.child(0))
    assert isinstance(kept, Call)
    assert kept.ended == CallFinished(kept.key, ToolOutcome())
    bench.book.finished(parent, ASKS)
    bench.submit(attempt=2)
    bench.children(bench.begin(), 0)
    assert bench.begin().key == key.child(0), "it is made again"
