"""`scripts/bench store`: what it costs to keep every turn in SQLite.

Baseline: the same agent with `checkpointer=None` in the same runtime and the same process, its runs
in turn with those measured. Of the part `inline`, where the agent's process opens the file itself:

- the time from one model call to the next, as a median, and what SQLite adds to it;
- turns per second of 100 runs at once;
- within one long run, turns 990-1,010 against turns 5-15.

Of the part `ray`, where `checkpointer=None` means the memory of the services actor, in another
process: what SQLite adds, as a median, to an agent on the node of the file, and to one on another
node, which reaches it through a store actor. Two simulated nodes.

Beside it, in processes of their own, other libraries with what they keep in a file, as far as they
are installed (extra `bench`: `scripts/bench --with-peers store`). They do not keep the same: what
each of them saves, and when, is said in its module.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks._bounds import Bounds
from benchmarks._doubles import AddingModel
from benchmarks._peers import side_by_side
from tulip_actors import ActorOptions, Agent, ThinkEvent, tool

EARLY, LATE = range(5, 16), range(990, 1_011)
TURNS, LONG = 200, LATE.stop + 2
AT_ONCE, TURNS_AT_ONCE = 100, 20
ADDED_MS_MAX = 1.0
ADDED_BY_ACTOR_MS_MAX = 2.0
RATE_RATIO_MIN = 0.6
GROWTH_MAX = 1.2
PEERS = ("langgraph", "openai_agents", "tulip_agents")
PEER_WORK = {50: 8, 400: 2}


@tool
async def add_one(n: int) -> int:
    """Add one.

    Args:
        n: a number
    """
    return n + 1


async def gaps_us(turns: int, checkpointer: str | None) -> Sequence[float]:
    """A run: the times from one model call to the next."""
    model = AddingModel(turns)
    agent = _agent(model, turns, checkpointer)
    result = await agent.arun("Count.")
    await agent.stop()
    if result.iterations != turns or not result.success:
        raise SystemExit(f"the run is not what it should be: {result!r}")
    return [(after - before) / 1000 for before, after in pairwise(model.asked_at_ns)]


async def turns_per_s(checkpointer: str | None) -> float:
    """Many runs at once, on one agent that has run before."""
    agent = _agent(AddingModel(TURNS_AT_ONCE), TURNS_AT_ONCE, checkpointer)
    await agent.arun("Count.")
    began_s = time.perf_counter()
    results = await asyncio.gather(*(agent.arun("Count.") for _ in range(AT_ONCE)))
    took_s = time.perf_counter() - began_s
    await agent.stop()
    if not all(result.success for result in results):
        raise SystemExit("a run has failed")
    return AT_ONCE * TURNS_AT_ONCE / took_s


@tool(name="add_one", inline=True)
async def add_one_here(n: int) -> int:
    """Add one, in the agent's process.

    Args:
        n: a number
    """
    return n + 1


def _agent(model: AddingModel, turns: int, checkpointer: str | None) -> Agent:
    return Agent(
        model, [add_one], runtime="inline", max_iterations=turns + 1, checkpointer=checkpointer
    )


async def inline(rounds: int, bounds: Bounds) -> None:
    """The agent's process opens the file."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder)}/runs.db"
        await gaps_us(TURNS, url)  # warms up
        await _added(rounds, url, bounds)
        await _at_once(rounds, url, bounds)
        await _growth(rounds, url, bounds)


async def _added(rounds: int, url: str, bounds: Bounds) -> None:
    without: list[float] = []
    durable: list[float] = []
    for _ in range(rounds):
        without += await gaps_us(TURNS, None)
        durable += await gaps_us(TURNS, url)
    before, after = statistics.median(without), statistics.median(durable)
    _tell("us of a turn, checkpointer=None", before)
    _tell("us of a turn, SQLite", after)
    _tell("  ratio", after / before)
    bounds.at_most("  ms added by SQLite (p50)", (after - before) / 1000, ADDED_MS_MAX)


async def _at_once(rounds: int, url: str, bounds: Bounds) -> None:
    pairs = [(await turns_per_s(None), await turns_per_s(url)) for _ in range(rounds)]
    _tell(f"turns/s of {AT_ONCE}, checkpointer=None", statistics.median(one for one, _ in pairs))
    _tell(f"turns/s of {AT_ONCE}, SQLite", statistics.median(one for _, one in pairs))
    ratio = statistics.median(durable / without for without, durable in pairs)
    bounds.at_least("  ratio of the turns/s", ratio, RATE_RATIO_MIN)


async def _growth(rounds: int, url: str, bounds: Bounds) -> None:
    found = [await gaps_us(LONG, url) for _ in range(rounds)]
    early = statistics.median(gaps[turn] for gaps in found for turn in EARLY)
    late = statistics.median(gaps[turn] for gaps in found for turn in LATE)
    _tell(f"us of turns {EARLY.start}-{EARLY.stop - 1}, SQLite", early)
    _tell(f"us of turns {LATE.start}-{LATE.stop - 1}, SQLite", late)
    bounds.at_most("  ratio", late / early, GROWTH_MAX)


async def on_ray(rounds: int, bounds: Bounds) -> None:
    """The store is in another process, or on another node."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "resources": {"file": 1}}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=2, resources={"away": 1})
    os.environ["RAY_ADDRESS"] = cluster.address
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder)}/runs.db"
        ways = {
            "checkpointer=None": ("away", None),
            "SQLite, opened there": ("file", url),
            "SQLite, through an actor": ("away", url),
        }
        agents = {way: _on_node(*place) for way, place in ways.items()}
        found: dict[str, list[float]] = {way: [] for way in ways}
        for agent in agents.values():
            await _turn_ms(agent)  # warms up
        for _ in range(rounds):
            for way, agent in agents.items():
                found[way] += await _turn_ms(agent)
        for agent in agents.values():
            await agent.stop()
    medians = {way: statistics.median(gaps) for way, gaps in found.items()}
    before, opened, through = medians.values()
    for way, median in medians.items():
        _tell(f"ms of a turn, {way}", median)
    bounds.at_most("  ms added, opened there (p50)", opened - before, ADDED_MS_MAX)
    bounds.at_most("  ms added, through an actor (p50)", through - before, ADDED_BY_ACTOR_MS_MAX)


def _on_node(resource: str, checkpointer: str | None) -> Agent:
    return Agent(
        AddingModel(TURNS),
        [add_one_here],
        runtime="ray",
        actor=ActorOptions(resources={resource: 0.1}),
        max_iterations=TURNS + 1,
        checkpointer=checkpointer,
    )


async def _turn_ms(agent: Agent) -> Sequence[float]:
    """A run: the times from one answer of the model to the next."""
    spoke = [
        event.timestamp.timestamp() * 1000
        async for event in agent.run("Count.")
        if isinstance(event, ThinkEvent)
    ]
    if len(spoke) != TURNS:
        raise SystemExit(f"the run has {len(spoke)} turns")
    return [after - before for before, after in pairwise(spoke)]


def _tell(what: str, figure: float) -> None:
    print(f"{what:40}{figure:10,.2f}", flush=True)


PARTS: dict[str, Callable[[int, Bounds], Awaitable[None]]] = {"inline": inline, "ray": on_ray}


async def measure(parts: Sequence[str], rounds: int, bounds: Bounds) -> None:
    """Print the figures."""
    for part in parts:
        print(part)
        await PARTS[part](rounds, bounds)


def main() -> None:
    """Print the figures; exit with 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--no-peers", action="store_true", help="leave out the other libraries")
    arguments = parser.parse_args()
    bounds = Bounds()
    asyncio.run(measure(arguments.part or list(PARTS), arguments.rounds, bounds))
    if not arguments.no_peers:
        side_by_side(PEERS, "durable", PEER_WORK)
    bounds.exit()


if __name__ == "__main__":
    main()
