"""A run that goes on: what its thread holds of it, and which question an answer is for."""

from __future__ import annotations

from collections.abc import Sequence

from tulip_actors.core.runs import Answer, Answered, Paused, Record, RunRequest, RunStarted, Saved
from tulip_actors.errors import InterruptNotPending, RunNotFound
from tulip_actors.memory.fold import since_started


def own_records(
    thread: Sequence[Record], run_id: str
) -> tuple[RunRequest | None, Sequence[Record]]:
    """The request with which a run was started, and its records; None without any."""
    own = since_started(thread, run_id)
    first = own[0] if own else None
    return (first.request, own) if isinstance(first, RunStarted) else (None, ())


def use_since(thread: Sequence[Record], own: Sequence[Record]) -> str | None:
    """What has used the thread since a run with these records began, in words; None if nothing."""
    for record in reversed(thread):
        if record is own[0]:
            break
        if isinstance(record, RunStarted):
            return f"run {record.run_id} has continued its thread"
        if isinstance(record, Saved):
            return "a state was saved into its thread"
    return None


def taken_up(thread: Sequence[Record], run_id: str) -> tuple[RunRequest, Sequence[Record]]:
    """The request with which a run was started, and its records.

    Raises `RunNotFound` when the thread has none, `InterruptNotPending` when a later run has used
    the thread: that one closed what this one had left open.
    """
    request, own = own_records(thread, run_id)
    if request is None:
        raise RunNotFound(
            f"there is no run {run_id} to resume: its records are not in this store. (Of a "
            "thread that a checkpointer of your own keeps, give the thread_id too.)",
            run_id=run_id,
        )
    used = use_since(thread, own)
    if used is not None:
        raise InterruptNotPending(
            f"run {run_id} cannot go on: {used} {request.thread_id!r} meanwhile", run_id=run_id
        )
    return request, own


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
