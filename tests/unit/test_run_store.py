"""C44: the in-memory RunStore, its epochs and leases; and the bytes of records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tulip_actors import (
    Message,
    NotSerialisable,
    Role,
    StaleEpoch,
    ThreadBusy,
    ToolCall,
    ToolExecution,
)
from tulip_actors.core.calls import CallKey
from tulip_actors.core.codec import pack_record, unpack_record
from tulip_actors.core.interrupt import InterruptRequest
from tulip_actors.core.runs import (
    Added,
    Answered,
    Intent,
    ModelTurn,
    Opened,
    Paused,
    Record,
    RunEnded,
    RunRequest,
    RunStarted,
    StepDone,
    ToolFinished,
    ToolIntents,
)
from tulip_actors.memory import run_store
from tulip_actors.memory.run_store import MemoryRunStore, RecordLog

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
KEY = CallKey("run_1", 2, 0, (1, 0))
RECORDS: list[Record] = [
    RunStarted("run_1", 0, AT, RunRequest("run_1", "t", "hällo", {"a": [1]}, True, {"t": 0})),
    ModelTurn(
        "run_1",
        1,
        AT,
        "turn:0",
        Message.assistant("ü", (ToolCall("c", "add", {"a": 1}, "{"),), "why"),
        {"prompt_tokens": 1},
        "stop",
    ),
    ToolIntents("run_1", 2, AT, (Intent(KEY, "add", "c", {"a": 1}),), "executor_1"),
    ToolFinished("run_1", 3, AT, KEY, ToolExecution("add", "c", {"a": 1}, "3", timestamp=AT)),
    StepDone("run_1", 4, AT, "round:0", {"x": [None]}),
    RunEnded("run_1", 5, AT, "complete", "complete"),
    Opened("run_1", 0, AT, 2, (Message.system("Be brief."), Message.user("hällo"))),
    Added("run_1", 3, AT, (Message(Role.SYSTEM, "note", name="reflexion"),), 0.15),
    Paused("run_1", 6, AT, KEY, "interrupt_1", InterruptRequest("Söll ich?", ("ja", "nein"))),
    Answered("run_1", 6, AT, "interrupt_1", {"answer": ["ja", None]}),
]


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MemoryRunStore:
    return MemoryRunStore(RecordLog(clock))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)
def test_a_record_survives_its_bytes(record: Record) -> None:
    again = unpack_record(pack_record(record))
    assert type(again) is type(record)
    assert again == record


def test_every_kind_of_record_is_among_the_examples() -> None:
    from typing import get_args

    assert {type(record) for record in RECORDS} == set(get_args(Record))


def test_a_record_that_was_read_back_is_read_only() -> None:
    again: Any = unpack_record(pack_record(RECORDS[0]))
    with pytest.raises(TypeError, match="read-only"):
        again.request.metadata["a"].append(2)


@pytest.mark.parametrize(
    ("packed", "problem"),
    [
        (b"", "torn"),
        (pack_record(RECORDS[1])[:-4], "torn"),
        (b"\x01", "torn"),
        (b"\x01\x80", "torn"),
        (b"\x02" + pack_record(RECORDS[0])[1:], "record version 2 is not 1"),
    ],
)
def test_a_torn_or_foreign_record_is_refused_by_name(packed: bytes, problem: str) -> None:
    with pytest.raises(NotSerialisable, match=problem):
        unpack_record(packed)


async def test_c44_what_was_appended_is_read_back_in_order(store: MemoryRunStore) -> None:
    epoch = await store.acquire("t", "run_1", 60)
    await store.append("t", epoch, RECORDS[:2])
    await store.append("t", epoch, RECORDS[2:])
    assert await store.read("t") == RECORDS
    assert await store.read("t", after=4) == RECORDS[4:]
    assert await store.read("t", after=99) == []


async def test_c44_a_thread_nobody_wrote_is_empty(store: MemoryRunStore) -> None:
    assert await store.read("nowhere") == []
    assert await store.find("run_never") is None


async def test_c44_threads_do_not_mix(store: MemoryRunStore) -> None:
    one, two = await store.acquire("one", "r1", 60), await store.acquire("two", "r2", 60)
    await store.append("one", one, RECORDS[:1])
    await store.append("two", two, RECORDS[1:2])
    assert await store.read("one") == RECORDS[:1]
    assert await store.read("two") == RECORDS[1:2]


async def test_c44_the_thread_of_a_run_is_found(store: MemoryRunStore) -> None:
    await store.acquire("t", "run_1", 60)
    assert await store.find("run_1") == "t"


async def test_c44_a_second_owner_is_refused_while_the_lease_runs(
    store: MemoryRunStore, clock: Clock
) -> None:
    await store.acquire("t", "run_1", 60)
    clock.now_s += 59
    with pytest.raises(ThreadBusy, match=r"'t' is in use by run run_1.*another thread_id") as busy:
        await store.acquire("t", "run_2", 60)
    assert busy.value.run_id == "run_1"


async def test_c44_a_refused_owner_changes_nothing(store: MemoryRunStore) -> None:
    epoch = await store.acquire("t", "run_1", 60)
    with pytest.raises(ThreadBusy):
        await store.acquire("t", "run_2", 60)
    await store.append("t", epoch, RECORDS[:1])
    assert await store.find("run_2") is None


async def test_c44_a_lease_that_ran_out_lets_the_next_owner_in(
    store: MemoryRunStore, clock: Clock
) -> None:
    first = await store.acquire("t", "run_1", 60)
    clock.now_s += 60
    assert await store.acquire("t", "run_2", 60) > first


async def test_c44_a_renewed_lease_goes_on(store: MemoryRunStore, clock: Clock) -> None:
    epoch = await store.acquire("t", "run_1", 60)
    clock.now_s += 50
    await store.renew("t", epoch, 60)
    clock.now_s += 50
    with pytest.raises(ThreadBusy):
        await store.acquire("t", "run_2", 60)


async def test_c44_a_thread_given_back_is_free_at_once(store: MemoryRunStore) -> None:
    epoch = await store.acquire("t", "run_1", 60)
    await store.release("t", epoch)
    assert await store.acquire("t", "run_2", 60) == epoch + 1


async def test_c44_giving_back_what_another_took_changes_nothing(
    store: MemoryRunStore, clock: Clock
) -> None:
    stale = await store.acquire("t", "run_1", 60)
    clock.now_s += 61
    await store.acquire("t", "run_2", 60)
    await store.release("t", stale)
    with pytest.raises(ThreadBusy):
        await store.acquire("t", "run_3", 60)


async def test_c44_the_same_owner_takes_over_from_its_own_old_incarnation(
    store: MemoryRunStore,
) -> None:
    old = await store.acquire("t", "run_1", 60)
    new = await store.acquire("t", "run_1", 60)
    assert new > old
    with pytest.raises(StaleEpoch, match=f"epoch {old} of thread 't' is over"):
        await store.append("t", old, RECORDS[:1])
    await store.append("t", new, RECORDS[:1])
    assert len(await store.read("t")) == 1


async def test_c44_a_stale_owner_cannot_renew(store: MemoryRunStore) -> None:
    old = await store.acquire("t", "run_1", 60)
    await store.acquire("t", "run_1", 60)
    with pytest.raises(StaleEpoch):
        await store.renew("t", old, 60)


async def test_c44_writing_to_a_thread_that_was_never_acquired_is_refused(
    store: MemoryRunStore,
) -> None:
    with pytest.raises(StaleEpoch, match="forgotten"):
        await store.append("t", 1, RECORDS[:1])


async def test_idle_threads_are_forgotten_before_the_store_grows_without_bound(
    monkeypatch: pytest.MonkeyPatch, store: MemoryRunStore
) -> None:
    monkeypatch.setattr(run_store, "MAX_THREADS", 3)
    busy = await store.acquire("busy", "run_busy", 60)
    await store.append("busy", busy, RECORDS[:1])
    for n in range(6):
        epoch = await store.acquire(f"t{n}", f"run_{n}", 60)
        await store.append(f"t{n}", epoch, RECORDS[:1])
        await store.release(f"t{n}", epoch)
    assert await store.read("t0") == []
    assert await store.find("run_0") is None
    assert await store.read("t5") == RECORDS[:1]
    assert await store.read("busy") == RECORDS[:1], "a thread in use is kept"
