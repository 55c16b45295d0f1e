"""`scripts/bench conversations`: a thousand conversations at once on one agent actor.

Local Ray, a model that takes 1 s, one turn each, all started by one driver. Measured, for runs that
are awaited (`arun`), started and awaited (`start`) and followed event by event (`run`): the time
from the first start to the last result beyond the second that each takes anyway, and the memory of
the agent's process per conversation: its peak while they run, less what it held before. Each way
has a fresh actor, in which one conversation came before.

Baseline: a bare async Ray actor whose method sleeps as long, called as often.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from benchmarks._bounds import Bounds
from benchmarks._doubles import BareActor, SleepingModel
from tulip_actors import Agent

MODEL_S = 1.0
LATE_MAX_S = 1.5
KB_MAX = 40.0

Converse = Callable[[], Awaitable[None]]
"""One conversation, from its start to its result."""


@dataclass(frozen=True, slots=True)
class Wave:
    """Conversations at once: seconds beyond the ideal, and KB of the actor's memory for each."""

    late_s: float
    kb_each: float


async def wave(converse: Converse, conversations: int, pid: int) -> Wave:
    """Hold all conversations at once with the actor in process `pid`."""
    before_kb = _memory_kb(pid, "VmRSS")
    _forget_peak(pid)
    began_s = time.perf_counter()
    await asyncio.gather(*(converse() for _ in range(conversations)))
    took_s = time.perf_counter() - began_s
    kb_each = (_memory_kb(pid, "VmHWM") - before_kb) / conversations
    return Wave(took_s - MODEL_S, kb_each)


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # 5: VmHWM begins anew


def _memory_kb(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


# ways to hold a conversation


async def awaited(agent: Agent) -> None:
    """No events travel."""
    _check((await agent.arun("Hello.")).text)


async def started(agent: Agent) -> None:
    """Events travel, nobody reads them."""
    _check((await agent.start("Hello.").result()).text)


async def followed(agent: Agent) -> None:
    """Every event is read."""
    events = [event async for event in agent.run("Hello.")]
    _check(getattr(events[-1], "final_message", None))


def _check(said: object) -> None:
    if said != "Done.":
        raise SystemExit(f"a conversation ended with {said!r}")


WAYS = {"arun": awaited, "start": started, "run": followed}


async def our_wave(way: Callable[[Agent], Awaitable[None]], conversations: int) -> Wave:
    """A wave on a fresh agent."""
    async with Agent(SleepingModel(MODEL_S), name="host") as agent:
        await way(agent)
        pid = (await agent.observe()).pid
        return await wave(lambda: way(agent), conversations, pid)


async def bare_wave(conversations: int) -> Wave:
    """A wave on a fresh bare actor."""
    bare: Any = ray.remote(BareActor)
    actor = bare.options(num_cpus=0, max_concurrency=10_000).remote()
    pid = await actor.pid.remote()

    async def converse() -> None:
        _check(await actor.wait.remote(MODEL_S))

    await converse()
    measured = await wave(converse, conversations, pid)
    ray.kill(actor)
    return measured


async def measure(conversations: int, ways: list[str], bounds: Bounds) -> None:
    """Print the figures."""
    async with Agent(SleepingModel(0.0), name="warm-up") as agent:
        await asyncio.gather(*(followed(agent) for _ in range(10)))  # starts Ray and the helpers
    bare = await bare_wave(conversations)
    print(f"{conversations:,} conversations of {MODEL_S} s")
    print(f"bare actor: seconds beyond the ideal{bare.late_s:14.2f}")
    print(f"bare actor: KB each{bare.kb_each:31.2f}", flush=True)
    for name in ways:
        ours = await our_wave(WAYS[name], conversations)
        bounds.at_most(f"{name}: seconds beyond the ideal", ours.late_s, LATE_MAX_S)
        print(f"  ratio{ours.late_s / bare.late_s:43.2f} x")
        bounds.below(f"{name}: KB each", ours.kb_each, KB_MAX)
        print(f"  ratio{ours.kb_each / bare.kb_each:43.2f} x")


def main() -> None:
    """Print the figures; exit with 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=1_000)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    given = parser.parse_args()
    os.environ.setdefault("TULIP_QUIET", "1")
    os.environ.pop("RAY_ADDRESS", None)
    bounds = Bounds()
    asyncio.run(measure(given.conversations, given.ways, bounds))
    bounds.exit()


if __name__ == "__main__":
    main()
