"""The work of `benchmarks.loop` and `benchmarks.store` on other libraries, one module per library.

Each has `async def run(turns)`: a conversation of that many model calls, in which every call but
the last asks for one call of a trivial async tool, its arguments new each time. The model is a
script behind the library's own model interface; tracing is off, nothing uses the network. What can
be made once (agents, graphs) is made once, so a second run costs its turns alone. Those that can
keep what they do in a file have `durable(folder)` too, an asynchronous context manager of such a
function: saved as often as the library can, on a thread that is new in each run.

A module is imported only in a process of its own, by `python -m benchmarks.peers NAME HOW`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

Run: TypeAlias = Callable[[int], Awaitable[None]]
"""A conversation of so many model calls."""
