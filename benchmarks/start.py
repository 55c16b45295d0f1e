"""`scripts/bench start`: from a fresh process to the first event of a run, and the import alone.

Baseline: a fresh process with the same imports, the same `ray.init`, one bare actor whose worker
has the same imports, and one call. Both are timed from outside, from the start of the process to
the line it prints, alternately; the figure is the ratio of the medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

BARE = """
import logging, sys
import tulip_actors, tulip_actors.testing, tulip_actors.runtime.ray_runtime
import ray
class Bare:
    def __init__(self):
        import tulip_actors.runtime.agent_actor
        import tulip_actors.testing
    def first(self):
        return "event"
ray.init(address="local", include_dashboard=False, logging_level=logging.ERROR)
actor = ray.remote(num_cpus=0)(Bare).remote()
print(ray.get(actor.first.remote()), flush=True)
sys.stdin.readline()
"""

OURS = """
import asyncio, sys
import tulip_actors, tulip_actors.testing, tulip_actors.runtime.ray_runtime
from tulip_actors import Agent
from tulip_actors.testing import ScriptedModel, text
async def main():
    async for event in Agent(ScriptedModel([text("hello")])).run("hi"):
        print(event.event_type, flush=True)
        break
    await asyncio.to_thread(sys.stdin.readline)
asyncio.run(main())
"""


def seconds_to_first_line(program: str) -> float:
    """How long a fresh process takes to print its first line."""
    environment = {**os.environ, "TULIP_QUIET": "1"}
    environment.pop("RAY_ADDRESS", None)
    began_s = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        took_s = time.perf_counter() - began_s
        process.stdin.write("\n")
        process.stdin.close()
        process.wait(timeout=60)
    if not line.strip():
        raise SystemExit("a program ended without its line; run it by hand")
    return took_s


def seconds_to_import(module: str) -> float:
    """How long a fresh process takes that imports a module and ends."""
    began_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    return time.perf_counter() - began_s


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    seconds_to_first_line(BARE)  # fills the page cache
    pairs = [(seconds_to_first_line(OURS), seconds_to_first_line(BARE)) for _ in range(runs)]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"first event of Agent.run    {ours:6.2f} s   (median of {runs})")
    print(f"bare ray.init, actor, call  {bare:6.2f} s   (median of {runs})")
    print(f"ratio                       {ours / bare:6.2f} x  (at most 1.3)")
    seconds_to_import("tulip_actors")
    imports = [
        (seconds_to_import("tulip_actors"), seconds_to_import("pydantic"))
        for _ in range(2 * runs + 1)
    ]
    package, pydantic = (statistics.median(column) for column in zip(*imports, strict=True))
    print(f"import tulip_actors         {package * 1000:6.0f} ms")
    print(f"import pydantic             {pydantic * 1000:6.0f} ms")
    print(f"ratio                       {package / pydantic:6.2f} x  (at most 2.5)")


if __name__ == "__main__":
    main()
