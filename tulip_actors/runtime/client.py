"""A driver's side of a host: short calls out, one stream of events back.

Everything here lives on the portal's loop. The stream is a long poll: one call in flight per host,
however many of its runs this process follows. A host whose process ends comes back: then what is
followed is opened again, and goes on after the last event that was read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tulip_actors.core.defaults import RandomIds
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.runs import Record, RunRequest
from tulip_actors.errors import ActorLost, ClusterError, RunLost
from tulip_actors.host.feed import Feed
from tulip_actors.host.portal import portal, running_loop
from tulip_actors.host.ports import AgentStatus
from tulip_actors.runtime.agent_actor import News
from tulip_actors.runtime.bundles import BundledCalls
from tulip_actors.runtime.cluster import connect, end_on_sigterm, is_connected
from tulip_actors.runtime.failures import RETRY_S, ask, first_answer, insist
from tulip_actors.runtime.pickling import unpack_outcome

_log = logging.getLogger(__name__)
COMES_BACK_S = 120.0
"""How long a host may be away: back in a second, but longer where its node was lost."""


@dataclass(slots=True)
class _Followed:
    """A run that is followed here. `request` is what started it, None for one that was there.

    `seen` are the numbers of its events that came, by run (a team's stream has those of its
    members). It may have been `opened` before. `cancelled` is the last cancel that was asked for:
    True for one that stops at once.
    """

    run_id: str
    feed: Feed
    events: bool
    request: RunRequest | None = None
    seen: dict[str, int] = field(default_factory=dict)
    opened: bool = False
    cancelled: bool | None = None

    def take(self, entries: Sequence[Emitted]) -> None:
        """Add what has come."""
        self.seen.update((one.run_id, one.seq) for one in entries)
        self.feed.append(entries)


class RayClient:
    """A host in an actor. See `HostClient`. `make` makes or finds the actor; it may block."""

    def __init__(
        self, name: str, namespace: str, make: Callable[[], Any], end: Callable[[Any], None]
    ) -> None:
        self._namespace = namespace
        self._make = make
        self._end = end
        self._client_id = RandomIds().new("client")
        self._what = f"the actor of {name}"
        self._made: asyncio.Task[Any] | None = None
        self._opener: Any = None
        self._openings = BundledCalls(lambda: self._opener, self._what)
        self._followed: dict[int, _Followed] = {}
        self._next_watch = 0
        self._polling: asyncio.Task[None] | None = None

    def warm(self) -> None:
        """See `HostClient`. Code that is not async connects here and now, in its own thread."""
        if self._made is not None:
            return
        loop = running_loop()
        if loop is None:
            connect(None, self._namespace)
        elif not is_connected() and threading.current_thread() is threading.main_thread():
            made = portal().submit(self._actor())
            made.add_done_callback(lambda _: _call_soon(loop, end_on_sigterm))
            return
        portal().submit(self._actor())

    def begin(self, request: RunRequest, *, events: bool) -> Feed:
        """See `HostClient`."""
        feed = Feed()
        portal().submit(self._open(_Followed(request.run_id, feed, events, request)))
        return feed

    def follow(self, run_id: str) -> Feed:
        """See `HostClient`."""
        feed = Feed()
        portal().submit(self._open(_Followed(run_id, feed, True)))
        return feed

    def cancel(self, run_ids: Sequence[str], *, at_once: bool) -> None:
        """See `HostClient`."""
        if run_ids:
            portal().submit(_quietly(self._cancel(run_ids, at_once)))

    async def acancel(self, run_ids: Sequence[str], *, at_once: bool) -> None:
        """See `HostClient`."""
        await portal().call(self._cancel(run_ids, at_once))

    async def observe(self) -> AgentStatus:
        """See `HostClient`."""
        return cast(AgentStatus, await portal().call(self._ask("observe")))

    async def processes(self) -> Mapping[str, Sequence[int]]:
        """See `HostClient`."""
        return cast(Mapping[str, Sequence[int]], await portal().call(self._ask("processes")))

    async def records(self, thread_id: str) -> Sequence[Record]:
        """See `HostClient`."""
        return cast(Sequence[Record], await portal().call(self._ask("records", thread_id)))

    async def model_trace(self) -> Sequence[object]:
        """See `HostClient`."""
        return cast(Sequence[object], await portal().call(self._ask("model_trace")))

    async def stop(self, drain_s: float) -> None:
        """See `HostClient`."""
        await portal().call(self._stop(drain_s))

    # on the portal

    async def _actor(self) -> Any:
        if self._made is None:
            self._made = asyncio.ensure_future(asyncio.to_thread(self._make))
        return await asyncio.shield(self._made)

    async def _ask(self, method: str, *arguments: object) -> object:
        """Make a call that may be made twice; one that met the end of a process is."""
        remote = getattr(await self._actor(), method).remote
        return await insist(lambda: remote(*arguments), self._what, COMES_BACK_S)

    async def _open(self, followed: _Followed) -> None:
        """Make the call that lets a run be followed; what it raises is the run's outcome.

        A cancel that came meanwhile has overtaken it: it is sent again.
        """
        watch_id, self._next_watch = self._next_watch, self._next_watch + 1
        self._followed[watch_id] = followed
        try:
            self._opener = await self._actor()
            method, arguments = _opening_of(followed)
            opening = self._openings.call(method, *arguments, self._client_id, watch_id)
            if self._polling is None:
                self._polling = asyncio.ensure_future(self._poll())
            await opening
        except ActorLost as error:
            self._fail(watch_id, error)
        except ClusterError:
            await asyncio.sleep(RETRY_S)
            if self._followed.pop(watch_id, None) is not None:  # else the poll has met the same
                portal().submit(self._open(followed))
            return
        except Exception as error:  # whatever keeps the run from starting is its outcome
            self._fail(watch_id, error)
        if followed.cancelled is not None:
            await _quietly(self._send_cancel([followed.run_id], followed.cancelled))

    def _fail(self, watch_id: int, error: BaseException) -> None:
        followed = self._followed.pop(watch_id, None)
        if followed is not None:
            followed.feed.close(error=error)

    async def _cancel(self, run_ids: Sequence[str], at_once: bool) -> None:
        for followed in self._followed.values():
            if followed.run_id in run_ids:
                followed.cancelled = at_once or bool(followed.cancelled)
        await self._send_cancel(run_ids, at_once)

    async def _send_cancel(self, run_ids: Sequence[str], at_once: bool) -> None:
        await self._ask("cancel", list(run_ids), at_once)

    async def _stop(self, drain_s: float) -> None:
        if self._made is None:
            return
        try:
            await self._ask("stop", drain_s)
        except ClusterError as error:
            _log.debug("stop: %s", error)
        actor, self._made = await self._actor(), None
        await asyncio.to_thread(self._end, actor)

    async def _poll(self) -> None:
        """Take news while anything is followed. A host that does not come back ends its runs."""
        try:
            while self._followed:
                actor = await self._actor()
                try:
                    news = await ask(actor.poll.remote(self._client_id), self._what)
                except ActorLost:
                    raise
                except ClusterError as error:
                    await self._open_again(error)
                    continue
                for one in cast(Sequence[News], news):
                    self._take(one)
        except Exception as error:  # every follower must be told, whatever it was
            lost, self._followed = self._followed, {}
            for followed in lost.values():
                run_id = followed.run_id
                told = RunLost(f"run {run_id} was lost: {error}", run_id=run_id)
                followed.feed.close(error=told)
        finally:
            self._polling = None

    async def _open_again(self, error: ClusterError) -> None:
        """The host's process has ended: once there is another, follow there what was followed."""
        _log.debug("%s; waiting for it to come back", error)
        actor = await self._actor()
        await first_answer(actor.wake_up.remote, self._what, COMES_BACK_S)
        followed, self._followed = self._followed, {}
        for one in followed.values():
            portal().submit(self._open(one))
        await asyncio.sleep(0)

    def _take(self, news: News) -> None:
        watch_id, entries, outcome = news
        followed = self._followed.get(watch_id)
        if followed is None:
            return
        if entries:
            followed.take(entries)
        if outcome is not None:
            del self._followed[watch_id]
            followed.feed.close(*unpack_outcome(outcome))


def _opening_of(followed: _Followed) -> tuple[str, tuple[object, ...]]:
    """The call by which a host lets a run be followed: started, unless it was before."""
    request = followed.request
    if request is None:
        return "follow", (followed.run_id, followed.seen)
    if followed.opened:
        request = replace(request, continued=True)
    followed.opened = True
    return "start", (request, followed.events, followed.seen)


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # that loop has ended meanwhile
        loop.call_soon_threadsafe(function)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except ClusterError as error:  # nothing is left to cancel
        _log.debug("cancel: %s", error)
