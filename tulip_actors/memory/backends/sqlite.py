"""Threads in a SQLite file: the RunStore over `sqlite_writer` for what writes, and reads beside it.

The three files below have the parts: `sqlite_tables` the statements, `sqlite_file` how the file is
opened and checked, `sqlite_writer` the thread that writes.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import time
from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from tulip_actors.core.codec import pack_record
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.ports import RunStore
from tulip_actors.core.run_info import StoredRun
from tulip_actors.core.runs import Record
from tulip_actors.errors import ConfigError
from tulip_actors.memory.backends import sqlite_tables as tables
from tulip_actors.memory.backends.sqlite_file import open_to_read, place, told
from tulip_actors.memory.backends.sqlite_writer import Work, Writer, writer_of
from tulip_actors.memory.backends.unpacking import unpacked
from tulip_actors.memory.checkpointer import FiledCheckpointer

ResultT = TypeVar("ResultT")


class SQLiteBackend(FiledCheckpointer):
    """Keeps threads in one SQLite file, made when it is first written to.

    A relative path is resolved here and now. Any number of processes of one machine may use the
    file; each opens it for itself, also after it was forked or got this object pickled. What is
    written survives the death of any process; with `fsync=True` it survives the loss of power too,
    for some milliseconds per turn: without it such a loss may take the last turns, never the file.
    A network file system is not safe. `clock_s` gives UNIX time, for leases.

    Raises `ConfigError` for what cannot be the path of a file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        fsync: bool = False,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self.path = _checked(path)
        self._fsync = fsync
        self._clock_s = clock_s
        self._writer: Writer | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_writer": None}

    @property
    def location(self) -> Path:
        """See `FiledCheckpointer`."""
        return self.path

    @property
    def store(self) -> RunStore:
        """Itself: it is a RunStore."""
        return self

    # RunStore

    @property
    def keeps_events(self) -> bool:
        """See `RunStore`."""
        return True

    async def acquire(
        self, thread_id: str, owner: str, lease_s: float, *, host_id: str = "", above: int = 0
    ) -> int:
        """See `RunStore`. Whoever is cancelled meanwhile does not keep the thread."""
        claim = tables.Claim(thread_id, owner, lease_s, host_id, above, self._clock_s)
        acquiring = self._written(thread_id, partial(tables.acquire, claim))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            acquiring.add_done_callback(partial(self._give_back, thread_id))
            raise

    def _give_back(self, thread_id: str, acquired: Future[int]) -> None:
        if not acquired.cancelled() and acquired.exception() is None:
            self._written(thread_id, partial(tables.release, thread_id, acquired.result()))

    async def renew(self, thread_id: str, epoch: int, lease_s: float) -> None:
        """See `RunStore`."""
        work = partial(tables.renew, thread_id, epoch, lease_s, self._clock_s)
        await self._written(thread_id, work)

    async def release(self, thread_id: str, epoch: int) -> None:
        """See `RunStore`."""
        await self._written(thread_id, partial(tables.release, thread_id, epoch))

    async def append(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        """See `RunStore`."""
        packed = tables.Appended(
            thread_id,
            epoch,
            [(one.run_id, pack_record(one)) for one in records],
            [(one.run_id, one.seq, one.packed) for one in events],
        )
        await self._written(thread_id, partial(tables.append, packed))

    async def read(self, thread_id: str, after: int = 0) -> Sequence[Record]:
        """See `RunStore`. Raises `NotSerialisable` where a record is missing or not readable."""
        where = place(thread_id, self.path)
        look = partial(tables.read, thread_id=thread_id, after=after, where=where)
        return await asyncio.to_thread(
            lambda: unpacked(self._looked(look, [], where), where, after)
        )

    async def find(self, run_id: str) -> str | None:
        """See `RunStore`."""
        look = partial(tables.find, run_id=run_id)
        return await asyncio.to_thread(self._looked, look, None, f"run {run_id} in {self.path}")

    async def events_of(self, run_id: str, after: int = -1) -> Sequence[Emitted]:
        """See `RunStore`."""
        look = partial(tables.events_of, run_id=run_id, after=after)
        return await asyncio.to_thread(self._looked, look, [], f"run {run_id} in {self.path}")

    async def held_by(self, host_id: str) -> Sequence[tuple[str, str]]:
        """See `RunStore`."""
        look = partial(tables.held_by, host_id=host_id)
        return await asyncio.to_thread(self._looked, look, [], str(self.path))

    async def runs(self) -> Sequence[StoredRun]:
        """See `RunStore`."""
        look = partial(tables.runs, now_s=self._clock_s())
        return await asyncio.to_thread(self._looked, look, [], str(self.path))

    async def delete(self, thread_id: str) -> bool:
        """See `RunStore`."""
        return await self._written(thread_id, partial(tables.delete, thread_id, self._clock_s))

    def _written(self, thread_id: str, work: Work[ResultT]) -> Future[ResultT]:
        writer = self._writer
        if writer is None or writer.pid != os.getpid():
            writer = self._writer = writer_of(self.path, fsync=self._fsync)
        return writer.submit(thread_id, work)

    def _looked(self, look: Work[ResultT], nothing: ResultT, where: str) -> ResultT:
        """What a read gives, on a connection of its own; `nothing` where there is no file yet."""
        try:
            with open_to_read(self.path) as connection:
                return nothing if connection is None else look(connection)
        except (sqlite3.Error, OSError) as error:
            raise told(error, where) from error


def _checked(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ConfigError(f"checkpointer: give the path of a file, not {path!r:.80}")
    if os.fspath(path) == ":memory:":
        raise ConfigError("checkpointer: for threads in memory give MemoryCheckpointer()")
    file = Path(path).expanduser().absolute()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        is_folder = stat.S_ISDIR(os.stat(file).st_mode)
    except FileNotFoundError:
        return file
    except (OSError, ValueError) as error:
        raise ConfigError(f"checkpointer: {file} cannot be used: {error}") from error
    if is_folder:
        raise ConfigError(f"checkpointer: {file} is a folder: give the path of a file")
    return file
