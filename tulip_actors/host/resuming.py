"""What an answer to a paused run is for: the run's own records, and the question among them."""

from __future__ import annotations

from collections.abc import Sequence

from tulip_actors.core.ports import RunStore
from tulip_actors.core.runs import Answer, Answered, Paused, Record, RunRequest, RunStarted
from tulip_actors.errors import InterruptNotPending, RunNotFound


async def paused_run(
    store: RunStore, run_id: str, answer: Answer
) -> tuple[RunRequest, list[Record]]:
    """The request with which a run was started, and its records.

    Raises `RunNotFound`, or `InterruptNotPending` for an answer to nothing.
    """
    thread_id = await store.find(run_id)
    records = () if thread_id is None else await store.read(thread_id)
    own = [record for record in records if record.run_id == run_id]
    started = next((one for one in own if isinstance(one, RunStarted)), None)
    if started is None:
        raise RunNotFound(
            f"there is no run {run_id} to resume: its records are not in this store",
            run_id=run_id,
        )
    pending_interrupt(own, answer, run_id)
    return started.request, own


def pending_interrupt(records: Sequence[Record], answer: Answer, run_id: str) -> str:
    """The id of the question that an answer is for. Raises `InterruptNotPending`."""
    answered = {one.interrupt_id for one in records if isinstance(one, Answered)}
    asked = [one.interrupt_id for one in records if isinstance(one, Paused)]
    pending = [one for one in asked if one not in answered]
    if answer.interrupt_id is None and len(pending) == 1:
        return pending[0]
    if answer.interrupt_id in pending:
        return str(answer.interrupt_id)
    what = "no id was given" if answer.interrupt_id is None else f"not {answer.interrupt_id!r}"
    raise InterruptNotPending(
        f"run {run_id} waits for an answer to: {', '.join(pending) or 'nothing'}; {what}",
        run_id=run_id,
    )
