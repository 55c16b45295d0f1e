"""An actor's side of the dispatchers: the ToolExecutor port.

New calls go to the dispatcher of this node. One of another node is spoken to only about calls that
an earlier incarnation of the actor submitted there: it still runs them, or has their outcomes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any

from tulip_actors.core.calls import (
    CallKey,
    CallLost,
    CallStatus,
    ToolRequest,
    ToolUpdate,
)
from tulip_actors.errors import ClusterError
from tulip_actors.runtime.dispatch_link import Client, DispatcherLink

OTHER_AWAY_S = 1.5
"""How long the dispatcher of another node may be away: come back it knows nothing any more."""


class DispatcherExecutor:
    """Runs calls as Ray tasks through dispatchers. `own` makes or finds the one of this node and
    `look_up` finds one by its name, raising ValueError when there is none."""

    def __init__(
        self, client: Client, own: Callable[[], Any], look_up: Callable[[str], Any]
    ) -> None:
        self._client = client
        self._look_up = look_up
        self._own = DispatcherLink(client, own, self._tell)
        self._others: dict[str, DispatcherLink] = {}
        self._linking = asyncio.Lock()
        self._link_of: dict[CallKey, DispatcherLink] = {}
        self._updates: list[ToolUpdate] = []
        self._news = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False

    async def incarnation(self) -> str:
        """See `ToolExecutor`. Makes the dispatcher if it is not there yet."""
        await self._own.connected()
        return self._own.incarnation

    def warm(self) -> None:
        """Begin to make the dispatcher; returns without waiting."""
        self._own.warm()

    @property
    def queued(self) -> int:
        """Calls that have not begun."""
        return self._own.queued + sum(link.queued for link in self._others.values())

    def submit(self, requests: Sequence[ToolRequest]) -> None:
        """See `ToolExecutor`."""
        self._own.submit(requests)

    def adopt(self, requests: Sequence[ToolRequest], incarnation: str) -> None:
        """See `ToolExecutor`."""
        self._spawn(self._adopt(requests, incarnation))

    async def updates(self) -> AsyncIterator[Sequence[ToolUpdate]]:
        """See `ToolExecutor`."""
        while not self._closed:
            if self._updates:
                batch, self._updates = self._updates, []
                yield batch
            else:
                self._news.clear()
                await self._news.wait()

    async def status(self, keys: Sequence[CallKey]) -> Mapping[CallKey, CallStatus]:
        """See `ToolExecutor`."""
        known: dict[CallKey, CallStatus] = {}
        for link, of_it in self._parted(keys):
            known.update(await link.status(of_it))
        return known

    async def cancel(self, keys: Sequence[CallKey]) -> None:
        """See `ToolExecutor`. Those that are being adopted can only then be stopped."""
        if self._background:
            await asyncio.wait(self._background)
        await asyncio.gather(*(link.cancel(of_it) for link, of_it in self._parted(keys)))

    def release(self, keys: Sequence[CallKey]) -> None:
        """See `ToolExecutor`. A dispatcher of another node that has no more calls is left."""
        for link, of_it in self._parted(keys):
            link.release(of_it)
            for key in of_it:
                self._link_of.pop(key, None)
            if link is not self._own and link not in self._link_of.values():
                self._others = {name: one for name, one in self._others.items() if one is not link}
                self._spawn(link.close())

    async def close(self) -> None:
        """See `ToolExecutor`."""
        self._closed = True
        self._news.set()
        for task in self._background:
            task.cancel()
        links = (self._own, *self._others.values())
        await asyncio.gather(*(link.close() for link in links))

    async def _adopt(self, requests: Sequence[ToolRequest], incarnation: str) -> None:
        try:
            link = await self._link_to(incarnation)
        except (ClusterError, ValueError) as error:
            for request in requests:
                reason = f"their dispatcher is gone: {error}"
                self._tell([CallLost(request.key, reason, started=True, with_executor=True)])
            return
        if link is not self._own:
            self._link_of.update((request.key, link) for request in requests)
        link.submit(requests, adopted=True)

    async def _link_to(self, incarnation: str) -> DispatcherLink:
        """The link to exactly that incarnation. Raises ValueError or `ClusterError` if it ended."""
        await self._own.connected()
        if incarnation == self._own.incarnation:
            return self._own
        async with self._linking:  # of two links one would take what the other waits for
            link = self._others.get(incarnation)
            if link is None:
                link = self._others[incarnation] = await self._new_link(incarnation)
        return link

    async def _new_link(self, incarnation: str) -> DispatcherLink:
        actor = await asyncio.to_thread(self._look_up, incarnation.partition("@")[2])
        link = DispatcherLink(self._client, lambda: actor, self._tell, OTHER_AWAY_S)
        await link.connected()
        if link.incarnation != incarnation:
            await link.close()
            raise ClusterError("another one is in its place")
        return link

    def _parted(
        self, keys: Sequence[CallKey]
    ) -> Sequence[tuple[DispatcherLink, Sequence[CallKey]]]:
        if not self._link_of:
            return [(self._own, keys)]
        parts: dict[DispatcherLink, list[CallKey]] = {}
        for key in keys:
            parts.setdefault(self._link_of.get(key, self._own), []).append(key)
        return list(parts.items())

    def _tell(self, updates: Sequence[ToolUpdate]) -> None:
        self._updates.extend(updates)
        self._news.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
