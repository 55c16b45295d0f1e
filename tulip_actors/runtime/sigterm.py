"""SIGTERM in an actor's process: heard at once, on the actor's event loop.

Ray lets it raise SystemExit in the main thread, which is not where an async actor's code runs: the
process stays and answers nothing any more. Nor does a handler of Python's own run in time, since
the main thread waits in Ray's C++. So the signal is written to a pipe, by the interpreter itself,
and the event loop reads that.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable


class Sigterm:
    """Made in the main thread, which is where Ray calls `__new__` of an actor; listened to once
    there is an event loop."""

    def __init__(self) -> None:
        self._heard_fd = -1
        if threading.current_thread() is not threading.main_thread():
            return  # nothing can be set up here: what Ray does stays
        self._heard_fd, tell_fd = os.pipe()
        for end_fd in (self._heard_fd, tell_fd):
            os.set_blocking(end_fd, False)
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        signal.set_wakeup_fd(tell_fd, warn_on_full_buffer=False)

    def call(self, loop: asyncio.AbstractEventLoop, heard: Callable[[], None]) -> None:
        """Call `heard` on the loop when the first SIGTERM comes, or came before."""
        if self._heard_fd < 0:
            return

        def read() -> None:
            if signal.SIGTERM in os.read(self._heard_fd, 64):
                loop.remove_reader(self._heard_fd)
                heard()

        loop.add_reader(self._heard_fd, read)


def end_at_sigterm() -> None:
    """Let SIGTERM end the process, and Ray start the actor again; in the main thread alone."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
