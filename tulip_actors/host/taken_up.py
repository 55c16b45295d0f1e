"""A run that goes on: what its thread holds of it, and which question an answer is for."""

from __future__ import annotations

from collections.abc import Sequence

from tulip_actors.core.runs import Answer, Answered, Paused, Record, RunRequest, RunStarted, Saved
from tulip_actors.errors import InterruptNotPending, RunNotFound
from tulip_actors.memory.fold import since_started


def taken_up(thread: Sequence[Record], run_id: str) -> tuple[RunRequest, Sequence[Record]]:
    """The request with which a run was started, and its records.

    Raises `RunNotFound` when the thread has none, `InterruptNotPending` when a later run has used
    the thread: that one closed what this one had left open.
    """
    own = since_started(thread, run_id)
    if not own or not isinstance(own[0], RunStarted):
        raise RunNotFound(
            f"there is no run {run_id} to resume: its records are not in this store. (Of a "
            "thread that a checkpointer of your own keeps, give the thread_id too.)",
            run_id=run_id,
        )
    for record in reversed(thread):
        if record is own[0]:
            break
        if isinstance(record, RunStarted | Saved):
            raise InterruptNotPending(
                f"run {run_id} cannot go on: "
                + (
                    f"run {record.run_id} has continued its thread"
                    if isinstance(record, RunStarted)
                    else "a state was saved into its thread"
                )
                + f" {own[0].request.thread_id!r} meanwhile",
                run_id=run_id,
            )
    return own[0].request, own


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
