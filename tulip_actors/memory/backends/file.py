"""Threads as files in a folder: one log each, see `thread_file`.

Every access holds the file's lock, so several processes of one machine may use the folder at once,
and a writer that lost its epoch is refused.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from tulip_actors.core.codec import pack_record
from tulip_actors.core.emitted import Emitted, is_emitted, pack_emitted, unpack_emitted
from tulip_actors.core.ports import RunStore
from tulip_actors.core.run_info import StoredRun
from tulip_actors.core.runs import Record, RunStarted
from tulip_actors.errors import ConfigError, NotSerialisable, StoreUnavailable
from tulip_actors.memory.backends.process import this_process
from tulip_actors.memory.backends.thread_file import Header, ThreadFile
from tulip_actors.memory.backends.unpacking import unpacked
from tulip_actors.memory.checkpointer import FiledCheckpointer
from tulip_actors.memory.run_store import busy, run_of, stale

_SUFFIX = ".thread"


class FileCheckpointer(FiledCheckpointer):
    """Keeps threads in a folder, which is made if it is not there.

    A relative path is resolved here and now, so the agent's process, wherever it is, uses the same
    one. What is written survives the death of any process; with `fsync=True` it survives the loss
    of power too, for some milliseconds per turn. The folder belongs to one machine: a network
    file system that does not keep locks is not safe. `clock_s` gives UNIX time, for leases.

    Raises `ConfigError` when the folder cannot be made.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        fsync: bool = False,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            raise ConfigError(f"checkpointer: give the path of a folder, not {folder!r:.80}")
        self.folder = Path(folder).expanduser().absolute()
        self._fsync = fsync
        self._clock_s = clock_s
        self._make_folders()

    def _make_folders(self) -> None:
        try:
            (self.folder / "runs").mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise ConfigError(f"checkpointer: {self.folder} cannot be used: {error}") from error

    @property
    def location(self) -> Path:
        """See `FiledCheckpointer`."""
        return self.folder

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
        """See `RunStore`. Cuts off what a crash left torn."""
        Header(thread_id, 0, owner, host_id=host_id).packed()  # too long: no file is left
        with self._locked(thread_id, make=True) as file:
            header = file.header()
            if header.is_held_by_another(owner, self._clock_s()):
                raise busy(thread_id, header.owner)
            file.cut_torn_end()
            ends_s = self._clock_s() + lease_s
            epoch = max(header.epoch or self._deleted_epoch(), above) + 1
            self._mark_held(thread_id, host_id)  # before it is held: afterwards nothing may fail
            file.write_header(Header(thread_id, epoch, owner, ends_s, this_process(), host_id))
        return epoch

    async def renew(self, thread_id: str, epoch: int, lease_s: float) -> None:
        """See `RunStore`."""
        with self._current(thread_id, epoch) as (file, header):
            file.write_header(replace(header, lease_ends_s=self._clock_s() + lease_s))

    async def release(self, thread_id: str, epoch: int) -> None:
        """See `RunStore`."""
        with self._locked(thread_id) as file:
            if file.exists and (header := file.header()).epoch == epoch:
                file.write_header(Header(thread_id, epoch))
                self._held_path(thread_id, header.host_id).unlink(missing_ok=True)

    async def append(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        """See `RunStore`."""
        self.append_now(thread_id, epoch, records, events)

    def append_now(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        """See `ImmediateRunStore`: what the operating system has survives the process."""
        packed = [*map(pack_record, records), *map(pack_emitted, events)]
        with self._current(thread_id, epoch) as (file, _):
            for record in records:  # before they are stored: afterwards nothing may fail
                if isinstance(record, RunStarted) and record.run_id != thread_id:
                    self._run_path(record.run_id).write_text(thread_id)
            file.append(packed)

    async def read(self, thread_id: str, after: int = 0) -> Sequence[Record]:
        """See `RunStore`. Raises `NotSerialisable` for a file that is damaged before its end."""
        return await asyncio.to_thread(self._read, thread_id, after)

    def _read(self, thread_id: str, after: int) -> Sequence[Record]:
        with self._locked(thread_id) as file:
            frames = list(file.frames()) if file.exists else []
        records = [one for frame in frames for one in frame if not is_emitted(one)]
        where = f"thread {thread_id!r} in {self._path(thread_id)}"
        return unpacked(records[after:], where, after)

    async def events_of(self, run_id: str, after: int = -1) -> Sequence[Emitted]:
        """See `RunStore`."""
        thread_id = await self.find(run_id)
        if thread_id is None:
            return ()
        return await asyncio.to_thread(self._events_of, thread_id, run_id, after)

    def _events_of(self, thread_id: str, run_id: str, after: int) -> Sequence[Emitted]:
        with self._locked(thread_id) as file:
            frames = list(file.frames()) if file.exists else []
        events = (unpack_emitted(one) for frame in frames for one in frame if is_emitted(one))
        return [event for event in events if event.run_id == run_id and event.seq > after]

    async def held_by(self, host_id: str) -> Sequence[tuple[str, str]]:
        """See `RunStore`."""
        return await asyncio.to_thread(self._held_by, host_id)

    def _held_by(self, host_id: str) -> Sequence[tuple[str, str]]:
        held: list[tuple[str, str]] = []
        folder = self._host_folder(host_id)
        for mark in sorted(folder.iterdir()) if folder.is_dir() else ():
            thread_id = mark.read_text()
            with self._locked(thread_id) as file:
                header = file.header() if file.exists else Header(thread_id)
            if header.owner is not None and header.host_id == host_id:
                held.append((thread_id, header.owner))
            else:
                mark.unlink(missing_ok=True)
        return held

    async def runs(self) -> Sequence[StoredRun]:
        """See `RunStore`. Reads every file of the folder."""
        return await asyncio.to_thread(self._runs)

    def _runs(self) -> Sequence[StoredRun]:
        found: list[StoredRun] = []
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            with self._locked_at(path, path.name) as file, suppress(NotSerialisable):
                if file.exists:
                    header, now_s = file.header(), self._clock_s()
                    is_held = header.is_held_by_another("", now_s)
                    owner = run_of(header.owner or "") if is_held else None
                    found += [
                        StoredRun(run_id, header.thread_id, run_id == owner)
                        for run_id in sorted(file.run_ids())
                    ]
        return found

    def _mark_held(self, thread_id: str, host_id: str) -> None:
        """Leave a sign where the host looks after a crash; the header says whether it holds."""
        if host_id:
            folder = self._host_folder(host_id)
            folder.mkdir(parents=True, exist_ok=True)
            self._held_path(thread_id, host_id).write_text(thread_id)

    async def find(self, run_id: str) -> str | None:
        """See `RunStore`."""
        if not run_id:
            return None
        try:
            return self._run_path(run_id).read_text()
        except FileNotFoundError:
            return run_id if self._path(run_id).exists() else None

    async def delete(self, thread_id: str) -> bool:
        """See `RunStore`."""
        with self._locked(thread_id) as file:
            if not file.exists:
                return False
            try:
                header = file.header()
            except NotSerialisable:  # nobody can write to that either
                header = Header(thread_id)
            if header.is_held_by_another("", self._clock_s()):
                raise busy(thread_id, header.owner)
            runs = file.run_ids()
            self._keep_deleted_epoch(header.epoch)
            self._path(thread_id).unlink()
        for run_id in runs:
            self._run_path(run_id).unlink(missing_ok=True)
        return True

    # files

    def _deleted_epoch(self) -> int:
        """The highest epoch of a thread that was deleted: one made anew begins above it, so that a
        writer of the old one is still refused."""
        try:
            return int((self.folder / "deleted").read_text() or 0)
        except FileNotFoundError:
            return 0

    def _keep_deleted_epoch(self, epoch: int) -> None:
        with (self.folder / "deleted").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if epoch > self._deleted_epoch():
                os.pwrite(file.fileno(), b"%020d" % epoch, 0)

    def _path(self, thread_id: str) -> Path:
        return self.folder / f"{_file_name(thread_id)}{_SUFFIX}"

    def _host_folder(self, host_id: str) -> Path:
        return self.folder / "hosts" / _file_name(host_id)

    def _held_path(self, thread_id: str, host_id: str) -> Path:
        return self._host_folder(host_id) / _file_name(thread_id)

    def _run_path(self, run_id: str) -> Path:
        return self.folder / "runs" / _file_name(run_id)

    @contextmanager
    def _locked(self, thread_id: str, *, make: bool = False) -> Iterator[ThreadFile]:
        """The thread's file, locked. One that does not exist is made, or stands for nothing.

        What the system cannot do is told as `StoreUnavailable`.
        """
        with self._locked_at(self._path(thread_id), thread_id, make=make) as file:
            yield file

    @contextmanager
    def _locked_at(self, path: Path, thread_id: str, *, make: bool = False) -> Iterator[ThreadFile]:
        """The same, by the path of the file."""
        descriptor = -1
        try:
            descriptor = self._opened(path, make)
            yield ThreadFile(descriptor, path, thread_id, fsync=self._fsync)
        except OSError as error:
            raise StoreUnavailable(
                f"thread {thread_id!r} in {path}: {error}. What was stored before is kept"
            ) from error
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _opened(self, path: Path, make: bool) -> int:
        """A file's descriptor with the lock held; -1 when there is none and none is to be made."""
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT if make else os.O_RDWR, 0o600)
            except FileNotFoundError:
                if not make:
                    return -1
                self._make_folders()  # somebody removed the folder: a new thread needs it again
                continue
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, path):
                return descriptor
            os.close(descriptor)  # it was deleted while we waited for the lock

    @contextmanager
    def _current(self, thread_id: str, epoch: int) -> Iterator[tuple[ThreadFile, Header]]:
        with self._locked(thread_id) as file:
            header = file.header() if file.exists else None
            if header is None or header.epoch != epoch:
                raise stale(thread_id, epoch, header.epoch if header else "forgotten")
            yield file, header


def _file_name(name: str) -> str:
    """A file name that is readable and unique, whatever characters the name has."""
    quoted = quote(name, safe="")
    if len(quoted) <= 120 and not quoted.startswith("."):
        return quoted
    return f"{quoted[:80].lstrip('.')}-{sha256(name.encode()).hexdigest()[:32]}"


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
