"""ToolExecutor of two: inline calls run in this process, all others where `others` runs them.

The calls that an inline body makes through its `ToolContext` run in this process too, whatever
their tools' kind: `others` tells a host how a call ended, but not the value that the waiting body
needs. A tool that fans out over the cluster must not be inline itself. An agent's `max_concurrency`
bounds either of the two, not their sum.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from tulip_actors.core.calls import CallKey, CallKind, CallStatus, ToolRequest, ToolUpdate
from tulip_actors.core.ports import ToolExecutor
from tulip_actors.host.inline_executor import InlineExecutor


class QueueingExecutor(ToolExecutor, Protocol):
    """A ToolExecutor that tells how many calls wait."""

    @property
    def queued(self) -> int:
        """Calls that have not begun."""
        ...


class SplitExecutor:
    """Sends each call to one of two executors, by the kind of its tool."""

    def __init__(self, inline: InlineExecutor, others: QueueingExecutor) -> None:
        self._inline = inline
        self._others = others
        self._inline_keys: set[CallKey] = set()
        self._updates: list[ToolUpdate] = []
        self._news = asyncio.Event()
        self._closed = False
        inline.tell_to(lambda update: self._tell([update]))

    async def incarnation(self) -> str:
        """See `ToolExecutor`. It names both memories: when either is new, so is the name."""
        return f"{await self._others.incarnation()}+{await self._inline.incarnation()}"

    @property
    def queued(self) -> int:
        """Calls that have not begun, of both."""
        return self._inline.queued + self._others.queued

    def submit(self, requests: Sequence[ToolRequest]) -> None:
        """See `ToolExecutor`."""
        here = [one for one in requests if one.policy.kind is CallKind.INLINE]
        there = [one for one in requests if one.policy.kind is not CallKind.INLINE]
        if there:  # first, since they have the longer way
            self._others.submit(there)
        if here:
            self._inline_keys.update(one.key for one in here)
            self._inline.submit(here)

    def adopt(self, requests: Sequence[ToolRequest], incarnation: str) -> None:
        """See `ToolExecutor`."""
        of_others, _, of_inline = incarnation.rpartition("+")
        here = [one for one in requests if one.policy.kind is CallKind.INLINE]
        there = [one for one in requests if one.policy.kind is not CallKind.INLINE]
        if there:
            self._others.adopt(there, of_others)
        if here:
            self._inline_keys.update(one.key for one in here)
            self._inline.adopt(here, of_inline)

    async def updates(self) -> AsyncIterator[Sequence[ToolUpdate]]:
        """See `ToolExecutor`. Raises what the updates of the others raise."""
        forwarding = asyncio.ensure_future(self._forward())
        try:
            while not self._closed:
                if self._updates:
                    batch, self._updates = self._updates, []
                    yield batch
                    continue
                if forwarding.done():
                    forwarding.result()
                self._news.clear()
                await self._news.wait()
        finally:
            forwarding.cancel()

    async def status(self, keys: Sequence[CallKey]) -> Mapping[CallKey, CallStatus]:
        """See `ToolExecutor`."""
        here, there = self._parted(keys)
        known = dict(await self._inline.status(here))
        if there:
            known.update(await self._others.status(there))
        return known

    async def cancel(self, keys: Sequence[CallKey]) -> None:
        """See `ToolExecutor`."""
        here, there = self._parted(keys)
        await asyncio.gather(
            *([self._inline.cancel(here)] if here else []),
            *([self._others.cancel(there)] if there else []),
        )

    def release(self, keys: Sequence[CallKey]) -> None:
        """See `ToolExecutor`."""
        here, there = self._parted(keys)
        if here:
            self._inline_keys.difference_update(here)
            self._inline.release(here)
        if there:
            self._others.release(there)

    async def close(self) -> None:
        """See `ToolExecutor`."""
        await asyncio.gather(self._inline.close(), self._others.close())
        self._closed = True
        self._news.set()

    def _parted(self, keys: Sequence[CallKey]) -> tuple[list[CallKey], list[CallKey]]:
        """The keys of calls that run here, with what those call, and all others."""
        here: list[CallKey] = []
        there: list[CallKey] = []
        for key in keys:
            is_here = not self._inline_keys.isdisjoint([key, *key.ancestors()])
            (here if is_here else there).append(key)
        return here, there

    async def _forward(self) -> None:
        try:
            async for batch in self._others.updates():
                self._tell(batch)
        finally:
            self._news.set()

    def _tell(self, updates: Sequence[ToolUpdate]) -> None:
        self._updates.extend(updates)
        self._news.set()
