"""The lives of tool calls: waiting, running, ended; who waits for them; what their policy allows.

What may live here: decisions that hold wherever bodies run. It is told what happened and says what
to do next; it starts no body itself. `Bodies` is how it reaches what does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from tulip_actors.core.calls import (
    CallEmitted,
    CallFinished,
    CallKey,
    CallLost,
    CallReport,
    CallStarted,
    CallStatus,
    CallSubmitted,
    Child,
    ToolOutcome,
    ToolRequest,
    ToolUpdate,
)
from tulip_actors.host.call import Call, Ticket, Why, outcome_of
from tulip_actors.host.call_queue import CallQueue, Limits
from tulip_actors.host.shared_calls import SharedCalls, is_light

RETRY_DELAY_S = 0.1
RETRY_DELAY_MAX_S = 5.0
"""Further tries wait twice as long each time, with jitter, so that calls that failed together do
not come back together."""
LOST_TRIES = 3
"""How often a lost call that may be repeated is, where its tool does not say: one that kills its
worker would be for ever."""
QUEUED_MAX = 100_000
"""Calls that may wait: beyond, a new one is refused rather than the memory used up."""

TOLD_MAX = 10_000
"""So much of what was told of one call is kept; of what bodies emit beyond that, nothing is."""


class Bodies(Protocol):
    """What runs the bodies. All three return at once."""

    def queue_of(self, request: ToolRequest) -> CallQueue:
        """Where a call of this kind waits."""
        ...

    def fill(self) -> None:
        """There may be calls to begin: take them from the queues with `CallBook.begin`."""
        ...

    def stop(self, call: Call) -> None:
        """Make the body of a running call end; `call.why` says why."""
        ...


@dataclass(slots=True)
class _Tickets:
    """The children of one `map` that nobody has been told of yet."""

    ended: list[Child] = field(default_factory=list)
    open: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class CallBook:
    """All calls of one executor. For one event loop.

    With `keeps_told` a caller's process may be replaced: the next one is told all again.
    """

    def __init__(
        self,
        bodies: Bodies,
        tell: Callable[[str, ToolUpdate], None],
        max_concurrency: int | None = None,
        *,
        keeps_told: bool = False,
    ) -> None:
        self.limits = Limits(max_concurrency)
        self._bodies = bodies
        self._tell = tell
        self._keeps_told = keeps_told
        self._calls: dict[CallKey, Call] = {}
        self._tickets: dict[Ticket, _Tickets] = {}
        self._queued = 0
        self._shared = SharedCalls()

    def get(self, key: CallKey) -> Call | None:
        """A call that is known."""
        return self._calls.get(key)

    @property
    def count(self) -> int:
        """Calls that are known, ended ones included."""
        return len(self._calls)

    @property
    def queued(self) -> int:
        """Calls that wait for their turn."""
        return self._queued

    # calls come

    def submit(self, client_id: str, request: ToolRequest, generation: int = 0) -> None:
        """Take a model's call; a known key is adopted: what was told of it is told again, to the
        same process (by its `generation`) the outcome alone. Or that will be told."""
        known = self._calls.get(request.key)
        if known is None or request.attempt > known.request.attempt:
            children = known.children if known is not None else {}
            call = Call(request, client_id, children=children, generation=generation)
            self._calls[request.key] = call
            self._take(call)
        else:
            self._tell_again(known, client_id, generation)

    def _tell_again(self, call: Call, client_id: str, generation: int) -> None:
        for one in (call, *call.below()):
            one.client_id = client_id
        if generation != call.generation:
            call.generation = generation
            for update in call.told:
                self._tell(client_id, update)
        elif call.ended is not None:
            self._tell(client_id, _told(call.ended))

    def report(self, call: Call, report: CallReport) -> None:
        """A body tells of its run; after its call's end that is dropped."""
        if call.ended is None:
            self._say(call, report)

    def _say(self, call: Call, update: ToolUpdate) -> None:
        """Tell a call's caller, and keep it for whoever may take its place."""
        if self._keeps_told:
            told = call.root.told
            if not isinstance(update, CallEmitted) or len(told) < TOLD_MAX:
                told.append(_light(update))
        self._tell(call.client_id, update)

    def submit_children(
        self, parent: Call, ticket: Ticket, requests: Sequence[ToolRequest]
    ) -> None:
        """Take the calls of a running body, and announce them. One that has ended is not made
        again: a body that runs again is served what its children gave the first time, unless that
        was too large to keep."""
        waiting = self._tickets.setdefault(ticket, _Tickets())
        for request in requests:
            position = request.key.index[-1]
            waiting.open += 1
            known = parent.children.get(position)
            if known is not None and isinstance(known.ended, CallFinished) and not known.shed:
                known.ticket = ticket
                self._tell_ticket(known, known.ended.outcome)
                continue
            call = Call(request, parent.client_id, parent, ticket)
            parent.children[position] = call
            self._calls[request.key] = call
            self._say(call, CallSubmitted(request))
            self._take(call)

    def _take(self, call: Call) -> None:
        request = call.request
        if self._queued >= QUEUED_MAX:
            text = f"not made: {self._queued} calls wait already; map over fewer at once"
            self._end(
                call, CallFinished(call.key, ToolOutcome(error=text, error_type="queue_full"))
            )
            return
        if not (request.policy.idempotent and self._is_shared(call)):
            self._queue(call)

    def _queue(self, call: Call, *, first: bool = False) -> None:
        self._queued += 1
        call.queued = True
        queue = self._bodies.queue_of(call.request)
        (queue.push_front if first else queue.push)(call.request)

    def _is_shared(self, call: Call) -> bool:
        """Whether an equal call of the thread has been made, or is being made: it is shared.

        One that is run again on purpose (a hook's retry, a human's answer) is not.
        """
        if call.request.attempt > 1:
            return False
        outcome = self._shared.result(call.request)
        if outcome is not None:
            self._end(call, CallFinished(call.key, outcome))
            return True
        return self._shared.joins(call)

    # bodies begin and end

    def begin(self, queue: CallQueue) -> Call | None:
        """Take the next call that may run from a queue; it is running from here on."""
        while (request := queue.pop()) is not None:
            call = self._calls.get(request.key)
            if call is None or not call.queued:  # it ended while it waited
                self.limits.give_back(request)
                continue
            self._unqueue(call)
            call.running = True
            if call.request.policy.timeout_s is not None:
                loop = asyncio.get_running_loop()
                call.deadline = loop.call_later(call.request.policy.timeout_s, self._overdue, call)
            return call
        return None

    def started(self, mark: CallStarted, call: Call) -> None:
        """A body begins, there."""
        self._tell(call.client_id, mark)

    def put_back(self, call: Call) -> None:
        """A call was handed on and provably not begun: it is the next of its queue, unless it was
        stopped meanwhile."""
        if call.ended is not None or not call.running:
            return
        self._rest(call)
        if call.why is not None:
            self._end_with_children(call, CallFinished(call.key, _stopped(call, ToolOutcome())))
        else:
            self._queue(call, first=True)
            self._bodies.fill()

    def finished(self, call: Call, outcome: ToolOutcome) -> None:
        """A body has ended."""
        if call.ended is not None or not call.running:
            return
        if call.why is not None and outcome.error is not None:
            outcome = _stopped(call, outcome)
        elif _may_try_again(call, outcome):
            self._again(call)
            return
        self._end_with_children(call, CallFinished(call.key, outcome))

    def lost(self, call: Call, reason: str) -> None:
        """The process of a body that had begun is gone: its effect may have happened."""
        if call.ended is not None or not call.running:
            return
        policy = call.request.policy
        if call.why is not None:
            self._end_with_children(call, CallFinished(call.key, _stopped(call, ToolOutcome())))
        elif policy.on_unknown == "retry" and call.tries < (policy.retries or LOST_TRIES):
            self._again(call)
        else:
            self._end_with_children(call, CallLost(call.key, reason, started=True))

    def refused(self, call: Call, error: str, error_type: str) -> None:
        """A call cannot be made."""
        self._end(call, CallFinished(call.key, ToolOutcome(error=error, error_type=error_type)))

    def _again(self, call: Call) -> None:
        """Another try, a while after the children that the last one left. It is served what they
        gave, but no failure: that is what it is to try again."""

        def later() -> None:
            for position, child in list(call.children.items()):
                if child.ended is None or outcome_of(child.ended).error is not None:
                    self._forget(child)
                    del call.children[position]
            delay_s = min(RETRY_DELAY_S * 2 ** (call.tries - 1), RETRY_DELAY_MAX_S)
            loop = asyncio.get_running_loop()
            loop.call_later(delay_s * random.uniform(0.5, 1.0), self._queue_again, call)

        call.tries += 1
        self._rest(call)
        self._after_children(call, later)
        self._bodies.fill()

    def _queue_again(self, call: Call) -> None:
        if call.ended is None:
            self._queue(call)
            self._bodies.fill()

    def _unqueue(self, call: Call) -> None:
        if call.queued:
            call.queued = False
            self._queued -= 1

    def _rest(self, call: Call) -> None:
        """The call does not run any more; it may run again."""
        if call.running:
            call.running = False
            if not call.waits:
                self.limits.give_back(call.request)
            call.waits = 0
        if call.deadline is not None:
            call.deadline.cancel()
            call.deadline = None

    # calls end

    def _end_with_children(self, call: Call, ended: CallFinished | CallLost) -> None:
        """The call has ended, after the children that it did not wait for."""
        if not call.children:
            self._end(call, ended)
            return
        self._rest(call)
        self._after_children(call, partial(self._end, call, ended))

    def _after_children(self, call: Call, then: Callable[[], None]) -> None:
        """Stop the open children of a call that does not run any more, and go on after them."""
        open_ = [one for one in call.below() if one.ended is None]
        _when_all_ended(open_, then)
        for child in open_:
            self.stop(child, Why.CANCELLED)

    def _end(self, call: Call, ended: CallFinished | CallLost) -> None:
        if call.ended is not None:
            return
        self._unqueue(call)
        self._rest(call)
        call.ended = ended
        if call.request.policy.idempotent:
            for follower in self._shared.ended(call):
                self._take(follower)
        self._say(call, _told(ended))
        if call.ticket is not None:
            self._tell_ticket(call, outcome_of(ended))
        if call.parent is not None and not is_light(outcome_of(ended)):
            call.shed, call.ended = True, CallFinished(call.key, ToolOutcome())
        if call.on_end:
            for listener in call.on_end:
                listener()
            call.on_end.clear()
        if call.children and call.parent is None and not _asks(ended):
            self._forget_children(call)
        self._bodies.fill()

    def _tell_ticket(self, call: Call, outcome: ToolOutcome) -> None:
        waiting = self._tickets.get(call.ticket or "")
        if waiting is not None:
            waiting.open -= 1
            waiting.ended.append(Child(call.key.index[-1], outcome))
            waiting.wake.set()

    # who waits

    async def children(self, parent: Call, ticket: Ticket) -> Sequence[Child]:
        """The children of a `map` that have ended since the last time; waits for one. Empty when
        none is left. Meanwhile the parent gives its place in every bound back."""
        waiting = self._tickets.setdefault(ticket, _Tickets())
        if not waiting.ended and waiting.open:
            tries = parent.tries
            self._waits(parent, 1)
            try:
                waiting.wake.clear()
                await waiting.wake.wait()
            finally:
                if parent.tries == tries:  # else who waited here is gone
                    self._waits(parent, -1)
        ended, waiting.ended = waiting.ended, []
        if not waiting.open:
            self._tickets.pop(ticket, None)
        return ended

    def _waits(self, parent: Call, step: int) -> None:
        if not parent.running:
            return
        before, parent.waits = parent.waits, parent.waits + step
        if before == 0:
            self.limits.give_back(parent.request)
            self._bodies.fill()
        elif parent.waits == 0:
            self.limits.take(parent.request)

    def abandon(self, parent: Call, ticket: Ticket) -> None:
        """The body does not want the children of a `map` any more; who waits for it is told so."""
        waiting = self._tickets.pop(ticket, None)
        if waiting is not None:
            waiting.open = 0
            waiting.wake.set()
        for child in list(parent.children.values()):
            if child.ticket == ticket and child.ended is None:
                child.ticket = None
                self.stop(child, Why.CANCELLED)

    # calls are stopped

    def stop(self, call: Call, why: Why) -> None:
        """End a call and those below it: at once if it waits, else when its body has ended."""
        if call.ended is not None:
            return
        if call.running:
            for child in call.below():
                self.stop(child, Why.CANCELLED)
            if call.why is None:
                call.why = why
                self._bodies.stop(call)
        else:
            call.why = call.why or why
            self._end_with_children(call, CallFinished(call.key, _stopped(call, ToolOutcome())))

    def give_up(self, call: Call) -> None:
        """A body that was stopped does not end: its call ends without it."""
        if call.ended is None and call.running:
            self._end_with_children(call, CallFinished(call.key, _stopped(call, ToolOutcome())))

    def _overdue(self, call: Call) -> None:
        self.stop(call, Why.TIMEOUT)

    async def cancel(self, keys: Iterable[CallKey]) -> None:
        """Stop calls and their children; returns when they have ended, after their grace at the
        latest."""
        known = [call for key in keys if (call := self._calls.get(key)) is not None]
        open_ = [call for call in known if call.ended is None]
        ended = asyncio.Event()
        _when_all_ended(open_, ended.set)
        for call in open_:
            self.stop(call, Why.CANCELLED)
        await ended.wait()

    # what is known

    def status(self, key: CallKey) -> CallStatus:
        """See `ToolExecutor`."""
        call = self._calls.get(key)
        if call is None:
            return CallStatus.NEVER_SEEN
        if call.ended is not None:
            return CallStatus.FINISHED
        return CallStatus.RUNNING if call.running or call.tries else CallStatus.QUEUED

    def of_client(self, client_id: str) -> list[CallKey]:
        """The calls of a client that have not ended."""
        return [
            key
            for key, call in self._calls.items()
            if call.client_id == client_id and call.ended is None
        ]

    def release(self, keys: Iterable[CallKey]) -> None:
        """The outcomes are recorded, and are forgotten here with what is below the calls.

        A call that asks a human is not: its body will run again, and is served what its children
        gave the first time.
        """
        for key in keys:
            call = self._calls.get(key)
            if call is not None and call.ended is not None and not _asks(call.ended):
                self._forget(call)

    def forget_client(self, client_id: str) -> None:
        """A client is gone: what ended for it is forgotten."""
        for call in [one for one in self._calls.values() if one.client_id == client_id]:
            if call.parent is None and call.ended is not None:
                self._forget(call)

    def _forget(self, call: Call) -> None:
        self._forget_children(call)
        self._calls.pop(call.key, None)

    def _forget_children(self, call: Call) -> None:
        if call.children:
            for child in call.below():
                self._calls.pop(child.key, None)
            call.children = {}


def _when_all_ended(calls: Sequence[Call], then: Callable[[], None]) -> None:
    """Do something when the last of the calls has ended; at once if there is none."""
    left = len(calls)

    def one_less() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            then()

    for call in calls:
        call.on_end.append(one_less)
    if not calls:
        then()


def _may_try_again(call: Call, outcome: ToolOutcome) -> bool:
    """Whether the tool raised, and its policy allows another try."""
    raised = outcome.error is not None and outcome.error_type not in NOT_RAISED
    return raised and call.why is None and call.tries < call.request.policy.retries


NOT_RAISED = frozenset({"cancelled", "timeout", "config", "queue_full", "ToolArgumentsInvalid"})
"""Errors that another try would meet again, or that are none of the tool's own."""


def _light(update: ToolUpdate) -> ToolUpdate:
    """What is kept of what was told: of a child's large outcome, that it ended."""
    if isinstance(update, CallFinished) and update.key.index and not is_light(update.outcome):
        return CallFinished(update.key, ToolOutcome())
    return update


def _asks(ended: CallFinished | CallLost) -> bool:
    """Whether the body asks a human, and will run again."""
    return isinstance(ended, CallFinished) and ended.outcome.interrupt is not None


def _stopped(call: Call, outcome: ToolOutcome) -> ToolOutcome:
    """The outcome of a body that was stopped: whatever it raised, that is why."""
    if call.why is Why.TIMEOUT:
        text = f"timed out after {call.request.policy.timeout_s:g} s; its effect may have happened"
    else:
        text = "cancelled"
    return outcome._replace(
        result=None, error=text, error_type=call.why, interrupt=None, value=None
    )


def _told(ended: CallFinished | CallLost) -> ToolUpdate:
    """An end as an agent is told of it: without the value, which only a parent wants."""
    if isinstance(ended, CallLost) or ended.outcome.value is None:
        return ended
    return CallFinished(ended.key, ended.outcome._replace(value=None))
