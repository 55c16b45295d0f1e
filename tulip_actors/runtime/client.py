"""A driver's side of a host: short calls out, one stream of events back.

Everything here lives on the portal's loop. The stream is a long poll: one call in flight per host,
however many of its runs this process follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from tulip_actors.core.defaults import RandomIds
from tulip_actors.core.runs import Record, RunRequest
from tulip_actors.errors import ClusterError, RunLost
from tulip_actors.host.feed import Feed
from tulip_actors.host.portal import portal, running_loop
from tulip_actors.host.ports import AgentStatus, HostSpec
from tulip_actors.runtime.agent_actor import News
from tulip_actors.runtime.bundles import BundledCalls
from tulip_actors.runtime.cluster import connect, end_on_sigterm, is_connected
from tulip_actors.runtime.failures import ask
from tulip_actors.runtime.pickling import unpack_outcome

_log = logging.getLogger(__name__)


class RayClient:
    """A host in an actor. See `HostClient`. `make` makes or finds the actor; it may block."""

    def __init__(
        self, spec: HostSpec, make: Callable[[HostSpec], Any], end: Callable[[Any, HostSpec], None]
    ):
        self._spec = spec
        self._make = make
        self._end = end
        self._client_id = RandomIds().new("client")
        self._what = f"the actor of {spec.name}"
        self._made: asyncio.Task[Any] | None = None
        self._opener: Any = None
        self._openings = BundledCalls(lambda: self._opener, self._what)
        self._feeds: dict[int, tuple[str, Feed]] = {}
        self._next_watch = 0
        self._unanswered: dict[str, bool | None] = {}
        self._polling: asyncio.Task[None] | None = None

    def warm(self) -> None:
        """See `HostClient`. Code that is not async connects here and now, in its own thread."""
        if self._made is not None:
            return
        loop = running_loop()
        if loop is None:
            connect(None, self._spec.namespace)
        elif not is_connected() and threading.current_thread() is threading.main_thread():
            made = portal().submit(self._actor())
            made.add_done_callback(lambda _: _call_soon(loop, end_on_sigterm))
            return
        portal().submit(self._actor())

    def begin(self, request: RunRequest, *, events: bool) -> Feed:
        """See `HostClient`."""
        feed = Feed()
        portal().submit(self._start(request, feed, events))
        return feed

    def follow(self, run_id: str) -> Feed:
        """See `HostClient`."""
        feed = Feed()
        portal().submit(self._attach(run_id, feed))
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
            self._made = asyncio.ensure_future(asyncio.to_thread(self._make, self._spec))
        return await asyncio.shield(self._made)

    async def _ask(self, method: str, *arguments: object) -> object:
        actor = await self._actor()
        return await ask(getattr(actor, method).remote(*arguments), self._what)

    async def _start(self, request: RunRequest, feed: Feed, events: bool) -> None:
        """Start a run. A cancel that came meanwhile has overtaken the start: it is sent again."""
        self._unanswered[request.run_id] = None
        await self._open(feed, request.run_id, "start", request, events)
        wanted = self._unanswered.pop(request.run_id)
        if wanted is not None:
            await _quietly(self._cancel([request.run_id], wanted))

    async def _attach(self, run_id: str, feed: Feed) -> None:
        await self._open(feed, run_id, "follow", run_id)

    async def _open(self, feed: Feed, run_id: str, method: str, *arguments: object) -> None:
        """Make the call that opens a feed; what it raises is the feed's end."""
        watch_id, self._next_watch = self._next_watch, self._next_watch + 1
        self._feeds[watch_id] = (run_id, feed)
        try:
            actor = self._opener = await self._actor()
            opening = self._openings.call(method, *arguments, self._client_id, watch_id)
            if self._polling is None:
                self._polling = asyncio.ensure_future(self._poll(actor))
            await opening
        except Exception as error:  # whatever keeps the run from starting is its outcome
            self._feeds.pop(watch_id, None)
            feed.close(error=error)

    async def _cancel(self, run_ids: Sequence[str], at_once: bool) -> None:
        for run_id in run_ids:
            if run_id in self._unanswered:
                self._unanswered[run_id] = at_once or bool(self._unanswered[run_id])
        await self._ask("cancel", list(run_ids), at_once)

    async def _stop(self, drain_s: float) -> None:
        if self._made is None:
            return
        try:
            await self._ask("stop", drain_s)
        except ClusterError as error:
            _log.debug("stop: %s", error)
        actor, self._made = await self._actor(), None
        await asyncio.to_thread(self._end, actor, self._spec)

    async def _poll(self, actor: Any) -> None:
        """Take news while anything is followed. A host that died ends what it hosted."""
        try:
            while self._feeds:
                news = await ask(actor.poll.remote(self._client_id), self._what)
                for one in cast(Sequence[News], news):
                    self._take(one)
        except Exception as error:  # every follower must be told, whatever it was
            lost, self._feeds = self._feeds, {}
            for run_id, feed in lost.values():
                feed.close(error=RunLost(f"run {run_id} was lost: {error}", run_id=run_id))
        finally:
            self._polling = None

    def _take(self, news: News) -> None:
        watch_id, entries, outcome = news
        if watch_id not in self._feeds:
            return
        feed = self._feeds[watch_id][1]
        if entries:
            feed.append(entries)
        if outcome is not None:
            del self._feeds[watch_id]
            feed.close(*unpack_outcome(outcome))


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # that loop has ended meanwhile
        loop.call_soon_threadsafe(function)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except ClusterError as error:  # nothing is left to cancel
        _log.debug("cancel: %s", error)
