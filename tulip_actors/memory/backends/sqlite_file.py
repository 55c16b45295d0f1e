"""A SQLite file of ours: opened, made, checked; and what SQLite says as an error of our tree."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tulip_actors.errors import NotSerialisable, RunError, StoreUnavailable
from tulip_actors.memory.backends.sqlite_tables import APPLICATION_ID, FORMAT, INDEXES, TABLES

BUSY_TIMEOUT_S = 10.0
"""How long an access waits while another process writes."""
_BUSY_RETRY_S = 0.01
_SMALLEST_BYTES = 512
"""No database is smaller, unless it is empty."""


def open_to_write(path: Path, *, fsync: bool) -> sqlite3.Connection:
    """A connection for the one writer; a file that is not there, or empty, gets the tables."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(
        FileExistsError
    ):  # to open one that exists would, on closing, drop SQLite's locks
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    connection = _connected(path)
    try:
        if _is_empty(connection, path):
            _use_wal(connection)
            _make_tables(connection, path)
        connection.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def open_to_read(path: Path) -> Iterator[sqlite3.Connection | None]:
    """A connection that sees all that was committed; None where there is nothing yet."""
    if not path.exists():
        yield None
        return
    with closing(_connected(path)) as connection:
        if _is_empty(connection, path):
            yield None
            return
        connection.execute("BEGIN")  # several statements see one state
        yield connection


def _connected(path: Path) -> sqlite3.Connection:
    uri = f"file:{quote(os.fspath(path))}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)


def _is_empty(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether there are no tables yet. Raises `NotSerialisable` for a file that is not ours."""
    application_id, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version")
    )
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if not tables and application_id == 0:
        if 0 < path.stat().st_size < _SMALLEST_BYTES:  # SQLite would write over it
            raise NotSerialisable(f"{path} is no database: give another path")
        return True
    if application_id != APPLICATION_ID:
        raise NotSerialisable(f"{path} is a database of another program: give another path")
    if version > FORMAT:
        raise NotSerialisable(
            f"{path} was written by a newer release of tulip_actors (format {version}; this one "
            f"reads {FORMAT}): use that release, or give another path. The file was left as it is"
        )
    lacking = sorted(TABLES.keys() - tables)
    if lacking:
        raise NotSerialisable(
            f"{path} is damaged: it has no table {', '.join(lacking)}. Restore it from a copy, or "
            f"give another path; the tables {', '.join(sorted(TABLES.keys() & tables))} are kept"
        )
    return False


def _use_wal(connection: sqlite3.Connection) -> None:
    """Turn to the write-ahead log; SQLite does not wait when another process does the same."""
    gives_up_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if _primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > gives_up_s:
                raise
            time.sleep(_BUSY_RETRY_S)


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    with transaction(connection):
        if not _is_empty(connection, path):  # another process was first
            return
        for statement in (*TABLES.values(), *INDEXES):
            connection.execute(statement)
        connection.execute("INSERT INTO deleted VALUES (0)")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or none of what is written inside. Others wait from its first moment."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite may have rolled back by itself
            connection.execute("ROLLBACK")
        raise


# failures

_DAMAGED: Final = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA}
)
"""What SQLite says of content; SQLITE_ERROR is a table or column that is not there."""
_ADVICE: Final = {
    sqlite3.SQLITE_FULL: "make room",
    sqlite3.SQLITE_IOERR: "look whether the disk is full or failing",
    sqlite3.SQLITE_READONLY: "make it writable",
    sqlite3.SQLITE_CANTOPEN: "look whether the folder is there and may be used",
    sqlite3.SQLITE_BUSY: "look which process keeps it locked",
}


def place(thread_id: str, path: Path) -> str:
    """What a message names."""
    return f"thread {thread_id!r} in {path}"


def told(error: sqlite3.Error | OSError, where: str) -> RunError:
    """The error of our tree for what SQLite, or the system, says. `where` names thread and file."""
    code = _primary_code(error)
    if code in _DAMAGED:
        return NotSerialisable(
            f"{where}: the file is damaged, or no database: {error}. It was left as it is: restore "
            "it from a copy, or give another path"
        )
    advice = _ADVICE.get(code, "look what holds it up")
    return StoreUnavailable(f"{where}: {error}: {advice}. What was stored before is kept")


def _primary_code(error: Exception) -> int:
    """SQLite's code without the extension in its upper bytes; 0 where there is none."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
