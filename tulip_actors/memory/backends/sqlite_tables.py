"""The tables of a SQLite file and the statements on them: plain calls on an open connection.

What writes is called inside a transaction that the caller began and ends; it refuses, with an error
of ours, before it changes anything. Nothing here knows of threads of execution or of event loops.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tulip_actors.core.emitted import Emitted
from tulip_actors.core.run_info import StoredRun
from tulip_actors.errors import StaleEpoch
from tulip_actors.memory.backends.process import is_held_by_another, this_process
from tulip_actors.memory.backends.unpacking import missing
from tulip_actors.memory.run_store import busy, run_of, stale

FORMAT = 1
"""Of the tables, in `user_version`: a release refuses a file of a newer one."""
APPLICATION_ID: Final = int.from_bytes(b"tulp", "big")
"""Tells our files from other databases."""

TABLES: Final = {
    # `records` counts what was appended, so that a record that is missing at the end is missed too
    "threads": """CREATE TABLE threads (
        thread INTEGER PRIMARY KEY,
        thread_id TEXT NOT NULL UNIQUE,
        epoch INTEGER NOT NULL,
        owner TEXT,
        host_id TEXT NOT NULL,
        lease_ends_s REAL NOT NULL,
        process TEXT NOT NULL,
        records INTEGER NOT NULL DEFAULT 0)""",
    # in the order of writing, with an index beside them: ordered by thread, what a hundred runs
    # append at once would change a hundred pages
    "records": """CREATE TABLE records (
        thread INTEGER NOT NULL,
        position INTEGER NOT NULL,
        run_id TEXT NOT NULL,
        packed BLOB NOT NULL,
        PRIMARY KEY (thread, position))""",
    "events": """CREATE TABLE events (
        run_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        packed BLOB NOT NULL,
        PRIMARY KEY (run_id, seq))""",
    "runs": """CREATE TABLE runs (
        run_id TEXT PRIMARY KEY,
        thread INTEGER NOT NULL) WITHOUT ROWID""",
    # the highest epoch of any thread that was deleted: one made anew begins above it, so that a
    # writer of the old one is still refused
    "deleted": "CREATE TABLE deleted (epoch INTEGER NOT NULL)",
}
INDEXES: Final = (
    "CREATE INDEX runs_of_thread ON runs (thread)",
    "CREATE INDEX held_by_host ON threads (host_id) WHERE owner IS NOT NULL",
)


# writing


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody says who wants a thread; see `RunStore.acquire`. `clock_s` is UNIX time."""

    thread_id: str
    owner: str
    lease_s: float
    host_id: str
    above: int
    clock_s: Callable[[], float]


def acquire(claim: Claim, connection: sqlite3.Connection) -> int:
    """Become the thread's writer."""
    now_s = claim.clock_s()
    row = connection.execute(
        "SELECT epoch, owner, lease_ends_s, process FROM threads WHERE thread_id = ?",
        (claim.thread_id,),
    ).fetchone()
    if row is None:
        (epoch,) = connection.execute("SELECT epoch FROM deleted").fetchone()
    else:
        epoch, owner, lease_ends_s, process = row
        if is_held_by_another(owner, lease_ends_s, process, than=claim.owner, now_s=now_s):
            raise busy(claim.thread_id, owner)
    epoch = max(epoch, claim.above) + 1
    holds = (epoch, claim.owner, claim.host_id, now_s + claim.lease_s, this_process())
    connection.execute(
        "INSERT INTO threads (thread_id, epoch, owner, host_id, lease_ends_s, process) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (thread_id) DO UPDATE SET epoch = excluded.epoch, "
        "owner = excluded.owner, host_id = excluded.host_id, "
        "lease_ends_s = excluded.lease_ends_s, process = excluded.process",
        (claim.thread_id, *holds),
    )
    return int(epoch)


def renew(
    thread_id: str,
    epoch: int,
    lease_s: float,
    clock_s: Callable[[], float],
    connection: sqlite3.Connection,
) -> None:
    """Keep the lease."""
    renewed = connection.execute(
        "UPDATE threads SET lease_ends_s = ? WHERE thread_id = ? AND epoch = ?",
        (clock_s() + lease_s, thread_id, epoch),
    )
    if renewed.rowcount == 0:
        raise _stale(connection, thread_id, epoch)


def release(thread_id: str, epoch: int, connection: sqlite3.Connection) -> None:
    """Give the thread back; a stale owner has nothing to give."""
    connection.execute(
        "UPDATE threads SET owner = NULL, host_id = '', lease_ends_s = 0, process = '' "
        "WHERE thread_id = ? AND epoch = ?",
        (thread_id, epoch),
    )


@dataclass(frozen=True, slots=True)
class Appended:
    """One append, packed: records as (run_id, bytes), events as (run_id, number, bytes)."""

    thread_id: str
    epoch: int
    records: Sequence[tuple[str, bytes]]
    events: Sequence[tuple[str, int, bytes]]


def append(appended: Appended, connection: sqlite3.Connection) -> None:
    """Add records and events. The first statement is the fence, and finds the place."""
    row = connection.execute(
        "UPDATE threads SET records = records + ? WHERE thread_id = ? AND epoch = ? "
        "RETURNING thread, records",
        (len(appended.records), appended.thread_id, appended.epoch),
    ).fetchone()
    if row is None:
        raise _stale(connection, appended.thread_id, appended.epoch)
    thread, count = row
    first = count - len(appended.records)
    connection.executemany(
        "INSERT INTO records VALUES (?, ?, ?, ?)",
        [
            (thread, position, run_id, packed)
            for position, (run_id, packed) in enumerate(appended.records, first)
        ],
    )
    if appended.events:  # a number names one event: a later writer's is the one that counts
        connection.executemany("INSERT OR REPLACE INTO events VALUES (?, ?, ?)", appended.events)
    for run_id in {one[0] for one in (*appended.records, *appended.events)}:
        connection.execute(
            "INSERT INTO runs VALUES (?, ?) ON CONFLICT (run_id) "
            "DO UPDATE SET thread = excluded.thread WHERE thread <> excluded.thread",
            (run_id, thread),
        )


def delete(thread_id: str, clock_s: Callable[[], float], connection: sqlite3.Connection) -> bool:
    """Forget a thread; False if there is none."""
    row = connection.execute(
        "SELECT thread, epoch, owner, lease_ends_s, process FROM threads WHERE thread_id = ?",
        (thread_id,),
    ).fetchone()
    if row is None:
        return False
    thread, epoch, owner, lease_ends_s, process = row
    if is_held_by_another(owner, lease_ends_s, process, than="", now_s=clock_s()):
        raise busy(thread_id, owner)
    connection.execute("UPDATE deleted SET epoch = max(epoch, ?)", (epoch,))
    connection.execute(
        "DELETE FROM events WHERE run_id IN (SELECT run_id FROM runs WHERE thread = ?)", (thread,)
    )
    for table in ("runs", "records", "threads"):
        connection.execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))
    return True


def _stale(connection: sqlite3.Connection, thread_id: str, epoch: int) -> StaleEpoch:
    row = connection.execute(
        "SELECT epoch FROM threads WHERE thread_id = ?", (thread_id,)
    ).fetchone()
    return stale(thread_id, epoch, row[0] if row else "forgotten")


# reading


def read(connection: sqlite3.Connection, thread_id: str, after: int, where: str) -> list[object]:
    """The packed records from position `after` on; raises `NotSerialisable` where one is missing.

    What a damaged file has in their place comes too.
    """
    row = connection.execute(
        "SELECT thread, records FROM threads WHERE thread_id = ?", (thread_id,)
    ).fetchone()
    if row is None:
        return []
    thread, count = row
    rows = connection.execute(
        "SELECT position, packed FROM records WHERE thread = ? AND position >= ? ORDER BY position",
        (thread, after),
    ).fetchall()
    for expected, (position, _) in enumerate(rows, after):
        if position != expected:
            raise missing(where, expected, count)
    if after + len(rows) < count:
        raise missing(where, after + len(rows), count)
    return [packed for _, packed in rows]


def find(connection: sqlite3.Connection, run_id: str) -> str | None:
    """The thread of a run."""
    row = connection.execute(
        "SELECT thread_id FROM runs JOIN threads USING (thread) WHERE run_id = ?", (run_id,)
    ).fetchone()
    return str(row[0]) if row else None


def events_of(connection: sqlite3.Connection, run_id: str, after: int) -> list[Emitted]:
    """The kept events of a run with a number greater than `after`, in order."""
    rows = connection.execute(
        "SELECT seq, packed FROM events WHERE run_id = ? AND seq > ? ORDER BY seq", (run_id, after)
    )
    return [Emitted(run_id, seq, packed=packed) for seq, packed in rows]


def held_by(connection: sqlite3.Connection, host_id: str) -> list[tuple[str, str]]:
    """Threads that runs of a host hold, with their owners."""
    return connection.execute(
        "SELECT thread_id, owner FROM threads WHERE host_id = ? AND owner IS NOT NULL "
        "ORDER BY thread",
        (host_id,),
    ).fetchall()


def runs(connection: sqlite3.Connection, now_s: float) -> list[StoredRun]:
    """Every run, its thread, and whether it holds that."""
    rows = connection.execute(
        "SELECT run_id, thread_id, owner, lease_ends_s, process FROM runs JOIN threads "
        "USING (thread) ORDER BY thread"
    )
    return [
        StoredRun(
            run_id,
            thread_id,
            owner is not None
            and run_of(owner) == run_id
            and is_held_by_another(owner, lease_ends_s, process, than="", now_s=now_s),
        )
        for run_id, thread_id, owner, lease_ends_s, process in rows
    ]
