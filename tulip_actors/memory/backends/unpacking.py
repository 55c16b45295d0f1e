"""Packed records of a thread, read back; what cannot be read is named with its place."""

from __future__ import annotations

from collections.abc import Sequence

from tulip_actors.core.codec import unpack_record
from tulip_actors.core.runs import Record
from tulip_actors.errors import NotSerialisable


def unpacked(packed: Sequence[object], where: str, after: int = 0) -> list[Record]:
    """The records from position `after` on. `where` names the thread and where it is kept.

    Raises `NotSerialisable` for one that is torn, of a newer release, or nothing of the kind.
    """
    records: list[Record] = []
    for position, one in enumerate(packed, after):
        if not isinstance(one, bytes):
            raise _unreadable(where, position, f"{type(one).__name__} is not the bytes of a record")
        try:
            records.append(unpack_record(one))
        except NotSerialisable as error:
            raise _unreadable(where, position, error.message) from error
    return records


def missing(where: str, position: int, count: int) -> NotSerialisable:
    """The error for a thread that should have `count` records and lacks one."""
    return _unreadable(where, position, f"it is missing, of {count} that were written")


def _unreadable(where: str, position: int, problem: str) -> NotSerialisable:
    return NotSerialisable(
        f"{where}: record {position} cannot be read: {problem}. The {position} before it are kept. "
        "Restore it from a copy, or delete the thread to begin it anew"
    )
