"""F9 and C44 with SQLite: what stands in the file after a crash, damage, or a full disk.

F9: "Writes and checkpoint are not atomic; a torn file or half transaction is loaded." Here a
transaction is whole or not there, damage is detected and named, and what came before is kept.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import pickle
import sqlite3
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tulip_actors import (
    Agent,
    ConfigError,
    NotSerialisable,
    StaleEpoch,
    StoreUnavailable,
    ThreadBusy,
)
from tulip_actors.core.runs import Record, RunEnded
from tulip_actors.memory.backends import SQLiteBackend, sqlite_file, sqlite_tables, sqlite_writer
from tulip_actors.testing import ScriptedModel

AT = datetime(2026, 1, 2, tzinfo=UTC)


def ended(seq: int, run_id: str = "run_1") -> Record:
    return RunEnded(run_id, seq, AT, "complete", "complete")


def large(seq: int, size: int = 100_000) -> Record:
    return RunEnded("run_1", seq, AT, "complete", "x" * size)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def store(path: Path) -> SQLiteBackend:
    return SQLiteBackend(path)


@pytest.fixture
async def written(path: Path) -> Path:
    """A thread "t" of six records that nobody holds; its file, all in one piece."""
    store = SQLiteBackend(path)
    epoch = await store.acquire("t", "run_1", 60)
    for seq in range(3):
        await store.append("t", epoch, [ended(seq), ended(seq)])
    await store.release("t", epoch)
    changed(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def changed(path: Path, *statements: str) -> None:
    """What somebody else does to the file."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


# damage


@pytest.mark.parametrize("content", [b"x", b"tulip1\n" * 100, b"x" * 8192], ids=len)
async def test_f9_a_file_that_is_no_database_is_refused_and_left_as_it_is(
    store: SQLiteBackend, path: Path, content: bytes
) -> None:
    path.write_bytes(content)
    for access in (store.read("t"), store.acquire("t", "run_1", 60)):
        with pytest.raises(NotSerialisable, match=r"runs\.db.*no database"):
            await access
    assert path.read_bytes() == content


@pytest.mark.parametrize("kept", [100, 4096, 10_000])
async def test_f9_a_truncated_database_is_detected(
    store: SQLiteBackend, written: Path, kept: int
) -> None:
    os.truncate(written, kept)
    with pytest.raises(NotSerialisable, match=r"thread 't' in .*runs\.db.*damaged"):
        await store.read("t")
    with pytest.raises(NotSerialisable, match="restore it from a copy"):
        await store.acquire("t", "run_2", 60)
    assert written.stat().st_size == kept


async def test_f9_a_write_ahead_log_that_a_crash_tore_loses_no_more_than_the_torn_transaction(
    store: SQLiteBackend, path: Path, tmp_path: Path
) -> None:
    epoch = await store.acquire("t", "run_1", 60)
    await store.append("t", epoch, [ended(0), ended(0)])
    await store.append("t", epoch, [ended(1), ended(1)])
    torn = tmp_path / "torn.db"
    torn.write_bytes(path.read_bytes())
    log = Path(f"{path}-wal").read_bytes()
    Path(f"{torn}-wal").write_bytes(log[:-100])
    again = SQLiteBackend(torn)
    assert await again.read("t") == [ended(0), ended(0)], "all of a transaction or none"
    epoch = await again.acquire("t", "run_1", 60)
    await again.append("t", epoch, [ended(9)])
    assert await again.read("t") == [ended(0), ended(0), ended(9)]


@pytest.mark.parametrize(("position", "kept"), [(0, 0), (3, 3), (5, 5)])
async def test_f9_a_missing_record_is_named_with_what_is_kept(
    store: SQLiteBackend, written: Path, position: int, kept: int
) -> None:
    changed(written, f"DELETE FROM records WHERE position = {position}")
    told = f"thread 't' in .*: record {position} .* missing, of 6.* The {kept} before it are kept"
    with pytest.raises(NotSerialisable, match=told):
        await store.read("t")
    assert await store.delete("t"), "which is what the message says may be done"


@pytest.mark.parametrize("table", sorted(sqlite_tables.TABLES))
async def test_f9_a_missing_table_is_named(store: SQLiteBackend, written: Path, table: str) -> None:
    changed(written, f"DROP TABLE {table}")
    for access in (store.read("t"), store.acquire("t", "run_2", 60)):
        with pytest.raises(NotSerialisable, match=rf"runs\.db is damaged: it has no table {table}"):
            await access


@pytest.mark.parametrize(
    ("packed", "problem"),
    [
        ("x'02ff'", "record version 2 is not 1: it was written by another release"),
        ("'text'", "str is not the bytes of a record"),
        ("x''", "torn"),
        ("x'01c0'", "torn or foreign"),
    ],
)
async def test_a_record_of_a_newer_release_or_wrong_type_is_refused_by_name(
    store: SQLiteBackend, written: Path, packed: str, problem: str
) -> None:
    changed(written, f"UPDATE records SET packed = {packed} WHERE position = 4")
    with pytest.raises(
        NotSerialisable, match=f"(?s)thread 't' in .*: record 4 .*{problem}.*4 before"
    ):
        await store.read("t")
    assert await store.read("t", after=5) == [ended(2)]


async def test_a_database_of_a_newer_release_is_refused_and_left_as_it_is(
    store: SQLiteBackend, written: Path
) -> None:
    changed(written, "PRAGMA user_version = 2", "PRAGMA wal_checkpoint(TRUNCATE)")
    before = written.read_bytes()
    for access in (store.read("t"), store.acquire("t", "run_2", 60)):
        with pytest.raises(NotSerialisable, match=r"runs\.db .*newer release.*use that release"):
            await access
    assert written.read_bytes() == before


async def test_a_database_of_another_program_is_refused(store: SQLiteBackend, path: Path) -> None:
    changed(path, "CREATE TABLE theirs (x)")
    for access in (store.read("t"), store.acquire("t", "run_1", 60)):
        with pytest.raises(NotSerialisable, match="of another program: give another path"):
            await access


# a store that cannot be used now


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may take 40 pages: a disk that is full."""
    opened = sqlite_file.open_to_write

    def narrow(path: Path, *, fsync: bool) -> sqlite3.Connection:
        connection = opened(path, fsync=fsync)
        connection.execute("PRAGMA max_page_count = 40")
        return connection

    monkeypatch.setattr(sqlite_writer, "open_to_write", narrow)


@pytest.mark.usefixtures("little_room")
async def test_f9_a_full_disk_fails_the_append_and_keeps_what_was_stored(
    store: SQLiteBackend,
) -> None:
    epoch = await store.acquire("t", "run_1", 60)
    await store.append("t", epoch, [ended(0)])
    with pytest.raises(StoreUnavailable, match=r"thread 't' in .*disk is full.*make room.*kept"):
        await store.append("t", epoch, [ended(1), large(2, 1_000_000)])
    assert await store.read("t") == [ended(0)]
    await store.append("t", epoch, [ended(3)])
    assert await store.read("t") == [ended(0), ended(3)]


@pytest.mark.usefixtures("little_room")
async def test_of_appends_in_one_transaction_only_that_fails_which_has_no_room(
    store: SQLiteBackend,
) -> None:
    epochs = {name: await store.acquire(name, name, 60) for name in ("a", "b", "c", "d")}
    outcomes = await asyncio.gather(
        store.append("a", epochs["a"], [ended(0, "a")]),
        store.append("b", epochs["b"], [ended(0, "b"), large(1, 1_000_000)]),
        store.append("c", epochs["c"] - 1, [ended(0, "c")]),
        store.append("d", epochs["d"], [ended(0, "d")]),
        return_exceptions=True,
    )
    failed = [type(outcome) for outcome in outcomes]
    assert failed == [type(None), StoreUnavailable, StaleEpoch, type(None)]
    assert [len(await store.read(name)) for name in epochs] == [1, 0, 0, 1]


@pytest.mark.usefixtures("little_room")
async def test_f9_a_run_on_a_full_disk_ends_with_that_error_and_its_thread_stays_good(
    store: SQLiteBackend,
) -> None:
    agent = Agent(ScriptedModel(["one", "two"]), runtime="inline", checkpointer=store)
    first = await agent.arun("short", thread_id="t")
    with pytest.raises(StoreUnavailable, match=r"thread 't' in .*disk is full"):
        await agent.arun("x" * 1_000_000, thread_id="t")
    state = await agent.get_state("t")
    assert state is not None
    assert state.messages == first.messages
    await agent.stop()


async def test_what_cannot_be_packed_is_refused_whole(store: SQLiteBackend) -> None:
    epoch = await store.acquire("t", "run_1", 60)
    unstorable: Any = object()
    with pytest.raises(Exception, match="object"):
        await store.append("t", epoch, [ended(0), unstorable])
    assert await store.read("t") == []


async def test_a_file_that_another_process_keeps_locked_is_told_and_then_used_again(
    store: SQLiteBackend, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tulip_actors.memory.backends.sqlite_file.BUSY_TIMEOUT_S", 0.01)
    other = sqlite3.connect(written, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"thread 't' in .*locked"):
        await store.acquire("t", "run_2", 60)
    assert len(await store.read("t")) == 6, "readers do not wait for writers"
    other.execute("ROLLBACK")
    other.close()
    assert await store.acquire("t", "run_2", 60) == 2


async def test_a_file_that_may_not_be_written_is_told_and_can_be_read(
    store: SQLiteBackend, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = sqlite_file.open_to_write

    def read_only(path: Path, *, fsync: bool) -> sqlite3.Connection:
        connection = opened(path, fsync=fsync)
        connection.execute("PRAGMA query_only = 1")
        return connection

    monkeypatch.setattr(sqlite_writer, "open_to_write", read_only)
    with pytest.raises(StoreUnavailable, match=r"thread 't' in .*readonly.*make it writable"):
        await store.acquire("t", "run_2", 60)
    assert len(await store.read("t")) == 6


async def test_a_folder_that_is_gone_is_made_again(store: SQLiteBackend, written: Path) -> None:
    epoch = await store.acquire("t", "run_2", 60)
    for file in written.parent.iterdir():
        file.unlink()
    written.parent.rmdir()
    with pytest.raises(StaleEpoch, match="forgotten"):
        await store.append("t", epoch, [ended(9)])
    assert await store.read("t") == []
    epoch = await store.acquire("t", "run_3", 60)
    await store.append("t", epoch, [ended(0)])
    assert await store.read("t") == [ended(0)]


# how it is made and held


@pytest.mark.parametrize("path", [None, 5, b"x", "", "a\0b", ":memory:", "/"])
def test_what_is_no_path_of_a_file_is_refused(path: Any) -> None:
    with pytest.raises(ConfigError, match="checkpointer: "):
        SQLiteBackend(path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"checkpointer: .*file/runs\.db cannot be used"):
        SQLiteBackend(tmp_path / "file" / "runs.db")


def test_a_relative_path_is_resolved_where_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SQLiteBackend("runs.db")
    monkeypatch.chdir("/")
    assert store.path == tmp_path / "runs.db"


async def test_nothing_is_opened_or_made_before_the_first_write(
    store: SQLiteBackend, path: Path
) -> None:
    assert await store.read("t") == []
    assert await store.find("run_1") is None
    assert not path.exists()


async def test_nobody_else_on_the_machine_may_read_a_thread(written: Path) -> None:
    assert written.stat().st_mode & 0o077 == 0


async def test_a_path_with_signs_of_a_uri_is_a_path(tmp_path: Path) -> None:
    store = SQLiteBackend(tmp_path / "50%?a=1#ü.db")
    await store.acquire("t", "run_1", 60)
    assert (tmp_path / "50%?a=1#ü.db").exists()


async def test_a_copy_that_travelled_uses_the_same_file(
    store: SQLiteBackend, written: Path
) -> None:
    epoch = await store.acquire("t", "run_2", 60)
    other: SQLiteBackend = pickle.loads(pickle.dumps(store))
    with pytest.raises(ThreadBusy):
        await other.acquire("t", "run_3", 60)
    await store.append("t", epoch, [ended(9)])
    assert len(await other.read("t")) == 7


async def test_one_thread_writes_for_all_stores_of_a_file_and_ends_with_the_last(
    tmp_path: Path,
) -> None:
    path = tmp_path / f"{tmp_path.name}.db"  # a name of its own, by which the thread is known

    def writing() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name == f"sqlite {path.name}"]

    stores = [SQLiteBackend(path) for _ in range(3)]
    for number, store in enumerate(stores):
        await store.acquire(f"t{number}", "run_1", 60)
    (thread,) = writing()
    stores.clear()
    del store
    gc.collect()
    await asyncio.to_thread(thread.join, 10)
    assert writing() == []
    assert [one.name for one in path.parent.iterdir()] == [path.name], "the log is folded in"


async def test_whoever_is_cancelled_while_acquiring_does_not_keep_the_thread(
    store: SQLiteBackend,
) -> None:
    acquiring = asyncio.ensure_future(store.acquire("t", "run_1", 3600))
    await asyncio.sleep(0)  # it has begun
    acquiring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acquiring
    async with asyncio.timeout(30):
        while await store.find("run_2") is None:
            try:
                epoch = await store.acquire("t", "run_2", 60)
            except ThreadBusy:
                continue
            await store.append("t", epoch, [ended(0, "run_2")])


def _written_after_a_fork(store: SQLiteBackend) -> None:
    async def write() -> None:
        epoch = await store.acquire("child", "run_child", 60)
        await store.append("child", epoch, [ended(0, "run_child")])

    asyncio.run(write())


def test_a_process_that_was_forked_opens_the_file_for_itself(store: SQLiteBackend) -> None:
    async def write(seq: int) -> None:
        epoch = await store.acquire("t", "run_1", 60)
        await store.append("t", epoch, [ended(seq)])

    asyncio.run(write(0))
    child = multiprocessing.get_context("fork").Process(target=_written_after_a_fork, args=(store,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    asyncio.run(write(1))
    assert asyncio.run(store.read("t")) == [ended(0), ended(1)]
    assert asyncio.run(store.read("child")) == [ended(0, "run_child")]
