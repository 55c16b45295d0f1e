"""The runs of a store at a glance, from their records."""

from __future__ import annotations

from collections.abc import Container, Sequence

from tulip_actors.core.ports import RunStore
from tulip_actors.core.run_info import RunInfo, RunState, StoredRun
from tulip_actors.core.runs import (
    Answered,
    MetadataSet,
    Record,
    Recovered,
    RunEnded,
    RunStarted,
    Saved,
)
from tulip_actors.errors import NotSerialisable
from tulip_actors.memory.fold import since_started

LOST = "lost"
"""The stop reason of a run that never ended, and whose thread another run has continued."""


async def infos_of(store: RunStore, without: Container[str] = ()) -> list[RunInfo]:
    """Every run of a store but those `without`; a thread that cannot be read hides no other."""
    by_thread: dict[str, list[StoredRun]] = {}
    for one in await store.runs():
        if one.run_id not in without:
            by_thread.setdefault(one.thread_id, []).append(one)
    infos: list[RunInfo] = []
    for thread_id, runs in by_thread.items():
        try:
            thread = await store.read(thread_id)
        except NotSerialisable:
            infos += [_unreadable(one) for one in runs]
        else:
            infos += [info for one in runs if (info := _info_of(one, thread)) is not None]
    return infos


def _unreadable(run: StoredRun) -> RunInfo:
    return RunInfo(run.run_id, run.thread_id, None, "", RunState.UNREADABLE, None)


def _info_of(run: StoredRun, thread: Sequence[Record]) -> RunInfo | None:
    """What the records say; None for a run that has written none of its own."""
    own = since_started(thread, run.run_id)
    if not own or not isinstance(own[0], RunStarted):
        return None
    state, last, stop_reason = _stands(run, own, thread)
    return RunInfo(
        run_id=run.run_id,
        thread_id=run.thread_id,
        agent=None,
        agent_id=own[0].agent_id,
        state=state,
        since=last.at,
        recoveries=sum(isinstance(one, Recovered) for one in own),
        stop_reason=stop_reason,
    )


def _stands(
    run: StoredRun, own: Sequence[Record], thread: Sequence[Record]
) -> tuple[RunState, Record, str | None]:
    """The state, the record since which it is so, and why the last segment ended."""
    last = next(one for one in reversed(own) if not isinstance(one, MetadataSet))
    newest = next(one for one in reversed(thread) if isinstance(one, RunStarted | Saved))
    is_newest = newest.run_id == run.run_id
    if isinstance(last, RunEnded):
        waits = is_newest and last.stop_reason == RunState.INTERRUPTED
        return (RunState.INTERRUPTED if waits else RunState.ENDED), last, last.stop_reason
    if not is_newest:
        return RunState.ENDED, last, LOST
    if not run.is_held:
        return RunState.LEFT, last, None
    began = next(one for one in reversed(own) if isinstance(one, Answered | RunStarted))
    return RunState.RUNNING, began, None
