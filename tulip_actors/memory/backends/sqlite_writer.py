"""The one thread of a process that writes to a SQLite file, with group commit.

Whatever waits when it is free is made in one transaction: a hundred runs that append at once cost
one commit. Work that is refused (`StaleEpoch`, `ThreadBusy`) has changed nothing, so the rest goes
on. When a statement or the commit fails, all of the transaction is taken back and each piece is
made anew in one of its own, so that only that fails which cannot be stored.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary, finalize

from tulip_actors.errors import TulipError
from tulip_actors.memory.backends.sqlite_file import open_to_write, place, told

BATCH_MAX = 512
"""Pieces of work in one transaction: a longer one would keep other processes waiting."""

ResultT = TypeVar("ResultT")
Work = Callable[[sqlite3.Connection], ResultT]
"""Something to do inside a transaction."""


class _Job(Generic[ResultT]):
    """Work, whom it is about, and who waits for it."""

    __slots__ = ("_future", "_tell", "_work", "loop", "thread_id")

    def __init__(self, thread_id: str, work: Work[ResultT], future: Future[ResultT]) -> None:
        self.thread_id = thread_id
        self.loop = future.get_loop()
        self._work = work
        self._future = future
        self._tell: Callable[[], object] = future.cancel

    def do(self, connection: sqlite3.Connection) -> None:
        """Do it. A refusal is its outcome too, and has changed nothing."""
        try:
            self._tell = partial(self._future.set_result, self._work(connection))
        except TulipError as refusal:
            self.fail(refusal)

    def fail(self, failure: Exception) -> None:
        """It cannot be done."""
        self._tell = partial(self._future.set_exception, failure)

    def settle(self) -> None:
        """Tell who waits, on its event loop."""
        if not self._future.done():  # nobody has cancelled it
            self._tell()


Jobs: TypeAlias = SimpleQueue[_Job[Any] | None]
"""On their way to the thread; None after the last."""


class Writer:
    """A way to the thread that writes to a file. The thread ends when nobody has one any more."""

    def __init__(self, path: Path, *, fsync: bool) -> None:
        self.pid = os.getpid()
        self._jobs: Jobs = SimpleQueue()
        thread = threading.Thread(
            target=_serve, args=(_File(path, fsync), self._jobs), name=f"sqlite {path.name}"
        )
        thread.daemon = True  # whoever needs what was written has waited for it
        thread.start()
        finalize(self, self._jobs.put, None)

    def submit(self, thread_id: str, work: Work[ResultT]) -> Future[ResultT]:
        """Have work done, in order; the future is done once it is committed."""
        future: Future[ResultT] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Job(thread_id, work, future))
        return future


def writer_of(path: Path, *, fsync: bool) -> Writer:
    """The writer of a file in this process."""
    with _making:
        key = (os.getpid(), path, fsync)
        writer = _writers.get(key) or Writer(path, fsync=fsync)
        _writers[key] = writer
        return writer


_making = threading.Lock()
_writers: WeakValueDictionary[tuple[int, Path, bool], Writer] = WeakValueDictionary()


def _forked() -> None:
    global _making
    _making = threading.Lock()  # a thread that is not in this process may have held the old one


os.register_at_fork(after_in_child=_forked)


class _File:
    """The file as the writing thread has it open; opened anew after a failure."""

    def __init__(self, path: Path, fsync: bool) -> None:
        self.path = path
        self._fsync = fsync
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)

    def connection(self) -> sqlite3.Connection:
        """An open one, to the file that is there now: what is written to a removed one is lost."""
        if self._connection is not None and self._identity != _identity(self.path):
            self.close()
        if self._connection is None:
            self._connection = open_to_write(self.path, fsync=self._fsync)
            self._identity = _identity(self.path)
        return self._connection

    def close(self) -> None:
        """Let go of it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _serve(file: _File, jobs: Jobs) -> None:
    """The thread: make what waits, tell who waited."""
    goes_on = True
    while goes_on:
        batch, goes_on = _next(jobs)
        _make(file, batch)
        _tell(batch)
        del batch  # a job keeps its event loop, and that may end before the next one comes
    file.close()


def _next(jobs: Jobs) -> tuple[list[_Job[Any]], bool]:
    """All that waits, at least one job; and False when no more will come."""
    batch: list[_Job[Any]] = []
    job = jobs.get()
    while job is not None:
        batch.append(job)
        if len(batch) == BATCH_MAX or jobs.empty():  # this thread alone takes from it
            return batch, True
        job = jobs.get()
    return batch, False


def _make(file: _File, batch: Sequence[_Job[Any]]) -> None:
    """Make all of it in one transaction or, where that fails, each in one of its own."""
    try:
        connection = file.connection()
        connection.execute("BEGIN IMMEDIATE")
    except Exception as failure:  # nothing can be written now: all who wait are told
        file.close()
        for job in batch:
            job.fail(_told(failure, job.thread_id, file.path))
        return
    try:
        for job in batch:
            job.do(connection)
        connection.execute("COMMIT")
    except Exception as failure:  # told to whom it concerns; the thread goes on
        file.close()  # which takes back what was not committed
        if len(batch) == 1:
            batch[0].fail(_told(failure, batch[0].thread_id, file.path))
            return
        for job in batch:
            _make(file, [job])


def _told(failure: Exception, thread_id: str, path: Path) -> Exception:
    if isinstance(failure, sqlite3.Error | OSError):
        return told(failure, place(thread_id, path))
    return failure


def _tell(batch: Sequence[_Job[Any]]) -> None:
    """Wake each event loop once."""
    waiting: dict[AbstractEventLoop, list[_Job[Any]]] = {}
    for job in batch:
        waiting.setdefault(job.loop, []).append(job)
    for loop, jobs in waiting.items():
        with suppress(RuntimeError):  # it was closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, jobs)


def _settle(jobs: Sequence[_Job[Any]]) -> None:
    for job in jobs:
        job.settle()
