"""`scripts/bench recovery`: from the SIGKILL of an agent's process to the next event at the caller.

Baseline: a bare actor with `max_restarts=-1` whose worker has the same imports, killed in the same
way in turn with ours; its caller repeats a call that fails. Before each kill Ray is given time to
start the process it keeps in reserve. Every run of ours must end as if nothing had happened: one
effect per call, a stream without gap or repeat.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import signal
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks._bounds import Bounds
from benchmarks._doubles import PayingModel
from tulip_actors import Agent, RunRecoveredEvent, tool
from tulip_actors.runtime.cluster import connect  # before Ray, which it prepares

import ray  # isort: skip

CALLS = 6
NEXT_EVENT_S_MAX = 2.0
RETRY_S = 0.02
SETTLE_S = 3.0


class Bare:
    """An actor with the imports of an agent's."""

    def __init__(self) -> None:
        import tulip_actors.runtime.agent_actor
        import tulip_actors.testing  # noqa: F401

    async def pid(self) -> int:
        """Its process."""
        return os.getpid()


@tool
def pay(ledger: str, number: int) -> str:
    """Pay.

    Args:
        ledger: where to note it
        number: which payment
    """
    time.sleep(0.05)
    with Path(ledger).open("a") as file:
        file.write(f"{number}\n")
    return "paid"


async def bare_s(actor: Any) -> float:
    """From a kill of the bare actor to its next answer."""
    pid = await actor.pid.remote()
    os.kill(pid, signal.SIGKILL)
    killed_at_s = time.perf_counter()
    while True:
        try:
            if await actor.pid.remote() != pid:
                return time.perf_counter() - killed_at_s
        except ray.exceptions.RayError:
            await asyncio.sleep(RETRY_S)


async def ours_s(agent: Agent, ledger: Path, after_s: float) -> float:
    """From a kill of the agent's process in mid-run to the next event at the caller."""
    pid = (await agent.observe()).pid
    handle = agent.start(str(ledger))
    killed_at_s = 0.0

    def kill() -> None:
        nonlocal killed_at_s
        os.kill(pid, signal.SIGKILL)
        killed_at_s = time.perf_counter()

    asyncio.get_running_loop().call_later(after_s, kill)
    numbers: list[int] = []
    took_s = 0.0
    async for event in handle.events():
        assert event.source is not None
        numbers.append(event.source.seq)
        if isinstance(event, RunRecoveredEvent):
            took_s = time.perf_counter() - killed_at_s
    if numbers != list(range(len(numbers))) or not (await handle.result()).success:
        raise SystemExit(f"the run is not what it should be: events {numbers}")
    paid = await asyncio.to_thread(_payments, ledger)
    if sorted(paid, key=int) != [str(number) for number in range(CALLS)]:
        raise SystemExit(f"paid {paid}: each once was asked for")
    return took_s


def _payments(ledger: Path) -> Sequence[str]:
    return ledger.read_text().split()


async def measure(kills: int, seed: int, bounds: Bounds) -> None:
    """Print the figures."""
    moments = random.Random(seed)
    agent = Agent(PayingModel(CALLS), [pay], name="payer", runtime="ray")
    bare_class: Any = ray.remote(max_restarts=-1, num_cpus=0)(Bare)
    bare = bare_class.remote()
    ours: list[float] = []
    theirs: list[float] = []
    with TemporaryDirectory() as folder:
        warm = agent.start(str(Path(folder, "warm")))
        await warm.result()
        for number in range(kills):
            await asyncio.sleep(SETTLE_S)
            theirs.append(await bare_s(bare))
            await asyncio.sleep(SETTLE_S)
            ledger = Path(folder, str(number))
            took_s = await ours_s(agent, ledger, moments.uniform(0.02, CALLS * 0.05))
            if took_s:  # else it had ended before the kill
                ours.append(took_s)
    await agent.stop()
    _tell(f"bare actor, kill to next answer, {len(theirs)}", theirs)
    _tell(f"an agent's run, kill to next event, {len(ours)}", ours)
    print(f"{'  ratio':40}{statistics.median(ours) / statistics.median(theirs):10.2f}")
    bounds.at_most("  s to the next event (median)", statistics.median(ours), NEXT_EVENT_S_MAX)


def _tell(what: str, seconds: Sequence[float]) -> None:
    middle, longest = statistics.median(seconds), max(seconds)
    print(f"{what:40}{middle:10.2f} s (median), {longest:.2f} s at most", flush=True)


def main() -> None:
    """Print the figures; exit with 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    connect(None, "tulip")
    logging.getLogger("ray").setLevel(logging.ERROR)
    bounds = Bounds()
    asyncio.run(measure(arguments.kills, arguments.seed, bounds))
    bounds.exit()


if __name__ == "__main__":
    main()
