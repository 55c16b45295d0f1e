"""A run's stream, buffered: one writer, readers on any event loops and threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tulip_actors import ThinkEvent
from tulip_actors.core.emitted import Emitted
from tulip_actors.host.feed import Feed


def entry(seq: int) -> Emitted:
    return Emitted("r", seq, event=ThinkEvent(iteration=seq))


async def read(feed: Feed, start: int = 0) -> list[int]:
    """The numbers of all entries, to the end."""
    return [one.seq async for batch in feed.batches(start) for one in batch]


async def test_a_reader_gets_what_was_there_and_what_comes() -> None:
    feed = Feed()
    feed.append([entry(0)])
    reading = asyncio.create_task(read(feed))
    await asyncio.sleep(0)
    feed.append([entry(1), entry(2)])
    await asyncio.sleep(0)
    feed.append([entry(3)])
    feed.close()
    assert await asyncio.wait_for(reading, 5) == [0, 1, 2, 3]


async def test_a_reader_may_begin_anywhere_and_at_any_time() -> None:
    feed = Feed()
    feed.append([entry(n) for n in range(5)])
    feed.close()
    assert await read(feed) == [0, 1, 2, 3, 4]
    assert await read(feed, 3) == [3, 4]
    assert await read(feed, 9) == []


async def test_many_readers_each_get_everything() -> None:
    feed = Feed()
    readers = [asyncio.create_task(read(feed)) for _ in range(20)]
    for n in range(5):
        await asyncio.sleep(0)
        feed.append([entry(n)])
    feed.close()
    assert await asyncio.wait_for(asyncio.gather(*readers), 5) == [[0, 1, 2, 3, 4]] * 20


async def test_a_cancelled_reader_does_not_hold_up_the_others() -> None:
    feed = Feed()
    gone, stays = asyncio.create_task(read(feed)), asyncio.create_task(read(feed))
    await asyncio.sleep(0)
    gone.cancel()
    feed.append([entry(0)])
    feed.close()
    assert await asyncio.wait_for(stays, 5) == [0]
    assert gone.cancelled() or gone.cancelling()


def test_f41_readers_on_other_loops_and_threads_hear_the_writer() -> None:
    feed = Feed()
    ready = threading.Barrier(5)

    def reads() -> list[int]:
        ready.wait(10)
        return asyncio.run(asyncio.wait_for(read(feed), 10))

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(reads) for _ in range(4)]
        ready.wait(10)
        for n in range(200):
            feed.append([entry(n)])
        feed.close()
        assert [reader.result(10) for reader in readers] == [list(range(200))] * 4


def test_f41_a_reader_whose_loop_is_closed_harms_nobody() -> None:
    feed = Feed()

    async def leaves() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(feed.wait(0), 0.01)

    asyncio.run(leaves())
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(feed.wait(0))
    loop.run_until_complete(asyncio.sleep(0))
    waiting.cancel()
    loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))
    loop.close()
    feed.append([entry(0)])
    feed.close("done")
    assert asyncio.run(read(feed)) == [0]


async def test_the_outcome_waits_for_the_end() -> None:
    feed = Feed()
    waiting = asyncio.create_task(feed.ended())
    feed.append([entry(0)])
    await asyncio.sleep(0)
    assert not waiting.done()
    feed.close("result")
    assert await asyncio.wait_for(waiting, 5) == "result"
    assert feed.closed
    assert feed.outcome() == "result"


async def test_a_failure_is_raised_to_everybody_who_asks() -> None:
    feed = Feed()
    feed.close(error=LookupError("x"))
    for _ in range(2):
        with pytest.raises(LookupError):
            await feed.ended()
    assert await read(feed) == []


async def test_only_the_first_close_counts() -> None:
    feed = Feed()
    feed.close("first")
    feed.close(error=LookupError("late"))
    assert feed.outcome() == "first"


async def test_a_listener_hears_of_every_change_and_of_the_end() -> None:
    feed = Feed()
    heard: list[tuple[int, bool]] = []
    feed.on_change(lambda: heard.append((len(feed), feed.closed)))
    feed.append([entry(0)])
    feed.append([entry(1), entry(2)])
    feed.close()
    assert heard == [(1, False), (3, False), (3, True)]


async def test_peeking_does_not_wait() -> None:
    feed = Feed()
    assert list(feed.peek(0)) == []
    feed.append([entry(0), entry(1)])
    assert [one.seq for one in feed.peek(1)] == [1]
