"""Checkpointers by URL: `checkpointer="sqlite:///runs.db"`. A backend is imported when it is named.

What follows the scheme is a path as it is, nothing in it is decoded.

    sqlite:///runs.db          SQLiteBackend("runs.db"), seen from where the agent is made
    sqlite:////var/lib/runs.db SQLiteBackend("/var/lib/runs.db")
    file:///var/lib/threads    FileCheckpointer("/var/lib/threads")
    memory://                  MemoryCheckpointer()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tulip_actors.errors import ConfigError
from tulip_actors.memory.checkpointer import BaseCheckpointer


def checkpointer_of(url: str) -> BaseCheckpointer:
    """The checkpointer that a URL names, made. Raises `ConfigError`."""
    scheme, separator, rest = url.partition("://")
    make = _SCHEMES.get(scheme) if separator else None
    if make is None:
        known = ", ".join(f"{one}://" for one in _SCHEMES)
        raise ConfigError(f"checkpointer: {url!r:.80} has none of the schemes {known}")
    return make(rest)


def existing(url: str) -> BaseCheckpointer:
    """The same, to look at what is there already. Raises `ConfigError` where nothing is."""
    scheme, _, rest = url.partition("://")
    path = rest[1:] if scheme == "sqlite" else rest
    if scheme == "memory":
        raise ConfigError("memory:// is the memory of whoever uses it: there is nothing to look at")
    if scheme in _SCHEMES and _path(scheme, rest) and not Path(path).expanduser().exists():
        raise ConfigError(f"{url}: there is no {path}")
    return checkpointer_of(url)


def _sqlite(rest: str) -> BaseCheckpointer:
    from tulip_actors.memory.backends.sqlite import SQLiteBackend

    return SQLiteBackend(_path("sqlite", rest)[1:])


def _file(rest: str) -> BaseCheckpointer:
    from tulip_actors.memory.backends.file import FileCheckpointer

    return FileCheckpointer(_path("file", rest))


def _memory(rest: str) -> BaseCheckpointer:
    from tulip_actors.memory.backends.memory import MemoryCheckpointer

    if rest.strip("/"):
        raise ConfigError(f"checkpointer: memory:// takes nothing more, not {rest!r:.80}")
    return MemoryCheckpointer()


_SCHEMES: Final[Mapping[str, Callable[[str], BaseCheckpointer]]] = {
    "sqlite": _sqlite,
    "file": _file,
    "memory": _memory,
}


def _path(scheme: str, rest: str) -> str:
    if not rest.startswith("/") or not rest.strip("/"):
        raise ConfigError(
            f"checkpointer: '{scheme}://{rest:.60}' names no path: write {_EXAMPLES[scheme]}"
        )
    return rest


_EXAMPLES: Final = {
    "sqlite": "sqlite:///runs.db, or sqlite:////var/lib/runs.db for an absolute path",
    "file": "file:///var/lib/threads",
}
