"""Where the records of threads may be kept. Each is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tulip_actors.memory.backends.file import FileCheckpointer
    from tulip_actors.memory.backends.memory import MemoryCheckpointer
    from tulip_actors.memory.backends.sqlite import SQLiteBackend

__all__ = ["FileCheckpointer", "MemoryCheckpointer", "SQLiteBackend"]

_FILES = {"FileCheckpointer": "file", "MemoryCheckpointer": "memory", "SQLiteBackend": "sqlite"}


def __getattr__(name: str) -> object:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)
