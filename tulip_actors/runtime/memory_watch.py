"""A bound on what one call may use of memory: Ray's `memory=` only decides where a call may start.

The operating system's own limit counts addresses, which threads and mapped files take by the
gigabyte without using them; so the resident size is looked at, and the process ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

LOOK_EVERY_S = 0.05
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def memory_watch(limit_bytes: int | None, exceeded: Callable[[int], None]) -> Iterator[None]:
    """While in here the process may grow by so much. If it does by more, `exceeded` is told the
    growth in bytes and the process ends. Does nothing without a limit, and where there is no
    /proc."""
    if limit_bytes is None or not _STATM.exists():
        yield
        return
    left = threading.Event()
    begun_bytes = _resident_bytes()

    def watch() -> None:
        while not left.wait(LOOK_EVERY_S):
            grown_bytes = _resident_bytes() - begun_bytes
            if grown_bytes > limit_bytes:
                exceeded(grown_bytes)
                os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="tulip-memory", daemon=True).start()
    try:
        yield
    finally:
        left.set()


def _resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
