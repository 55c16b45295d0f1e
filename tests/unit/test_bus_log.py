"""C37: the log of the bus, and what a subscriber sees of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tulip_actors import (
    BusRecord,
    ConfigError,
    EventBus,
    EventSource,
    SubscriberLagged,
    TerminateEvent,
    ThinkEvent,
    ToolStartEvent,
    TulipEvent,
)
from tulip_actors.core.bus import BusQuery, EventBatch
from tulip_actors.host.bus import MemoryBusLog


def event(
    run_id: str, seq: int, cls: type[TulipEvent] = ThinkEvent, agent: str = "a"
) -> TulipEvent:
    source = EventSource(run_id=run_id, thread_id="t", agent=agent, seq=seq, node_id="n", pid=1)
    fields: dict[type[TulipEvent], dict[str, Any]] = {
        ThinkEvent: {"iteration": seq},
        ToolStartEvent: {"tool_name": "x", "tool_call_id": str(seq)},
        TerminateEvent: {"reason": "complete"},
    }
    return cls(source=source, **fields[cls])


def batch(*packed: bytes, run: str = "r", agent: str = "a", type: str = "think") -> EventBatch:
    return EventBatch(packed, frozenset({run}), frozenset({agent}), frozenset({type}))


async def positions(log: MemoryBusLog, after: int | None = None, **query: Any) -> list[int]:
    page = await log.poll(BusQuery(after, **query))
    return [start for start, _ in page.batches]


async def seen(records: AsyncIterator[BusRecord]) -> list[tuple[str, int]]:
    """(run, seq) of every record of a subscription that ends."""
    found = []
    async for record in records:
        assert record.event.source is not None
        found.append((record.event.source.run_id, record.event.source.seq))
    return found


async def first(records: AsyncIterator[BusRecord]) -> BusRecord:
    """The next record, whenever it comes."""
    return await anext(records)


@pytest.fixture
def log() -> MemoryBusLog:
    return MemoryBusLog()


@pytest.fixture
def bus(log: MemoryBusLog) -> EventBus:
    return EventBus(log)


# the log


async def test_positions_count_events_not_batches(log: MemoryBusLog) -> None:
    await log.publish(batch(b"1", b"2", b"3"))
    await log.publish(batch(b"4"))
    page = await log.poll(BusQuery(None))
    assert [start for start, _ in page.batches] == [0, 3]
    assert (page.next, page.end, page.missed) == (4, 4, 0)


async def test_a_position_inside_a_batch_gives_the_whole_batch(log: MemoryBusLog) -> None:
    await log.publish(batch(b"1", b"2", b"3"))
    assert await positions(log, 1) == [0]
    assert await positions(log, 3) == []


async def test_an_empty_batch_is_no_batch(log: MemoryBusLog) -> None:
    await log.publish(EventBatch((), frozenset(), frozenset(), frozenset()))
    assert (await log.poll(BusQuery(None))).end == 0


async def test_a_batch_that_cannot_match_is_left_unopened(log: MemoryBusLog) -> None:
    await log.publish(batch(b"1", run="one", agent="x", type="think"))
    await log.publish(batch(b"2", run="two", agent="y", type="terminate"))
    assert await positions(log, run_id="two") == [1]
    assert await positions(log, agent="x") == [0]
    assert await positions(log, types=frozenset({"terminate"})) == [1]
    assert await positions(log, run_id="one", types=frozenset({"terminate"})) == []


async def test_the_oldest_whole_batches_go_first() -> None:
    log = MemoryBusLog(retained_bytes=10)
    for _ in range(5):
        await log.publish(batch(b"1234"))
    page = await log.poll(BusQuery(None))
    assert [start for start, _ in page.batches] == [3, 4]
    assert page.missed == 0, "who asks for the oldest held has missed nothing"
    assert (await log.poll(BusQuery(1))).missed == 2


async def test_a_batch_larger_than_the_log_is_kept_alone() -> None:
    log = MemoryBusLog(retained_bytes=3)
    await log.publish(batch(b"1"))
    await log.publish(batch(b"123456"))
    assert await positions(log) == [1]


async def test_a_waiting_poll_wakes_with_the_next_batch(log: MemoryBusLog) -> None:
    waiting = asyncio.create_task(log.poll(BusQuery(None, wait_s=30)))
    await asyncio.sleep(0)
    await log.publish(batch(b"1"))
    page = await asyncio.wait_for(waiting, 5)
    assert len(page.batches) == 1


async def test_a_poll_without_news_ends_empty_after_its_wait(log: MemoryBusLog) -> None:
    page = await asyncio.wait_for(log.poll(BusQuery(None, wait_s=0.01)), 5)
    assert (page.batches, page.next) == ([], 0)


async def test_a_poll_moves_on_past_what_does_not_match(log: MemoryBusLog) -> None:
    await log.publish(batch(b"1", run="other"))
    page = await log.poll(BusQuery(0, run_id="mine"))
    assert (list(page.batches), page.next) == ([], 1)


async def test_a_long_log_comes_in_pages_without_gap_or_repeat(log: MemoryBusLog) -> None:
    for n in range(30):
        await log.publish(batch(*[b"%d" % n] * 300))
    found, position = [], 0
    for _ in range(100):
        page = await log.poll(BusQuery(position))
        found += [start for start, _ in page.batches]
        position = page.next
        if position == page.end:
            break
    assert found == [300 * n for n in range(30)]


# the subscriber


async def test_c37_a_subscriber_sees_what_was_published_in_order(bus: EventBus) -> None:
    await bus.publish([event("r", 0), event("r", 1)])
    await bus.publish([event("r", 2, TerminateEvent)])
    assert await seen(bus.subscribe(follow=False)) == [("r", 0), ("r", 1), ("r", 2)]


async def test_c37_events_come_back_equal(bus: EventBus) -> None:
    sent: Sequence[TulipEvent] = [event("r", 0), event("r", 1, TerminateEvent)]
    await bus.publish(sent)
    assert [record.event async for record in bus.subscribe(follow=False)] == list(sent)


async def test_c37_filters_are_exact_inside_a_batch(bus: EventBus) -> None:
    await bus.publish(
        [event("one", 0), event("two", 0, agent="b"), event("one", 1, ToolStartEvent)]
    )
    assert await seen(bus.subscribe(run_id="one", follow=False)) == [("one", 0), ("one", 1)]
    assert await seen(bus.subscribe(agent="b", follow=False)) == [("two", 0)]
    assert await seen(bus.subscribe(types=["tool_start"], follow=False)) == [("one", 1)]
    assert await seen(bus.subscribe(types=[ThinkEvent], run_id="one", follow=False)) == [("one", 0)]
    assert await seen(bus.subscribe(types=[], follow=False)) == []


async def test_c37_a_base_class_is_no_filter(bus: EventBus) -> None:
    with pytest.raises(ConfigError, match="base class"):
        await seen(bus.subscribe(types=[TulipEvent], follow=False))


async def test_c37_every_cursor_continues_after_its_record(bus: EventBus) -> None:
    await bus.publish([event("r", n) for n in range(3)])
    await bus.publish([event("r", n) for n in range(3, 6)])
    everything = [record async for record in bus.subscribe(follow=False)]
    for n, record in enumerate(everything):
        rest = await seen(bus.subscribe(after=record.cursor, follow=False))
        assert rest == [("r", seq) for seq in range(n + 1, 6)]


async def test_c37_a_cursor_of_a_filtered_record_continues_too(bus: EventBus) -> None:
    await bus.publish([event(run, n) for n in range(3) for run in ("one", "two")])
    records = bus.subscribe(run_id="two", follow=False)
    first = await anext(records)
    rest = await seen(bus.subscribe(run_id="two", after=first.cursor, follow=False))
    assert rest == [("two", 1), ("two", 2)]


async def test_c37_without_follow_it_ends_at_what_was_there_when_called(bus: EventBus) -> None:
    await bus.publish([event("r", 0)])
    records = bus.subscribe(follow=False)
    first = await anext(records)
    await bus.publish([event("r", 1)])
    assert first.event.source is not None
    assert await seen(records) == []


async def test_c37_without_follow_an_empty_bus_ends_at_once(bus: EventBus) -> None:
    assert await asyncio.wait_for(seen(bus.subscribe(follow=False)), 5) == []


async def test_c37_a_follower_hears_what_comes_later(bus: EventBus) -> None:
    records = bus.subscribe(run_id="r")
    waiting = asyncio.create_task(first(records))
    await asyncio.sleep(0)
    await bus.publish([event("other", 0)])
    await bus.publish([event("r", 0)])
    record = await asyncio.wait_for(waiting, 5)
    assert record.event.source is not None
    assert record.event.source.run_id == "r"


async def test_c37_many_followers_each_hear_everything(bus: EventBus) -> None:
    async def first_three() -> list[int]:
        found = []
        async for record in bus.subscribe():
            assert record.event.source is not None
            found.append(record.event.source.seq)
            if len(found) == 3:
                break
        return found

    followers = [asyncio.create_task(first_three()) for _ in range(5)]
    for n in range(3):
        await asyncio.sleep(0)
        await bus.publish([event("r", n)])
    assert await asyncio.wait_for(asyncio.gather(*followers), 5) == [[0, 1, 2]] * 5


async def test_c37_who_fell_behind_is_told_how_much_is_missing() -> None:
    bus = EventBus(MemoryBusLog(retained_bytes=1))
    await bus.publish([event("r", 0)])
    first = await anext(bus.subscribe(follow=False))
    for n in range(1, 5):
        await bus.publish([event("r", n)])
    with pytest.raises(SubscriberLagged, match="3 records") as lagged:
        await seen(bus.subscribe(after=first.cursor, follow=False))
    assert lagged.value.missed == 3
    assert await seen(bus.subscribe(after=lagged.value.cursor, follow=False)) == [("r", 4)]


@pytest.mark.parametrize("cursor", ["", "x", "ü", "cjE6gA==", "YjE6", "YjE6eA==", "YjI6Mw=="])
async def test_c37_a_cursor_that_is_none_is_refused(bus: EventBus, cursor: str) -> None:
    with pytest.raises(ConfigError, match="not a cursor of this bus"):
        await seen(bus.subscribe(after=cursor, follow=False))


async def test_events_without_a_source_can_be_published(bus: EventBus) -> None:
    await bus.publish([ThinkEvent(iteration=0)])
    (record,) = [record async for record in bus.subscribe(follow=False)]
    assert record.event.source is None


def test_f41_followers_on_one_event_loop_after_another_work(bus: EventBus) -> None:
    async def nothing_comes() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(first(bus.subscribe()), 0.01)

    for _ in range(3):
        asyncio.run(nothing_comes())


async def test_f41_a_follower_hears_what_another_loop_publishes(bus: EventBus) -> None:
    waiting = asyncio.create_task(first(bus.subscribe()))
    await asyncio.sleep(0.01)
    await asyncio.to_thread(lambda: asyncio.run(bus.publish([event("r", 0)])))
    record = await asyncio.wait_for(waiting, 5)
    assert record.event.event_type == "think"
