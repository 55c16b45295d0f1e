"""What a dispatcher and its workers say to each other.

What may live here: the messages, and how they are packed. Both ends pack whole batches with
`pickle` and hand Ray the bytes: its own pickler takes several times as long for each object.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tulip_actors.core.calls import CallKey, CallKind, ToolPolicy, ToolRequest
from tulip_actors.tools.children import ChildCall


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """A worker to be: how its bodies share it, and how many calls it may hold."""

    id: str
    kind: CallKind
    places: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker is there: where, and where its start marks are."""

    pid: int
    node_id: str
    marks: Path


class Handed(NamedTuple):
    """A call handed to a worker. `number` and `place` are for its start mark, `sent_at_s` is
    wall-clock time, for `queued_ms`."""

    number: int
    place: int
    request: ToolRequest
    queued_at_s: float


@dataclass(slots=True)
class Work:
    """What a worker is to do next. `toolsets` are those that it does not have yet."""

    calls: list[Handed]
    cancels: list[CallKey]
    toolsets: dict[str, bytes]
    leave: bool = False


class CancelSeen(NamedTuple):
    """The worker has told the body to end: its event loop is alive."""

    key: CallKey


@dataclass(frozen=True, slots=True)
class ChildCalls:
    """Calls of a running body: one tool, many arguments. `packed` is set for a tool of its own."""

    parent: CallKey
    ticket: str
    toolset: str
    packed: bytes | None
    tool_name: str
    policy: ToolPolicy
    calls: Sequence[ChildCall]


def packed(message: object) -> bytes:
    """A message of this module, or a batch of requests or updates, as bytes."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def unpacked(message: bytes) -> Any:
    """What was packed; between processes of one cluster only."""
    return pickle.loads(message)


Toolsets = Mapping[str, bytes]
