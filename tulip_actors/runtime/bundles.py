"""Short calls to one actor, bundled: one bundle is in flight, what comes meanwhile is the next.

What limits an actor is the number of calls, not what they carry. A lone call is sent at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from tulip_actors.runtime.failures import ask

CALLS_PER_BUNDLE = 128

Call: TypeAlias = tuple[str, tuple[object, ...]]
"""A method's name and its arguments."""

Outcome: TypeAlias = tuple[object, Exception | None]
"""What a call returned, or what it raised."""


class BundledCalls:
    """An actor's method `bundle(calls) -> outcomes`, as single calls. For one event loop.

    `actor` finds the handle; `what` names the actor in messages.
    """

    def __init__(self, actor: Callable[[], Any], what: str) -> None:
        self._actor = actor
        self._what = what
        self._waiting: list[tuple[Call, asyncio.Future[object]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def call(self, method: str, *arguments: object) -> object:
        """Make a call, after those that came before. Raises what it raised."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting.append(((method, arguments), future))
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send())
        return await future

    async def _send(self) -> None:
        try:
            while self._waiting:
                bundle = self._waiting[:CALLS_PER_BUNDLE]
                del self._waiting[:CALLS_PER_BUNDLE]
                outcomes = await self._outcomes([call for call, _ in bundle])
                for (_, future), (value, error) in zip(bundle, outcomes, strict=True):
                    if future.done():  # whoever made the call was cancelled
                        continue
                    if error is None:
                        future.set_result(value)
                    else:
                        future.set_exception(error)
        finally:
            self._sending = None

    async def _outcomes(self, calls: Sequence[Call]) -> Sequence[Outcome]:
        try:
            sent = self._actor().bundle.remote(calls)
            return cast(Sequence[Outcome], await ask(sent, self._what))
        except Exception as error:  # that of every call in the bundle
            return [(None, error)] * len(calls)


def outcomes_of(target: object, methods: frozenset[str], calls: Sequence[Call]) -> list[Outcome]:
    """Make the calls in order, the actor's side of it; only these `methods` may be named."""
    return [_outcome(target, methods, *call) for call in calls]


def _outcome(
    target: object, methods: frozenset[str], method: str, arguments: tuple[object, ...]
) -> Outcome:
    try:
        if method not in methods:
            raise ValueError(f"{method!r} cannot be called in a bundle")
        return getattr(target, method)(*arguments), None
    except Exception as error:  # the caller's: raised there
        return None, error
