"""Threads as files in a folder: one append-only log each, readable after any crash.

A log is a header of fixed size and frames. The header names the thread, its epoch, and who may
write until when; it is rewritten in place. A frame is one append, whole: its length, a checksum,
and the packed records. Every access holds the file's lock, so several processes of one machine may
use the folder at once, and a writer that lost its epoch is refused. A frame that a crash tore is
the last one; it is cut off, with a warning, when the next writer takes the thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import msgpack

from tulip_actors.core.codec import pack_record, unpack_record
from tulip_actors.core.emitted import Emitted, is_emitted, pack_emitted, unpack_emitted
from tulip_actors.core.ports import RunStore
from tulip_actors.core.runs import Record, RunStarted
from tulip_actors.errors import ConfigError, NotSerialisable
from tulip_actors.memory.backends.process import is_held_by_another, this_process
from tulip_actors.memory.checkpointer import RecordedCheckpointer
from tulip_actors.memory.run_store import busy, stale

_log = logging.getLogger(__name__)

MAGIC = b"tulip1\n"
HEADER_BYTES = 1024
"""Room for a thread's id and its owner's, and little enough to be written at once."""
FRAME = struct.Struct("<III")
"""Length of the payload, the crc32 of these four bytes, and the crc32 of the payload."""


@dataclass(frozen=True, slots=True)
class Header:
    """Whose log it is, and who may write to it: until `lease_ends_s` (UNIX time), while `process`
    lives."""

    thread_id: str
    epoch: int = 0
    owner: str | None = None
    lease_ends_s: float = 0.0
    process: str = ""
    host_id: str = ""

    def is_held_by_another(self, owner: str, now_s: float) -> bool:
        """Whether somebody else may write who is still there."""
        return is_held_by_another(
            self.owner, self.lease_ends_s, self.process, than=owner, now_s=now_s
        )

    def packed(self) -> bytes:
        """The header as it stands in the file."""
        body: bytes = msgpack.packb(
            (
                self.thread_id,
                self.epoch,
                self.owner,
                self.lease_ends_s,
                self.process,
                self.host_id,
            )
        )
        framed = MAGIC + _framed(body)
        if len(framed) > HEADER_BYTES:
            raise ConfigError(
                f"thread_id: {self.thread_id!r:.60} is too long for a file; "
                f"thread and run ids may take {HEADER_BYTES - 64} bytes together"
            )
        return framed.ljust(HEADER_BYTES, b"\0")

    @classmethod
    def of(cls, packed: bytes, path: Path) -> Header:
        """The header of a file. Raises `NotSerialisable` for what is none."""
        start = len(MAGIC) + FRAME.size
        if packed.startswith(MAGIC) and len(packed) >= start:
            length, _, checksum = FRAME.unpack(packed[len(MAGIC) : start])
            body = packed[start : start + length]
            if len(body) == length and zlib.crc32(body) == checksum:
                return cls(*msgpack.unpackb(body))
        raise NotSerialisable(f"{path} is not a thread of this release, or its header is damaged")


class FileCheckpointer(RecordedCheckpointer):
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
            epoch = max(header.epoch, above) + 1
            file.write_header(Header(thread_id, epoch, owner, ends_s, this_process(), host_id))
        self._mark_held(thread_id, host_id)
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
            file.append(packed)
        for record in records:
            if isinstance(record, RunStarted) and record.run_id != thread_id:
                self._run_path(record.run_id).write_text(thread_id)

    async def read(self, thread_id: str, after: int = 0) -> Sequence[Record]:
        """See `RunStore`. Raises `NotSerialisable` for a file that is damaged before its end."""
        return await asyncio.to_thread(self._read, thread_id, after)

    def _read(self, thread_id: str, after: int) -> Sequence[Record]:
        with self._locked(thread_id) as file:
            frames = list(file.frames()) if file.exists else []
        records = [one for frame in frames for one in frame if not is_emitted(one)]
        return [unpack_record(one) for one in records[after:]]

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
            self._path(thread_id).unlink()
        for run_id in runs:
            self._run_path(run_id).unlink(missing_ok=True)
        return True

    # files

    def _path(self, thread_id: str) -> Path:
        return self.folder / f"{_file_name(thread_id)}.thread"

    def _host_folder(self, host_id: str) -> Path:
        return self.folder / "hosts" / _file_name(host_id)

    def _held_path(self, thread_id: str, host_id: str) -> Path:
        return self._host_folder(host_id) / _file_name(thread_id)

    def _run_path(self, run_id: str) -> Path:
        return self.folder / "runs" / _file_name(run_id)

    @contextmanager
    def _locked(self, thread_id: str, *, make: bool = False) -> Iterator[ThreadFile]:
        """The thread's file, locked. One that does not exist is made, or stands for nothing."""
        path = self._path(thread_id)
        flags = os.O_RDWR | os.O_CREAT if make else os.O_RDWR
        while True:
            try:
                descriptor = os.open(path, flags, 0o600)
            except FileNotFoundError:
                if make:  # somebody removed the folder: a new thread needs it again
                    self._make_folders()
                    continue
                yield ThreadFile(-1, path, thread_id, fsync=False)
                return
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, path):
                break
            os.close(descriptor)  # it was deleted while we waited for the lock
        try:
            yield ThreadFile(descriptor, path, thread_id, fsync=self._fsync)
        finally:
            os.close(descriptor)

    @contextmanager
    def _current(self, thread_id: str, epoch: int) -> Iterator[tuple[ThreadFile, Header]]:
        with self._locked(thread_id) as file:
            header = file.header() if file.exists else None
            if header is None or header.epoch != epoch:
                raise stale(thread_id, epoch, header.epoch if header else "forgotten")
            yield file, header


class ThreadFile:
    """One open, locked file."""

    def __init__(self, descriptor: int, path: Path, thread_id: str, *, fsync: bool) -> None:
        self._descriptor = descriptor
        self._path = path
        self._thread_id = thread_id
        self._fsync = fsync

    @property
    def exists(self) -> bool:
        """False when there is no such file."""
        return self._descriptor >= 0

    def header(self) -> Header:
        """Who may write; a file just made has an empty one."""
        packed = os.pread(self._descriptor, HEADER_BYTES, 0)
        return Header.of(packed, self._path) if packed else Header(self._thread_id)

    def write_header(self, header: Header) -> None:
        """Replace the header."""
        os.pwrite(self._descriptor, header.packed(), 0)
        self._settle()

    def append(self, records: Sequence[bytes]) -> None:
        """Add one frame. What a full disk leaves of it is cut off again."""
        body: bytes = msgpack.packb(records)
        frame = _framed(body)
        end = os.fstat(self._descriptor).st_size
        try:
            written = os.pwrite(self._descriptor, frame, end)
            if written != len(frame):
                raise OSError(f"{self._path}: only {written} of {len(frame)} bytes were written")
            self._settle()
        except OSError:
            os.ftruncate(self._descriptor, end)
            raise

    def frames(self) -> Iterator[Sequence[bytes]]:
        """The records of every whole frame. Raises `NotSerialisable` for damage before the end."""
        yield from (records for _, records in self._scan())

    def run_ids(self) -> set[str]:
        """The runs that can be read in it."""
        found: set[str] = set()
        with contextlib.suppress(NotSerialisable):  # what is damaged is left out
            for records in self.frames():
                found.update(unpack_record(one).run_id for one in records if not is_emitted(one))
        return found

    def cut_torn_end(self) -> None:
        """Remove what a crash left of the last append."""
        good = max((end for end, _ in self._scan()), default=HEADER_BYTES)
        size = os.fstat(self._descriptor).st_size
        if size > good:
            _log.warning("%s: %d bytes of an unfinished write are cut off", self._path, size - good)
            os.ftruncate(self._descriptor, good)

    def _scan(self) -> Iterator[tuple[int, Sequence[bytes]]]:
        """Whole frames, each with the position after it."""
        self.header()
        content = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)
        position = HEADER_BYTES
        while position + FRAME.size <= len(content):
            length, length_checksum, checksum = FRAME.unpack_from(content, position)
            end = position + FRAME.size + length
            is_length = zlib.crc32(content[position : position + 4]) == length_checksum
            body = content[position + FRAME.size : end] if is_length else b""
            if length == 0 or len(body) < length or zlib.crc32(body) != checksum:
                rest = content[end:] if is_length else content[position:]
                if rest.strip(b"\0"):
                    raise NotSerialisable(
                        f"{self._path} is damaged at byte {position}: not by a crash, since more "
                        "follows. Restore the file, or delete it to begin the thread anew"
                    )
                return
            yield end, msgpack.unpackb(body)
            position = end

    def _settle(self) -> None:
        if self._fsync:
            os.fsync(self._descriptor)


def _framed(body: bytes) -> bytes:
    length = len(body).to_bytes(4, "little")
    return FRAME.pack(len(body), zlib.crc32(length), zlib.crc32(body)) + body


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
