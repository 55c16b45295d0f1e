"""Ray's exceptions as ours, in one place."""

from __future__ import annotations

import asyncio
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Callable

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    RayActorError,
    RayError,
    RayTaskError,
)

from tulip_actors.errors import ActorLost, ClusterError

RETRY_S = 0.05


def translated(error: Exception, what: str) -> Exception:
    """What an actor call's failure means to its caller. `what` names the callee in the message.

    An exception the callee raised is given back as itself, without Ray's wrapper, whose class
    attributes would hide the instance's values.
    """
    if isinstance(error, RayTaskError):
        cause = error.cause
        return cause if isinstance(cause, Exception) else ClusterError(f"{what} failed: {error}")
    if isinstance(error, ActorDiedError):
        return ActorLost(f"{what} is gone: {_first_line(error)}")
    if isinstance(error, ActorUnavailableError | RayActorError | GetTimeoutError):
        return ClusterError(f"{what} does not answer: {_first_line(error)}")
    if isinstance(error, RayError | ConnectionError):
        return ClusterError(f"{what} cannot be reached: {_first_line(error)}")
    return error


async def ask(ref: ray.ObjectRef[object], what: str) -> object:
    """Await an actor call. Raises what the callee raised, or a `ClusterError`."""
    try:
        return await ref
    except (RayError, ConnectionError) as error:
        raise translated(error, what) from None


async def insist(call: Callable[[], ray.ObjectRef[object]], what: str, away_s: float) -> object:
    """Await an actor call that may be made twice, whose actor may be `away_s` seconds away:
    its process has ended, and another one is on its way. Raises as `ask` does."""
    until_s = time.monotonic() + away_s
    while True:
        try:
            return await ask(call(), what)
        except ActorLost:
            raise
        except ClusterError:
            if time.monotonic() > until_s:
                raise
            await asyncio.sleep(RETRY_S)


async def first_answer(call: Callable[[], ray.ObjectRef[object]], what: str, away_s: float) -> None:
    """Wait until an actor whose process has ended answers again. Raises as `ask` does.

    A call to an actor that is away fails after a second (Ray looks that often), and meanwhile the
    actor may have come back: so the next one does not wait for it.
    """
    until_s = time.monotonic() + away_s
    asked: set[asyncio.Task[object]] = set()
    try:
        while True:
            asking = asyncio.ensure_future(ask(call(), what))
            asking.add_done_callback(_looked_at)
            asked.add(asking)
            done, asked = await asyncio.wait(asked, timeout=RETRY_S, return_when=FIRST_COMPLETED)
            for one in done:
                failure = one.exception()
                if failure is None:
                    return
                if not isinstance(failure, ClusterError) or isinstance(failure, ActorLost):
                    raise failure
                if time.monotonic() > until_s:
                    raise failure
            if done:
                await asyncio.sleep(RETRY_S)
    finally:
        for one in asked:
            one.cancel()


def _looked_at(asking: asyncio.Task[object]) -> None:
    """Another call has been answered: nobody will ask how this one ended."""
    if not asking.cancelled():
        asking.exception()


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
