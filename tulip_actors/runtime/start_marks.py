"""Which bodies have begun in a worker, readable after its process was killed.

A byte in shared memory survives its writer; a message on its way does not. So a call that was
handed to a worker which then died is made again only if its mark says that it never began.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import tempfile
from pathlib import Path

_MARK = struct.Struct("<Q")


class StartMarks:
    """One number per place: that of the call which began there last. Written by the worker."""

    def __init__(self, worker_id: str, places: int) -> None:
        self.path = Path(tempfile.gettempdir()) / f"tulip-starts-{worker_id}"
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(descriptor, places * _MARK.size)
            self._marks = mmap.mmap(descriptor, places * _MARK.size)
        finally:
            os.close(descriptor)

    def begun(self, place: int, number: int) -> None:
        """The body of a call begins now."""
        _MARK.pack_into(self._marks, place * _MARK.size, number)

    def unlink(self) -> None:
        """Take the name away; who has it open keeps it. On another node nobody could open it."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


class SeenMarks:
    """The dispatcher's view of a worker's marks. Where it cannot see them (the worker is on another
    node) every call that was handed over counts as begun: that is the safe side."""

    def __init__(self, path: Path) -> None:
        self._marks: mmap.mmap | None = None
        try:
            with path.open("rb") as file:
                self._marks = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            path.unlink()
        except (OSError, ValueError):
            pass

    def has_begun(self, place: int, number: int) -> bool:
        """Whether the call handed over as `number` in this place may have begun."""
        if self._marks is None:
            return True
        return bool(_MARK.unpack_from(self._marks, place * _MARK.size)[0] == number)
