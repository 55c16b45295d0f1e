"""What a store's records say of its runs at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from tulip_actors.core.run_info import RunInfo, RunState
from tulip_actors.core.runs import (
    Answered,
    MetadataSet,
    Record,
    Recovered,
    RunEnded,
    RunRequest,
    RunStarted,
    StepDone,
)
from tulip_actors.errors import NotSerialisable
from tulip_actors.memory.run_infos import infos_of
from tulip_actors.memory.run_store import MemoryRunStore

AT = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: int) -> datetime:
    return AT + timedelta(seconds=seconds)


def started(run_id: str) -> Record:
    return RunStarted(run_id, 0, at(0), RunRequest(run_id, "t", "hi"), "agent_1")


def ended(run_id: str, reason: str) -> Record:
    return RunEnded(run_id, 9, at(9), reason, reason)


async def info_of(run_id: str, *records: Record, lease_s: float = 60) -> RunInfo:
    """How a run is seen whose thread has these records and is held by it for so long."""
    store = MemoryRunStore()
    for one in dict.fromkeys(record.run_id for record in records):
        epoch = await store.acquire("t", one, 60)
        await store.append("t", epoch, [record for record in records if record.run_id == one])
        await store.release("t", epoch)
    await store.acquire("t", run_id, lease_s)
    (info,) = [one for one in await infos_of(store) if one.run_id == run_id]
    return info


async def test_a_run_whose_thread_is_held_runs_since_its_segment_began() -> None:
    info = await info_of("r", started("r"), StepDone("r", 1, at(1), "k", {}))
    assert (info.state, info.since, info.agent_id) == (RunState.RUNNING, at(0), "agent_1")
    answered = Answered("r", 1, at(5), "i", "yes")
    again = await info_of("r", started("r"), ended("r", "interrupted"), answered)
    assert (again.state, again.since) == (RunState.RUNNING, at(5))


async def test_a_run_that_nobody_holds_and_that_has_not_ended_was_left() -> None:
    info = await info_of("r", started("r"), Recovered("r", 1, at(3)), lease_s=0)
    assert (info.state, info.since, info.recoveries) == (RunState.LEFT, at(3), 1)


async def test_a_run_waits_for_an_answer_until_another_continues_its_thread() -> None:
    asks = (started("r"), ended("r", "interrupted"), MetadataSet("r", 9, at(10), {}))
    info = await info_of("r", *asks, lease_s=0)
    assert (info.state, info.since) == (RunState.INTERRUPTED, at(9))
    later = await info_of("r", *asks, started("later"), lease_s=0)
    assert (later.state, later.stop_reason) == (RunState.ENDED, "interrupted")


async def test_a_run_that_was_left_is_lost_once_another_has_continued_its_thread() -> None:
    info = await info_of("r", started("r"), started("later"), lease_s=0)
    assert (info.state, info.stop_reason) == (RunState.ENDED, "lost")


async def test_a_thread_that_cannot_be_read_hides_no_other() -> None:
    class Damaged(MemoryRunStore):
        async def read(self, thread_id: str, after: int = 0) -> Sequence[Record]:
            if thread_id == "bad":
                raise NotSerialisable("damaged")
            return await super().read(thread_id, after)

    store = Damaged()
    for thread_id in ("bad", "good"):
        epoch = await store.acquire(thread_id, thread_id, 60)
        await store.append(thread_id, epoch, [started(thread_id), ended(thread_id, "complete")])
    states = {one.run_id: one.state for one in await infos_of(store)}
    assert states == {"bad": RunState.UNREADABLE, "good": RunState.ENDED}
