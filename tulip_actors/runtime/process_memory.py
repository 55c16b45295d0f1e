"""How the processes that are ours alone use memory: Python's cyclic collector, and what goes back
to the operating system."""

from __future__ import annotations

import contextlib
import ctypes
import gc

GENERATION_0 = 20_000
"""Objects between two looks at the youngest generation. With Python's 700 a dispatcher spends two
fifths of its time in looking at messages that are about to go away by themselves."""
MMAP_THRESHOLD_BYTES = 128 * 1024
_M_MMAP_THRESHOLD = -3
"""By its number in malloc.h. Once set it stays: otherwise the C library raises it with the first
large block that is freed, and takes the next ones from the heap, which does not shrink again."""


def settle_memory() -> None:
    """Let the collector look less often, and never again at what is imported by now; let large
    blocks go back to the system when they are freed."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GENERATION_0, 20, 20)
    with contextlib.suppress(OSError, AttributeError):  # not with this C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
