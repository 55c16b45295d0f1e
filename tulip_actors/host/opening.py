"""With what a segment of a run begins: a new run, an answer to a paused one, one that was lost.

What may live here: getting the thread, and finding in its records where the run stands. Nothing is
written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from tulip_actors.core.emitted import Emitted
from tulip_actors.core.ports import RunStore
from tulip_actors.core.runs import (
    Answer,
    Answered,
    MetadataSet,
    OnBusy,
    Record,
    RunEnded,
    RunRequest,
    RunStarted,
)
from tulip_actors.errors import RunLost
from tulip_actors.host.record_writer import Claim
from tulip_actors.host.taken_up import own_records, pending_interrupt, taken_up, use_since

Acquire: TypeAlias = Callable[[Claim, OnBusy], Awaitable[int]]
"""How the thread of a claim is got: refused at once, or waited for."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Where a segment begins. `records` are the run's own so far, `events` what it has emitted,
    where its store keeps that. `claim` is None for a run that has ended: nothing will be written.
    `question` is the id of the one that the request's answer is for.
    """

    request: RunRequest
    claim: Claim | None = None
    epoch: int = 0
    records: Sequence[Record] = ()
    events: Sequence[Emitted] = ()
    question: str | None = None


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens segments of one host's runs. `check` is asked whether a run can go on as its thread's
    records have it; if it raises, nothing was changed."""

    store: RunStore
    host_id: str
    lease_s: float
    check: Callable[[Sequence[Record]], None] | None = None

    async def fresh(self, request: RunRequest, acquire: Acquire) -> Opening:
        """A run that has no records yet. Raises `ThreadBusy`."""
        claim = self._claim(request.thread_id, request.run_id)
        return Opening(request, claim, await acquire(claim, request.on_busy))

    async def answered(self, request: RunRequest, answer: Answer, acquire: Acquire) -> Opening:
        """A paused run that goes on. Raises `RunNotFound`, `InterruptNotPending`, `ThreadBusy`,
        and what `check` raises."""
        run_id = request.run_id
        thread_id = await self.store.find(run_id) or request.thread_id
        started, own = taken_up(await self.store.read(thread_id), run_id)
        if _is_taken(own, answer) and (opening := await self.continued(run_id, acquire)):
            return opening
        pending_interrupt(own, answer, run_id)
        # of two that answer at once, here or elsewhere, one gets the thread
        claim = self._claim(started.thread_id, f"{run_id}/{answer.id}")
        epoch = await acquire(claim, started.on_busy)
        try:  # another run may have answered meanwhile
            thread = await self.store.read(thread_id)
            _, own = taken_up(thread, run_id)
            question = pending_interrupt(own, answer, run_id)
            self._check(thread)
        except BaseException:
            await self.store.release(claim.thread_id, epoch)
            raise
        return Opening(replace(started, answer=answer), claim, epoch, own, question=question)

    async def continued(
        self, run_id: str, acquire: Acquire, owner: str | None = None
    ) -> Opening | None:
        """A run whose process ended, from its records; None for a run without any.

        `owner` is the name under which it held its thread, where that is known. Raises `RunLost`
        when a later run has used the thread meanwhile, and what `check` raises.
        """
        thread_id = await self.store.find(run_id)
        if thread_id is None:
            return None
        thread = await self.store.read(thread_id)
        started, own = own_records(thread, run_id)
        if started is None:
            return None
        if has_ended(own):
            events = await self.store.events_of(run_id)
            return Opening(replace(started, continued=True), None, 0, own, events)
        _check_newest(thread, own, started)
        self._check(thread)  # before it is taken from whoever had it
        claim = self._claim(thread_id, owner or run_id)
        epoch = await acquire(claim, started.on_busy)
        try:  # an older incarnation may have written up to now
            thread = await self.store.read(thread_id)
            _, own = own_records(thread, run_id)
            _check_newest(thread, own, started)
            self._check(thread)
            events = await self.store.events_of(run_id)
        except BaseException:
            await self.store.release(thread_id, epoch)
            raise
        goes_on = replace(started, answer=_last_answer(own), continued=True)
        return Opening(goes_on, claim, epoch, own, events)

    def _check(self, thread: Sequence[Record]) -> None:
        if self.check is not None:
            self.check(thread)

    def _claim(self, thread_id: str, owner: str) -> Claim:
        return Claim(thread_id, owner, self.host_id, self.lease_s)


def has_ended(own: Sequence[Record]) -> bool:
    """Whether a run's records end with the end of a segment: it is over, or waits for a human."""
    last = next((one for one in reversed(own) if not isinstance(one, MetadataSet)), None)
    return isinstance(last, RunEnded)


def _check_newest(thread: Sequence[Record], own: Sequence[Record], request: RunRequest) -> None:
    used = use_since(thread, own)
    if used is not None:
        raise RunLost(
            f"run {request.run_id} was lost, and cannot go on: {used} {request.thread_id!r} "
            "meanwhile. What it did is in the thread: go on with a new run",
            run_id=request.run_id,
        )


def _last_answer(own: Sequence[Record]) -> Answer | None:
    """The answer that set the present segment going."""
    for record in reversed(own):
        if isinstance(record, Answered):
            return Answer(record.response, record.interrupt_id, record.answer_id)
    return None


def _is_taken(own: Sequence[Record], answer: Answer) -> bool:
    """Whether this very answer is recorded: it is sent again after a crash."""
    return bool(answer.id) and any(
        isinstance(record, Answered) and record.answer_id == answer.id for record in own
    )


def segment_start(own: Sequence[Record]) -> int:
    """The number of the first event of a run's present, or last, segment."""
    return next((one.seq for one in reversed(own) if isinstance(one, Answered)), 0)


def seconds_since_start(own: Sequence[Record], now: datetime) -> float:
    """How long ago a run's present segment began."""
    began = next(one for one in reversed(own) if isinstance(one, Answered | RunStarted))
    return max(0.0, (now - began.at).total_seconds())
