"""Waking whoever waits for a change, on whatever event loop and thread it waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from tulip_actors.host.portal import running_loop


class Waiters:
    """Wait for a condition that others change; `wake` after every change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Return when `holds()` is true."""
        loop = asyncio.get_running_loop()
        while not holds():
            future: asyncio.Future[None] = loop.create_future()
            with self._lock:
                self._waiting.append((loop, future))
            if holds():  # it changed before we were on the list, so nobody will wake us
                return
            await future

    def wake(self) -> None:
        """Let everybody look again. Call it after the change."""
        if not self._waiting:
            return
        with self._lock:
            waiting, self._waiting = self._waiting, []
        here = running_loop() if waiting else None
        for loop, future in waiting:
            if loop is here:
                _finish(future)
                continue
            try:
                loop.call_soon_threadsafe(_finish, future)
            except RuntimeError:  # that loop is closed: nobody waits on it any more
                continue


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
