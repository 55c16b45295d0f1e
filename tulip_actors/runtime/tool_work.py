"""What agents, a dispatcher and its workers say to each other about calls, and how it is packed.

What may live here: the messages and their bytes. Whole batches are packed with `pickle` as plain
tuples, what their calls have in common once, and Ray is handed the bytes: its own pickler takes ten
times as long for each object of a class, and there are six such trips per call.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tulip_actors.core.calls import (
    CallFinished,
    CallKey,
    CallKind,
    CallReport,
    CallStarted,
    CallSubmitted,
    ToolOutcome,
    ToolPolicy,
    ToolRequest,
    ToolUpdate,
)
from tulip_actors.core.frozen import FrozenDict
from tulip_actors.tools.children import ChildCall

FINISHED, STARTED, SUBMITTED, OTHER = range(4)


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
    """A call handed to a worker, which knows it by its `number`; `place` is for its start mark,
    `queued_at_s` is wall-clock time."""

    number: int
    place: int
    queued_at_s: float
    request: ToolRequest


@dataclass(slots=True)
class Work:
    """What a worker is to do next. `toolsets` are those that it does not have yet."""

    calls: list[Handed]
    cancels: list[int]
    toolsets: dict[str, bytes]
    leave: bool = False


class Ended(NamedTuple):
    """A body has ended, in the worker that was handed the call under this number."""

    number: int
    outcome: ToolOutcome


class CancelSeen(NamedTuple):
    """The worker has told the body to end: its event loop is alive."""

    number: int


News: TypeAlias = Ended | CancelSeen | CallReport
"""What a worker tells."""


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
    """Any message as bytes."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def unpacked(message: bytes) -> Any:
    """What was packed; between processes of one cluster only."""
    return pickle.loads(message)


def pack_keys(keys: Iterable[CallKey]) -> bytes:
    """Keys as bytes. As plain tuples they find the same calls."""
    return packed([tuple(key) for key in keys])


def pack_requests(requests: Iterable[ToolRequest]) -> bytes:
    """Calls as bytes."""
    return packed(_rows(requests))


def unpack_requests(message: bytes) -> list[ToolRequest]:
    """The calls."""
    return list(_requests(unpacked(message)))


def pack_work(work: Work) -> bytes:
    """What a worker is to do, as bytes."""
    rows = _rows(handed.request for handed in work.calls)
    handed = [one[:3] for one in work.calls]
    return packed((rows, handed, work.cancels, work.toolsets, work.leave))


def unpack_work(message: bytes) -> Work:
    """What a worker is to do."""
    rows, handed, cancels, toolsets, leave = unpacked(message)
    calls = [
        Handed(number, place, queued_at_s, request)
        for (number, place, queued_at_s), request in zip(handed, _requests(rows), strict=True)
    ]
    return Work(calls, cancels, toolsets, leave)


def pack_news(news: Iterable[News]) -> bytes:
    """What a worker tells, as bytes."""
    return packed(
        [
            (FINISHED, one.number, tuple(one.outcome[:WHERE]))
            if isinstance(one, Ended)
            else (OTHER, one)
            for one in news
        ]
    )


WHERE = ToolOutcome._fields.index("worker_pid")
"""From here on an outcome tells where the body ran, which the dispatcher knows of every worker."""


def unpack_news(message: bytes, hello: Hello) -> Iterator[News]:
    """What a worker told; where it runs is known since its hello."""
    where = (hello.pid, hello.node_id)
    for kind, *rest in unpacked(message):
        if kind == FINISHED:
            number, outcome = rest
            yield Ended(number, ToolOutcome._make((*outcome, *where)))
        else:
            yield rest[0]


def pack_updates(updates: Iterable[ToolUpdate]) -> bytes:
    """What happened to an agent's calls, as bytes. Children announced in a row share a group."""
    entries: list[tuple[Any, ...]] = []
    announced: list[ToolRequest] = []

    def announce() -> None:
        if announced:
            entries.append((SUBMITTED, _rows(announced)))
            announced.clear()

    for update in updates:
        if isinstance(update, CallSubmitted):
            announced.append(update.request)
            continue
        announce()
        if isinstance(update, CallFinished):
            entries.append((FINISHED, tuple(update.key), tuple(update.outcome)))
        elif isinstance(update, CallStarted):
            entries.append((STARTED, tuple(update.key), update.worker_pid, update.node_id))
        else:
            entries.append((OTHER, update))
    announce()
    return packed(entries)


def unpack_updates(message: bytes) -> Iterator[ToolUpdate]:
    """What happened to an agent's calls."""
    for kind, *rest in unpacked(message):
        if kind == FINISHED:
            yield CallFinished(CallKey._make(rest[0]), ToolOutcome._make(rest[1]))
        elif kind == STARTED:
            yield CallStarted(CallKey._make(rest[0]), rest[1], rest[2])
        elif kind == SUBMITTED:
            yield from map(CallSubmitted, _requests(rest[0]))
        else:
            yield rest[0]


_Group: TypeAlias = tuple[tuple[Any, ...], list[tuple[Any, ...]]]
"""What calls have in common, and a row for each with the rest."""


def _rows(requests: Iterable[ToolRequest]) -> list[_Group]:
    groups: list[_Group] = []
    common: tuple[Any, ...] = ()
    rows: list[tuple[Any, ...]] = []
    for key, name, call_id, arguments, *rest in requests:
        shared = (key.run_id, key.turn, name, *rest)
        if shared != common:
            common, rows = shared, []
            groups.append((common, rows))
        rows.append((key.slot, key.index, call_id, dict(arguments)))
    return groups


def _requests(groups: Iterable[_Group]) -> Iterator[ToolRequest]:
    for (run_id, turn, name, *rest), rows in groups:
        for slot, index, call_id, arguments in rows:
            key = CallKey(run_id, turn, slot, index)
            yield ToolRequest(key, name, call_id, FrozenDict(arguments), *rest)
