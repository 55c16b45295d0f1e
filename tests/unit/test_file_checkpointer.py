"""F9 and C44: what stands in a folder after a crash, a full disk, or two processes at once."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tulip_actors import ConfigError, NotSerialisable, StaleEpoch, StoreUnavailable, ThreadBusy
from tulip_actors.core.runs import Record, RunEnded
from tulip_actors.memory.backends import FileCheckpointer, file
from tulip_actors.memory.backends.thread_file import HEADER_BYTES

AT = datetime(2026, 1, 2, tzinfo=UTC)


def ended(seq: int) -> Record:
    return RunEnded("run_1", seq, AT, "complete", "complete")


@pytest.fixture
def store(tmp_path: Path) -> FileCheckpointer:
    return FileCheckpointer(tmp_path)


@pytest.fixture
async def written(store: FileCheckpointer) -> Path:
    """A thread "t" of three appends that nobody holds; its file."""
    epoch = await store.acquire("t", "run_1", 60)
    for seq in range(3):
        await store.append("t", epoch, [ended(seq), ended(seq)])
    await store.release("t", epoch)
    return store.folder / "t.thread"


@pytest.mark.parametrize("lost", [1, 5, 20, 60])
async def test_f9_a_torn_write_is_detected_and_what_came_before_it_is_used(
    store: FileCheckpointer, written: Path, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    os.truncate(written, written.stat().st_size - lost)
    assert await store.read("t") == [ended(0), ended(0), ended(1), ended(1)]
    with caplog.at_level(logging.WARNING):
        epoch = await store.acquire("t", "run_2", 60)
    assert "unfinished write" in caplog.text
    await store.append("t", epoch, [ended(9)])
    assert await store.read("t") == [ended(0), ended(0), ended(1), ended(1), ended(9)]


async def test_f9_a_write_whose_bytes_never_came_is_detected(
    store: FileCheckpointer, written: Path
) -> None:
    with written.open("ab") as file:
        file.write(bytes(500))
    assert len(await store.read("t")) == 6
    epoch = await store.acquire("t", "run_2", 60)
    await store.append("t", epoch, [ended(9)])
    assert len(await store.read("t")) == 7


@pytest.mark.parametrize("at", [0, 2, 5, 9, 20], ids=str)
async def test_f9_damage_in_the_middle_is_never_cut_off_in_silence(
    store: FileCheckpointer, written: Path, at: int
) -> None:
    before = bytearray(written.read_bytes())
    before[HEADER_BYTES + at] ^= 0xFF
    written.write_bytes(before)
    with pytest.raises(NotSerialisable, match=f"damaged at byte {HEADER_BYTES}: not by a crash"):
        await store.read("t")
    with pytest.raises(NotSerialisable):
        await store.acquire("t", "run_2", 60)
    assert written.read_bytes() == before
    assert await store.delete("t"), "which is what the message says may be done"


@pytest.mark.parametrize(
    ("packed", "problem"),
    [
        (b"\x02\xff", "record version 2 is not 1: it was written by another release"),
        (b"", "torn"),
        (b"\x01\xc0", "torn or foreign"),
        ("text", "str is not the bytes of a record"),
    ],
)
async def test_a_record_of_a_newer_release_or_wrong_type_is_refused_by_name(
    store: FileCheckpointer,
    written: Path,
    monkeypatch: pytest.MonkeyPatch,
    packed: object,
    problem: str,
) -> None:
    epoch = await store.acquire("t", "run_1", 60)
    monkeypatch.setattr(file, "pack_record", lambda record: packed)
    await store.append("t", epoch, [ended(3)])
    with pytest.raises(
        NotSerialisable, match=f"(?s)thread 't' in .*: record 6 .*{problem}.*6 before"
    ):
        await store.read("t")


@pytest.mark.parametrize("content", [b"x", b"tulip1\n", b"x" * 4096, bytes(HEADER_BYTES)])
async def test_a_file_of_something_else_is_refused_by_name(
    store: FileCheckpointer, content: bytes
) -> None:
    (store.folder / "t.thread").write_bytes(content)
    with pytest.raises(NotSerialisable, match=r"t\.thread is not a thread"):
        await store.acquire("t", "run_1", 60)


async def test_f9_what_a_full_disk_left_of_a_write_is_taken_back(
    store: FileCheckpointer, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = await store.acquire("t", "run_2", 60)
    size = written.stat().st_size
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:10], at))
    with pytest.raises(StoreUnavailable, match=r"thread 't' in .*only 10 of"):
        await store.append("t", epoch, [ended(9)])
    monkeypatch.undo()
    assert written.stat().st_size == size
    await store.append("t", epoch, [ended(9)])
    assert len(await store.read("t")) == 7


async def test_two_handles_on_one_folder_see_the_same_threads(
    store: FileCheckpointer, written: Path
) -> None:
    other: FileCheckpointer = pickle.loads(pickle.dumps(store))
    epoch = await other.acquire("t", "run_2", 60)
    with pytest.raises(ThreadBusy):
        await store.acquire("t", "run_3", 60)
    await other.append("t", epoch, [ended(9)])
    assert len(await store.read("t")) == 7


def _take_over(folder: str, thread_id: str) -> None:
    import asyncio

    async def take() -> None:
        store = FileCheckpointer(folder)
        epoch = await store.acquire(thread_id, "run_1", 60)
        await store.append(thread_id, epoch, [ended(7)])

    asyncio.run(take())


async def test_a_writer_is_fenced_by_another_process_that_took_the_thread(
    store: FileCheckpointer,
) -> None:
    epoch = await store.acquire("t", "run_1", 60)
    await store.append("t", epoch, [ended(0)])
    other = multiprocessing.get_context("spawn").Process(
        target=_take_over, args=(str(store.folder), "t")
    )
    other.start()
    other.join(60)
    assert other.exitcode == 0
    with pytest.raises(StaleEpoch):
        await store.append("t", epoch, [ended(1)])
    assert await store.read("t") == [ended(0), ended(7)]


def _hold_and_die(folder: str) -> None:
    import asyncio

    asyncio.run(FileCheckpointer(folder).acquire("t", "run_1", 3600))


async def test_a_thread_whose_writer_has_died_is_free_at_once(store: FileCheckpointer) -> None:
    other = multiprocessing.get_context("spawn").Process(
        target=_hold_and_die, args=(str(store.folder),)
    )
    other.start()
    other.join(60)
    assert other.exitcode == 0
    assert await store.acquire("t", "run_2", 60) == 2
    with pytest.raises(ThreadBusy):
        await store.acquire("t", "run_3", 60)


async def test_a_writer_that_cannot_be_seen_from_here_keeps_its_thread(
    store: FileCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another container on the folder: its process ids mean nothing here."""
    monkeypatch.setattr(file, "this_process", lambda: "1:1:boot/pid:[elsewhere]")
    await store.acquire("t", "run_1", 60)
    monkeypatch.undo()
    with pytest.raises(ThreadBusy):
        await store.acquire("t", "run_2", 60)


async def test_a_folder_that_was_removed_is_made_again(
    store: FileCheckpointer, written: Path
) -> None:
    shutil.rmtree(store.folder)
    assert await store.read("t") == []
    epoch = await store.acquire("t", "run_2", 60)
    await store.append("t", epoch, [ended(0)])
    assert await store.read("t") == [ended(0)]


@pytest.mark.parametrize("folder", [None, 5, b"x", "", "a\0b"])
def test_what_is_no_folder_is_refused(folder: Any) -> None:
    with pytest.raises(ConfigError, match="checkpointer: "):
        FileCheckpointer(folder)


async def test_nobody_else_on_the_machine_may_read_a_thread(written: Path) -> None:
    assert written.stat().st_mode & 0o077 == 0


def test_a_relative_folder_is_resolved_where_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = FileCheckpointer("threads")
    monkeypatch.chdir("/")
    assert store.folder == tmp_path / "threads"
    assert store.folder.is_dir()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"checkpointer: .*file/threads cannot be used"):
        FileCheckpointer(tmp_path / "file" / "threads")
