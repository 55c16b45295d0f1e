"""C44: the bytes of records, leases by the clock, and what the store in memory forgets.

What every RunStore does is in `test_store_conformance`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tulip_actors import (
    AgentState,
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
from tulip_actors.core.grounding import ClaimEvaluation, GroundingResult
from tulip_actors.core.interrupt import InterruptRequest
from tulip_actors.core.ports import RunStore
from tulip_actors.core.runs import (
    Added,
    Answered,
    Checkpointed,
    Grounded,
    Intent,
    MetadataSet,
    ModelTurn,
    Opened,
    Paused,
    Record,
    Recovered,
    RunEnded,
    RunRequest,
    RunStarted,
    Saved,
    StepDone,
    ToolFinished,
    ToolIntents,
)
from tulip_actors.memory import run_store
from tulip_actors.memory.backends import FileCheckpointer, SQLiteBackend
from tulip_actors.memory.run_store import MemoryRunStore, RecordLog

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
KEY = CallKey("run_1", 2, 0, (1, 0))
RECORDS: list[Record] = [
    RunStarted(
        "run_1", 0, AT, RunRequest("run_1", "t", "hällo", {"a": [1]}, True, {"t": 0}), "agent_1"
    ),
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
    Recovered("run_1", 6, AT),
    MetadataSet("run_1", 6, AT, {"a": [1]}),
    Grounded("run_1", 6, AT, GroundingResult((ClaimEvaluation("A.", 0.5, "so"),))),
    Checkpointed("run_1", 7, AT, 3),
    Saved("run_1", 0, AT, "saved_1", AgentState("run_1", "t", "agent_1").to_checkpoint()),
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


@pytest.fixture(params=["memory", "file", "sqlite"])
def store(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> RunStore:
    if request.param == "memory":
        return MemoryRunStore(RecordLog(clock))
    if request.param == "file":
        return FileCheckpointer(tmp_path / "threads", clock_s=clock)
    return SQLiteBackend(tmp_path / "runs.db", clock_s=clock)


@pytest.fixture
def memory(clock: Clock) -> MemoryRunStore:
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


async def test_c44_a_second_owner_is_refused_while_the_lease_runs(
    store: RunStore, clock: Clock
) -> None:
    await store.acquire("t", "run_1", 60)
    clock.now_s += 59
    with pytest.raises(ThreadBusy, match=r"'t' is in use by run run_1.*another thread_id") as busy:
        await store.acquire("t", "run_2", 60)
    assert busy.value.run_id == "run_1"


async def test_c44_a_lease_that_ran_out_lets_the_next_owner_in(
    store: RunStore, clock: Clock
) -> None:
    first = await store.acquire("t", "run_1", 60)
    clock.now_s += 60
    assert await store.acquire("t", "run_2", 60) > first


async def test_c44_a_renewed_lease_goes_on(store: RunStore, clock: Clock) -> None:
    epoch = await store.acquire("t", "run_1", 60)
    clock.now_s += 50
    await store.renew("t", epoch, 60)
    clock.now_s += 50
    with pytest.raises(ThreadBusy):
        await store.acquire("t", "run_2", 60)


async def test_c44_writing_to_a_thread_that_was_never_acquired_is_refused(
    store: RunStore,
) -> None:
    with pytest.raises(StaleEpoch, match="forgotten"):
        await store.append("t", 1, RECORDS[:1])


async def test_idle_threads_are_forgotten_before_the_store_grows_without_bound(
    monkeypatch: pytest.MonkeyPatch, memory: MemoryRunStore
) -> None:
    monkeypatch.setattr(run_store, "MAX_THREADS", 3)
    busy = await memory.acquire("busy", "run_busy", 60)
    await memory.append("busy", busy, RECORDS[:1])
    for n in range(6):
        epoch = await memory.acquire(f"t{n}", f"run_{n}", 60)
        await memory.append(f"t{n}", epoch, RECORDS[:1])
        await memory.release(f"t{n}", epoch)
    assert await memory.read("t0") == []
    assert await memory.find("run_0") is None
    assert await memory.read("t5") == RECORDS[:1]
    assert await memory.read("busy") == RECORDS[:1], "a thread in use is kept"


async def test_idle_threads_make_room_when_there_are_too_many_records(
    monkeypatch: pytest.MonkeyPatch, memory: MemoryRunStore
) -> None:
    monkeypatch.setattr(run_store, "MAX_RECORDS", 5)
    for thread in ("old", "new"):
        epoch = await memory.acquire(thread, f"run of {thread}", 60)
        await memory.append(thread, epoch, RECORDS[:4])
        await memory.release(thread, epoch)
    await memory.acquire("next", "run_next", 60)
    assert await memory.read("old") == []
    assert await memory.read("new") == RECORDS[:4]
    assert await memory.find("run of old") is None
