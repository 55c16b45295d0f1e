"""`scripts/chaos`: many refunds with processes killed under them, and what came of it."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import SystemRandom

from tests.chaos.leaks import look
from tests.chaos.nodes import ON_SPOT, SpotNodes
from tests.chaos.storm import KINDS, Kind, Storm, cashier_agent

WAVE_RUNS = 10


async def storm(runs: int, seed: int, kind: Kind, nodes: SpotNodes | None) -> bool:
    """All waves; true if nothing was violated."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        async with cashier_agent(ON_SPOT if nodes else None) as agent:

            async def lose(home: bool) -> None:
                assert nodes is not None
                await nodes.lose(agent, home=home)

            made = Storm(agent, Path(folder), seed, kind, lose)
            await made.warm_up()
            for begun in range(0, runs, WAVE_RUNS):
                await made.wave(min(WAVE_RUNS, runs - begun))
                if nodes:
                    nodes.fill()
    print(made.figures.told())
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"took {time.monotonic() - began_s:.0f} s, {os.cpu_count()} cores, load {load}")
    return not made.figures.problems and not made.figures.untouched


def of_kind(runs: int, seed: int, kind: Kind) -> bool:
    """On this machine's cluster, or where nodes are lost on one of simulated nodes."""
    print(f"seed {seed}: {runs} runs, killing the {kind}", flush=True)
    if kind != "node":
        return asyncio.run(storm(runs, seed, kind, None))
    with SpotNodes() as nodes:
        return asyncio.run(storm(runs, seed, kind, nodes))


def in_turn(runs: int, seed: int) -> bool:
    """Every kind, each with a process and a cluster of its own."""
    asked = [sys.executable, "-m", "tests.chaos", f"--runs={runs}", f"--seed={seed}"]
    ended = [subprocess.run([*asked, f"--kill={kind}"], check=False).returncode for kind in KINDS]
    return not any(ended)


def main() -> int:
    """0 if all held."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=300, help="of each kind")
    parser.add_argument("--seed", type=int, default=None, help="as printed by an earlier one")
    parser.add_argument("--leaks", action="store_true", help="200 cancels, 100 kills: what is left")
    parser.add_argument("--kill", choices=[*KINDS, "all"], default="all")
    asked = parser.parse_args()
    seed = SystemRandom().getrandbits(32) if asked.seed is None else asked.seed
    if asked.leaks:
        print(f"seed {seed}: what is left of 200 cancels and 100 kills", flush=True)
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            held = asyncio.run(look(Path(folder), seed, 200, 100, print))
    elif asked.kill == "all":
        held = in_turn(asked.runs, seed)
    else:
        held = of_kind(asked.runs, seed, asked.kill)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
