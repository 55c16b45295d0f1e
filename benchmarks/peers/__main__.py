"""`python -m benchmarks.peers NAME HOW TURNS=RUNS...`: us per turn, a line per number of turns.

The median of RUNS runs of TURNS turns, after one run that warms it up. HOW is `run`, or `durable`
for the module's function of that name. A process of its own for each library: what one of them
imports is no load on the garbage collector of another.
"""

from __future__ import annotations

import asyncio
import importlib
import statistics
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers import Run


async def microseconds_per_turn(run: Run, turns: int, runs: int) -> float:
    """The median of some runs."""
    took_us: list[float] = []
    for _ in range(runs):
        began_ns = time.perf_counter_ns()
        await run(turns)
        took_us.append((time.perf_counter_ns() - began_ns) / 1000 / turns)
    return statistics.median(took_us)


async def measure(name: str, how: str, work: list[tuple[int, int]]) -> None:
    """Print a figure per number of turns."""
    module = importlib.import_module(f"benchmarks.peers.{name}")
    async with AsyncExitStack() as stack:
        run: Run = module.run
        if how == "durable":
            folder = Path(stack.enter_context(TemporaryDirectory()))
            run = await stack.enter_async_context(module.durable(folder))
        await run(work[0][0])
        for turns, runs in work:
            print(turns, f"{await microseconds_per_turn(run, turns, runs):.1f}", flush=True)


if __name__ == "__main__":
    pairs = [(int(turns), int(runs)) for turns, runs in (one.split("=") for one in sys.argv[3:])]
    asyncio.run(measure(sys.argv[1], sys.argv[2], pairs))
