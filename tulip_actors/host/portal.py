"""One event loop in a thread of its own, per process, that never ends before the process does.

Everything a handle keeps open (the streams of a cluster, clients bound to a loop) lives on it, so
nothing is ever bound to a loop that a caller has closed: `run_sync` works any number of times, in
a script, a thread, under a running loop and inside a Ray task.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

CLOSE_TIMEOUT_S = 2.0

_lock = threading.Lock()
_portal: Portal | None = None


class Portal:
    """The loop, and the ways onto it from any thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.pid = os.getpid()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="tulip-portal", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Cancel what runs here and end the thread; for the end of the process."""
        if self._thread.is_alive() and not self.is_here:
            asyncio.run_coroutine_threadsafe(self._wind_up(), self.loop)
            self._thread.join(CLOSE_TIMEOUT_S)

    async def _wind_up(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=CLOSE_TIMEOUT_S / 2)
        self.loop.stop()

    @property
    def is_here(self) -> bool:
        """True in the portal's own thread."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the portal; returns at once."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the portal and await it from any loop; cancelling reaches it."""
        if self.is_here:
            return await work
        return await asyncio.wrap_future(self.submit(work))

    def call_blocking(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the portal and wait for it; Ctrl-C cancels it."""
        if self.is_here:
            work.close()
            raise RuntimeError(
                "a blocking call was made on the portal's own thread (from a tool or model that "
                "runs inline): use the async form there"
            )
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def portal() -> Portal:
    """This process's portal; a forked child gets its own."""
    global _portal
    with _lock:
        if _portal is None or _portal.pid != os.getpid():
            _portal = Portal()
        return _portal


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of the calling code, None outside of coroutines."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
