"""`scripts/chaos`: many refunds with processes killed under them, and what came of it."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom

from tests.chaos.leaks import look
from tests.chaos.storm import Storm, cashier_agent
from tulip_actors.testing.faults import TARGETS, Target

WAVE_RUNS = 10


async def storm(runs: int, seed: int, targets: Sequence[Target]) -> bool:
    """All waves of one kind or of all by turns; true if nothing was violated."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        async with cashier_agent() as agent:
            made = Storm(agent, Path(folder), seed, targets)
            await made.warm_up()
            for begun in range(0, runs, WAVE_RUNS):
                await made.wave(min(WAVE_RUNS, runs - begun))
    print(made.figures.told())
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"took {time.monotonic() - began_s:.0f} s, {os.cpu_count()} cores, load {load}")
    return not made.figures.problems and not made.figures.untouched


def main() -> int:
    """0 if all held."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=300, help="of each kind")
    parser.add_argument("--seed", type=int, default=None, help="as printed by an earlier one")
    parser.add_argument("--leaks", action="store_true", help="200 cancels, 100 kills: what is left")
    parser.add_argument("--kill", choices=[*TARGETS, "all"], default="all")
    asked = parser.parse_args()
    seed = SystemRandom().getrandbits(32) if asked.seed is None else asked.seed
    if asked.leaks:
        print(f"seed {seed}: what is left of 200 cancels and 100 kills", flush=True)
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            leaks_nothing = asyncio.run(look(Path(folder), seed, 200, 100, print))
        return 0 if leaks_nothing else 1
    held = True
    for target in TARGETS if asked.kill == "all" else (asked.kill,):
        print(f"seed {seed}: {asked.runs} runs, killing the {target}", flush=True)
        held = asyncio.run(storm(asked.runs, seed, [target])) and held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
