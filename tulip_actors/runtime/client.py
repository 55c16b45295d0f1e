"""A driver's side of a host: short calls out, one stream of events back.

Everything here lives on the portal's loop. The stream is a long poll: one call in flight per host,
however many of its runs this process follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from tulip_actors.core.defaults import RandomIds
from tulip_actors.core.runs import RunRequest
from tulip_actors.errors import ClusterError, RunLost
from tulip_actors.host.feed import Feed
from tulip_actors.host.portal import portal
from tulip_actors.host.ports import AgentStatus, HostSpec
from tulip_actors.runtime.agent_actor import RunNews
from tulip_actors.runtime.failures import ask
from tulip_actors.runtime.pickling import unpack_outcome

_log = logging.getLogger(__name__)


class RayClient:
    """A host in an actor. See `HostClient`. `make` makes or finds the actor; it may block."""

    def __init__(self, spec: HostSpec, make: Callable[[HostSpec], Any], end: Callable[[Any], None]):
        self._spec = spec
        self._make = make
        self._end = end
        self._client_id = RandomIds().new("client")
        self._what = f"the actor of {spec.name}"
        self._made: asyncio.Task[Any] | None = None
        self._feeds: dict[str, Feed] = {}
        self._polling: asyncio.Task[None] | None = None

    def warm(self) -> None:
        """See `HostClient`."""
        if self._made is None:
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
        await self._opened(feed, request.run_id, "start", request, self._client_id, events)

    async def _attach(self, run_id: str, feed: Feed) -> None:
        await self._opened(feed, run_id, "follow", run_id, self._client_id)

    async def _opened(self, feed: Feed, run_id: str, method: str, *arguments: object) -> None:
        """Make the call that opens a feed; what it raises is the feed's end."""
        self._feeds[run_id] = feed
        try:
            actor = await self._actor()
            opening = getattr(actor, method).remote(*arguments)
            if self._polling is None:
                self._polling = asyncio.ensure_future(self._poll(actor))
            await ask(opening, self._what)
        except Exception as error:  # whatever keeps the run from starting is its outcome
            self._feeds.pop(run_id, None)
            feed.close(error=error)

    async def _cancel(self, run_ids: Sequence[str], at_once: bool) -> None:
        await self._ask("cancel", list(run_ids), at_once)

    async def _stop(self, drain_s: float) -> None:
        if self._made is None:
            return
        try:
            await self._ask("stop", drain_s)
        except ClusterError as error:
            _log.debug("stop: %s", error)
        self._end(await self._actor())

    async def _poll(self, actor: Any) -> None:
        """Take news while anything is followed. A host that died ends what it hosted."""
        try:
            while self._feeds:
                news = await ask(actor.poll.remote(self._client_id), self._what)
                for one in cast(Sequence[RunNews], news):
                    self._take(one)
        except Exception as error:  # every follower must be told, whatever it was
            lost, self._feeds = self._feeds, {}
            for run_id, feed in lost.items():
                feed.close(error=RunLost(f"run {run_id} was lost: {error}", run_id=run_id))
        finally:
            self._polling = None

    def _take(self, news: RunNews) -> None:
        run_id, entries, outcome = news
        feed = self._feeds.get(run_id)
        if feed is None:
            return
        if entries:
            feed.append(entries)
        if outcome is not None:
            del self._feeds[run_id]
            feed.close(*unpack_outcome(outcome))


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except ClusterError as error:  # nothing is left to cancel
        _log.debug("cancel: %s", error)
