"""An event on its way out: the object, its bytes, or both, each made at most once."""

from __future__ import annotations

import msgpack

from tulip_actors.core.codec import pack_event, unpack_event
from tulip_actors.core.events import TulipEvent
from tulip_actors.errors import NotSerialisable

EMITTED_VERSION = b"\xe1"
"""Opens an event that is kept beside a thread's records, which open with their version."""


class Emitted:
    """One stamped event. `run_id` and `seq` can be read without decoding."""

    __slots__ = ("_event", "_packed", "run_id", "seq")

    def __init__(
        self,
        run_id: str,
        seq: int,
        event: TulipEvent | None = None,
        packed: bytes | None = None,
    ) -> None:
        self.run_id = run_id
        self.seq = seq
        self._event = event
        self._packed = packed

    @property
    def event(self) -> TulipEvent:
        """The event, decoded at the first look."""
        event = self._event  # looked at once: `packed_only` may let it go in another thread
        if event is None:
            assert self._packed is not None, "made with neither event nor bytes"
            event = self._event = unpack_event(self._packed)
        return event

    @property
    def packed(self) -> bytes:
        """The event's bytes, encoded at the first look."""
        if self._packed is None:
            assert self._event is not None, "made with neither event nor bytes"
            self._packed = pack_event(self._event)
        return self._packed

    def packed_only(self) -> bytes:
        """The event's bytes; the object is let go. A late reader decodes, and until then the event
        takes a tenth of the memory and nothing of the garbage collector's time."""
        packed = self._packed or self.packed
        self._event = None
        return packed

    def __reduce__(self) -> tuple[object, ...]:
        return _from_packed, (self.run_id, self.seq, self.packed)


def _from_packed(run_id: str, seq: int, packed: bytes) -> Emitted:
    return Emitted(run_id, seq, packed=packed)


def pack_emitted(emitted: Emitted) -> bytes:
    """An event as a store keeps it: a version byte and MessagePack."""
    body: bytes = msgpack.packb((emitted.run_id, emitted.seq, emitted.packed))
    return EMITTED_VERSION + body


def is_emitted(packed: bytes) -> bool:
    """Whether `pack_emitted` wrote this, and not `pack_record`."""
    return packed[:1] == EMITTED_VERSION


def unpack_emitted(packed: bytes) -> Emitted:
    """The event that `pack_emitted` wrote."""
    try:
        run_id, seq, event = msgpack.unpackb(packed[1:])
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise NotSerialisable(f"a torn or foreign event: {error}") from error
    return Emitted(run_id, seq, packed=event)
