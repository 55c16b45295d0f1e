"""`python -m benchmarks.peers NAME TURNS=RUNS...`: us per turn, one line per number of turns.

The median of RUNS runs of TURNS turns, after one run that warms it up. A process of its own for
each library: what one of them imports is no load on the garbage collector of another.
"""

from __future__ import annotations

import asyncio
import importlib
import statistics
import sys
import time
from collections.abc import Awaitable, Callable


async def microseconds_per_turn(
    run: Callable[[int], Awaitable[None]], turns: int, runs: int
) -> float:
    """The median of some runs."""
    took_us: list[float] = []
    for _ in range(runs):
        began_ns = time.perf_counter_ns()
        await run(turns)
        took_us.append((time.perf_counter_ns() - began_ns) / 1000 / turns)
    return statistics.median(took_us)


async def measure(name: str, work: list[tuple[int, int]]) -> None:
    """Print a figure per number of turns."""
    run = importlib.import_module(f"benchmarks.peers.{name}").run
    await run(work[0][0])
    for turns, runs in work:
        print(turns, f"{await microseconds_per_turn(run, turns, runs):.1f}", flush=True)


if __name__ == "__main__":
    pairs = [(int(turns), int(runs)) for turns, runs in (one.split("=") for one in sys.argv[2:])]
    asyncio.run(measure(sys.argv[1], pairs))
