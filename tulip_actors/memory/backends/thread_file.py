"""One thread as one append-only log, readable after any crash.

A log is a header of fixed size and frames. The header names the thread, its epoch, and who may
write until when; it is rewritten in place. A frame is one append, whole: its length, a checksum,
and the packed records. A frame that a crash tore is the last one; it is cut off, with a warning,
when the next writer takes the thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgpack

from tulip_actors.core.codec import unpack_record
from tulip_actors.core.emitted import is_emitted
from tulip_actors.errors import ConfigError, NotSerialisable
from tulip_actors.memory.backends.process import is_held_by_another

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
