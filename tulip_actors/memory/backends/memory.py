"""Threads kept in memory: of this process with the inline runtime, of the cluster with Ray."""

from __future__ import annotations

from collections.abc import Callable

from tulip_actors.core.defaults import RandomIds
from tulip_actors.core.ports import RunStore
from tulip_actors.errors import ConfigError
from tulip_actors.memory.checkpointer import RecordedCheckpointer
from tulip_actors.memory.run_store import MemoryRunStore


class MemoryCheckpointer(RecordedCheckpointer):
    """A handle on threads in memory; agents that share it share their threads.

    Inline they live as long as this object. On Ray they live in the cluster's services actor, so
    they outlive the agents and the program, and end with the cluster.
    """

    def __init__(self) -> None:
        self.id = RandomIds().new("memory")
        self._where: str | None = None
        self._make: Callable[[], RunStore] = MemoryRunStore
        self._store: RunStore | None = None

    def use(self, where: str, make: Callable[[], RunStore] | None) -> None:
        """Settle where the threads are, as the first agent does; None = in this process.

        Raises `ConfigError` when they are elsewhere already.
        """
        if self._where == where:
            return
        if self._where is not None or (make is not None and self._store is not None):
            raise ConfigError(
                f"checkpointer: this MemoryCheckpointer keeps its threads in "
                f"{self._where or 'this process'} already, not in {where}; make another one"
            )
        self._where = where
        if make is not None:
            self._make = make

    @property
    def store(self) -> RunStore:
        """Where the records are."""
        if self._store is None:
            self._store = self._make()
        return self._store

    def __getstate__(self) -> dict[str, object]:
        return {"id": self.id, "_where": self._where, "_make": _not_here, "_store": None}


def _not_here() -> RunStore:
    raise ConfigError(
        "this MemoryCheckpointer is a copy that came with an agent; ask the agent: get_state"
    )
