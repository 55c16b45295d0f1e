"""What a checkpointer is to its user: states of threads, saved, loaded, listed, deleted.

The shipped ones keep records (they are RunStores) and show checkpoints as a view over them. Your
own, a subclass of `BaseCheckpointer` with four methods over any storage, is used as it is: see
`checkpointed_store`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from tulip_actors.core.defaults import RandomIds
from tulip_actors.core.ports import RunStore
from tulip_actors.core.runs import Record, Saved
from tulip_actors.core.state import AgentState
from tulip_actors.memory.fold import checkpoint_id_of, seeded, state_to_keep

SAVE_LEASE_S = 30.0
"""How long somebody who saves a state may hold its thread."""

ItemT = TypeVar("ItemT")


class BaseCheckpointer(ABC):
    """Keeps states by thread. Subclass it to keep them where you want."""

    @abstractmethod
    async def save(
        self, state: AgentState, thread_id: str, checkpoint_id: str | None = None
    ) -> str:
        """Keep a state as the thread's newest checkpoint; returns the checkpoint's id."""

    @abstractmethod
    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> AgentState | None:
        """The state at a checkpoint, by default the newest; None if there is none."""

    @abstractmethod
    async def list_checkpoints(self, thread_id: str, limit: int | None = None) -> Sequence[str]:
        """Ids of a thread's checkpoints, newest first."""

    @abstractmethod
    async def delete(self, thread_id: str) -> bool:
        """Forget a thread; False if there is none."""


class RecordedCheckpointer(BaseCheckpointer):
    """A RunStore seen as a checkpointer: its checkpoints are places in a thread's records.

    There is one at the end of every segment of a run, one where a run asked for it
    (`checkpoint_every_n_iterations`), and one where `save` was called. `load` without an id gives
    the state after the newest record, also of a run that is under way.
    """

    @property
    @abstractmethod
    def store(self) -> RunStore:
        """Where the records are."""

    async def save(
        self, state: AgentState, thread_id: str, checkpoint_id: str | None = None
    ) -> str:
        """See `BaseCheckpointer`. Raises `ThreadBusy` while a run holds the thread."""
        checkpoint_id = checkpoint_id or RandomIds().new("saved")
        epoch = await self.store.acquire(thread_id, checkpoint_id, SAVE_LEASE_S)
        try:
            saved = Saved(state.run_id, 0, datetime.now(UTC), checkpoint_id, state.to_checkpoint())
            await self.store.append(thread_id, epoch, list(seeded(state, saved)))
        finally:
            await self.store.release(thread_id, epoch)
        return checkpoint_id

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> AgentState | None:
        """See `BaseCheckpointer`."""
        return state_at(await self.store.read(thread_id), checkpoint_id)

    async def list_checkpoints(self, thread_id: str, limit: int | None = None) -> Sequence[str]:
        """See `BaseCheckpointer`."""
        ids = map(checkpoint_id_of, await self.store.read(thread_id))
        return newest_first([one for one in ids if one is not None], limit)

    async def delete(self, thread_id: str) -> bool:
        """See `BaseCheckpointer`. Raises `ThreadBusy` while a run holds the thread."""
        return await self.store.delete(thread_id)


class FiledCheckpointer(RecordedCheckpointer):
    """Keeps records in files, which one node has: agents of other nodes reach them through it.

    `home` is the id of that node; it is known once this has left the process in which it was made.
    """

    home: str | None = None

    @property
    @abstractmethod
    def location(self) -> Path:
        """The file or folder."""


def state_at(records: Sequence[Record], checkpoint_id: str | None = None) -> AgentState | None:
    """The state that a thread's records give, or that at one of their checkpoints.

    Of a run that waits for answers it has all that is needed to resume it from there.
    """
    if checkpoint_id is None:
        return state_to_keep(records) if records else None
    places = [n for n, one in enumerate(records, 1) if checkpoint_id_of(one) == checkpoint_id]
    return state_to_keep(records[: places[-1]]) if places else None


def newest_first(items: Sequence[ItemT], limit: int | None = None) -> Sequence[ItemT]:
    """The items backwards, at most `limit` of them."""
    return list(reversed(items))[:limit]
