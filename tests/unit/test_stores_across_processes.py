"""F9, C12 and C44 with real processes: two on one thread, one that was stopped, one killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeAlias

import pytest

from tulip_actors import StaleEpoch, StoreUnavailable, ThreadBusy
from tulip_actors.core.runs import Record, RunEnded
from tulip_actors.memory.backends import FileCheckpointer, SQLiteBackend

AT = datetime(2026, 1, 2, tzinfo=UTC)
Store: TypeAlias = FileCheckpointer | SQLiteBackend
SHORT_LEASE_S = 0.5


@pytest.fixture(params=["file", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "file":
        return FileCheckpointer(tmp_path / "threads")
    return SQLiteBackend(tmp_path / "runs.db")


def ended(seq: int, reason: str = "complete") -> Record:
    return RunEnded("run_1", seq, AT, reason, "complete")


@contextmanager
def process(
    body: Callable[[Store, Connection], None], store: Store
) -> Iterator[tuple[BaseProcess, Connection]]:
    """Another process, and a pipe to it; killed in the end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=body, args=(store, theirs))
    child.start()
    theirs.close()
    try:
        yield child, ours
    finally:
        child.kill()
        child.join(60)
        ours.close()


def compete(store: Store, pipe: Connection) -> None:
    """Acquire the thread when told to, tell what came of it, and stay until told to end."""
    pipe.send("ready")
    owner: str = pipe.recv()
    try:
        asyncio.run(store.acquire("t", owner, 60))
        pipe.send("won")
    except ThreadBusy as busy:
        pipe.send(f"busy: {busy.run_id}")
    pipe.recv()


def test_c12_of_two_processes_on_one_thread_one_wins_and_the_other_is_told_who(
    store: Store,
) -> None:
    with process(compete, store) as (_, one), process(compete, store) as (_, two):
        for pipe in (one, two):
            assert pipe.recv() == "ready"
        one.send("run_one")
        two.send("run_two")
        outcomes = (one.recv(), two.recv())
        assert outcomes in {("won", "busy: run_one"), ("busy: run_two", "won")}


def write_late(store: Store, pipe: Connection) -> None:
    """Acquire for a short time, and write and renew when told to, however late that is."""

    async def write() -> list[str]:
        epoch = await store.acquire("t", "run_1", SHORT_LEASE_S)
        await store.append("t", epoch, [ended(0)])
        pipe.send("ready")
        pipe.recv()
        met: list[str] = []
        for late in (store.append("t", epoch, [ended(1)]), store.renew("t", epoch, 60)):
            try:
                await late
                met.append("written")
            except StaleEpoch:
                met.append("stale")
        return met

    pipe.send(asyncio.run(write()))


async def test_c44_a_process_stopped_past_its_lease_cannot_write_when_it_wakes(
    store: Store,
) -> None:
    with process(write_late, store) as (child, pipe):
        assert pipe.recv() == "ready"
        assert child.pid is not None
        os.kill(child.pid, signal.SIGSTOP)
        pipe.send("write")
        epoch = await acquired(store, "run_2")
        await store.append("t", epoch, [ended(2)])
        os.kill(child.pid, signal.SIGCONT)
        assert pipe.recv() == ["stale", "stale"]
    assert await store.read("t") == [ended(0), ended(2)]


async def acquired(store: Store, owner: str) -> int:
    """The thread, as soon as it is free."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await store.acquire("t", owner, 60)
            except ThreadBusy:
                await asyncio.sleep(0)  # a store that does not wait would let nobody else in


def write_on(store: Store, pipe: Connection) -> None:
    """Append pairs without end, and tell how many are stored."""

    async def write() -> None:
        epoch = await store.acquire("t", "run_1", 3600)
        for seq in range(1_000_000):
            await store.append("t", epoch, [ended(seq), ended(seq)])
            pipe.send(seq + 1)

    asyncio.run(write())


@pytest.mark.parametrize("stored", [1, 17, 60])
async def test_f9_a_process_killed_while_it_writes_leaves_a_thread_of_whole_appends(
    store: Store, stored: int
) -> None:
    """Writes are atomic: all that was told to be stored is there, and nothing by half."""
    with process(write_on, store) as (child, pipe):
        told = 0
        while told < stored:
            told = pipe.recv()
        child.kill()
        child.join(60)
        while pipe.poll():
            try:
                told = pipe.recv()
            except EOFError:
                break
    epoch = await store.acquire("t", "run_2", 60)  # its writer is dead, whatever the lease says
    records = await store.read("t")
    pairs = len(records) // 2
    assert pairs >= told
    assert list(records) == [ended(seq) for seq in range(pairs) for _ in (1, 2)]
    await store.append("t", epoch, [ended(-1)])
    assert len(await store.read("t")) == 2 * pairs + 1


def write_much(store: Store, pipe: Connection) -> None:
    """Append more than a file may hold, and then a little."""

    async def write() -> list[str]:
        epoch = await store.acquire("t", "run_1", 60)
        await store.append("t", epoch, [ended(0)])
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY))
        met: list[str] = []
        for record in (ended(1, "x" * 1_000_000), ended(2)):
            try:
                await store.append("t", epoch, [record])
                met.append("written")
            except StoreUnavailable as error:
                met.append(error.message)
        return met

    pipe.send(asyncio.run(write()))


async def test_f9_where_the_system_lets_no_more_be_written_it_is_told_and_the_thread_stays_good(
    store: Store,
) -> None:
    with process(write_much, store) as (_, pipe):
        failed, written = pipe.recv()
    assert failed.startswith("thread 't' in ")
    assert failed.endswith("What was stored before is kept")
    assert written == "written"
    assert await store.read("t") == [ended(0), ended(2)]
