"""A user's own checkpointer as a RunStore: records in memory, states saved at checkpoints.

Between two checkpoints the records are in this process alone, so a run is durable at its
checkpoints only: at the end of a run, before it pauses, and at every
`checkpoint_every_n_iterations`-th turn. Runs that were given no thread are not saved.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from weakref import WeakValueDictionary

from tulip_actors.core.emitted import Emitted
from tulip_actors.core.ports import RunStore
from tulip_actors.core.run_info import StoredRun
from tulip_actors.core.runs import Record, Saved
from tulip_actors.core.state import AgentState
from tulip_actors.errors import ConfigError
from tulip_actors.memory.checkpointer import BaseCheckpointer, RecordedCheckpointer
from tulip_actors.memory.fold import checkpoint_id_of, seeded, state_to_keep
from tulip_actors.memory.run_store import MAX_THREADS, RecordLog, run_of


class CheckpointedStore:
    """RunStore over a `BaseCheckpointer`. One serves all agents of a process that share it."""

    keeps_events = False

    def __init__(self, checkpointer: BaseCheckpointer) -> None:
        self.checkpointer = checkpointer
        self._log = RecordLog[Record]()
        self._saved: dict[str, AgentState] = {}

    async def acquire(
        self, thread_id: str, owner: str, lease_s: float, *, host_id: str = "", above: int = 0
    ) -> int:
        """See `RunStore`. What was saved meanwhile, by whomever, is taken up."""
        epoch = self._log.acquire(thread_id, owner, lease_s, host_id, above)
        if run_of(owner) == thread_id:  # it was given no thread, so nothing is saved of it
            return epoch
        try:
            self._take_up(thread_id, await self._loaded(thread_id))
        except BaseException:
            self._log.release(thread_id, epoch)
            raise
        return epoch

    async def renew(self, thread_id: str, epoch: int, lease_s: float) -> None:
        """See `RunStore`."""
        self._log.renew(thread_id, epoch, lease_s)

    async def release(self, thread_id: str, epoch: int) -> None:
        """See `RunStore`."""
        self._log.release(thread_id, epoch)

    async def append(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        """See `RunStore`. At a checkpoint the state is saved before this returns."""
        before = len(self._log.read(thread_id, 0))
        self._log.append(thread_id, epoch, records)
        for position, record in enumerate(records, before + 1):
            checkpoint_id = checkpoint_id_of(record)
            if checkpoint_id is not None and record.run_id != thread_id:
                state = state_to_keep(self._log.read(thread_id, 0)[:position])
                await self.checkpointer.save(state, thread_id, checkpoint_id)
                self._keep(thread_id, state)

    async def read(self, thread_id: str, after: int = 0) -> Sequence[Record]:
        """See `RunStore`. A reader takes up what was saved, unless a run holds the thread."""
        if not self._log.is_held(thread_id):
            state = await self._loaded(thread_id)
            if not self._log.is_held(thread_id):  # no run has begun meanwhile
                self._take_up(thread_id, state)
        return self._log.read(thread_id, after)

    async def find(self, run_id: str) -> str | None:
        """See `RunStore`. It knows the runs of this process, and of the threads it has loaded."""
        return self._log.find(run_id)

    async def events_of(self, run_id: str, after: int = -1) -> Sequence[Emitted]:
        """See `RunStore`. There are none: a checkpoint is a state."""
        return ()

    async def held_by(self, host_id: str) -> Sequence[tuple[str, str]]:
        """See `RunStore`. It knows this process's runs only."""
        return self._log.held_by(host_id)

    async def runs(self) -> Sequence[StoredRun]:
        """See `RunStore`. It knows this process's runs only."""
        return self._log.runs()

    async def delete(self, thread_id: str) -> bool:
        """See `RunStore`."""
        known = self._log.delete(thread_id)
        return await self.checkpointer.delete(thread_id) or known

    async def _loaded(self, thread_id: str) -> AgentState | None:
        state: object = await self.checkpointer.load(thread_id)
        if state is None or isinstance(state, AgentState):
            return state
        name = type(self.checkpointer).__name__
        raise ConfigError(
            f"checkpointer: {name}.load returned {type(state).__name__}; "
            "return an AgentState or None"
        )

    def _take_up(self, thread_id: str, state: AgentState | None) -> None:
        """Make a thread's records those of its saved state, unless they are already."""
        if state is None:
            if self._saved.pop(thread_id, None) is not None:  # deleted, by whomever
                self._log.replace(thread_id, [], None)
            return
        if state == self._saved.get(thread_id) and self._log.read(thread_id, 0):
            return
        saved = Saved(state.run_id, 0, datetime.now(UTC), "loaded", state.to_checkpoint())
        self._log.replace(thread_id, list(seeded(state, saved)), state.run_id)
        self._keep(thread_id, state)

    def _keep(self, thread_id: str, state: AgentState) -> None:
        self._saved[thread_id] = state
        while len(self._saved) > MAX_THREADS:  # it is loaded again when it is needed
            del self._saved[next(iter(self._saved))]


def store_of(checkpointer: BaseCheckpointer | RunStore) -> RunStore:
    """The store that a checkpointer is, has, or is made into."""
    if isinstance(checkpointer, RecordedCheckpointer):
        return checkpointer.store
    if isinstance(checkpointer, BaseCheckpointer):
        with _making:
            store = _made.get(id(checkpointer)) or CheckpointedStore(checkpointer)
            _made[id(checkpointer)] = store
            return store
    return checkpointer


_making = threading.Lock()
_made: WeakValueDictionary[int, CheckpointedStore] = WeakValueDictionary()
"""The one store of a checkpointer in this process, as long as somebody uses it: who holds a thread
is known to it alone. It keeps its checkpointer alive, so that an id means one object."""
