"""`scripts/bench tools`: what a tool call costs on Ray, beside bare Ray, asyncio and threads.

Local Ray, warm, all figures of one kind in one run, in turns with their baselines; medians. At the
ToolExecutor port (an executor in this process, the dispatcher and its workers behind it), but for
the whole agent runs, which are awaited with every event read.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import ray

from benchmarks import _doubles
from benchmarks._bounds import Bounds
from benchmarks._doubles import AllAtOnceModel, SleepingModel
from tulip_actors import Agent, Tool
from tulip_actors.core.calls import CallFinished, CallKey, CallKind, CallScope, ToolRequest
from tulip_actors.core.frozen import FrozenDict
from tulip_actors.runtime.dispatch import DispatcherExecutor
from tulip_actors.runtime.dispatch_link import Client
from tulip_actors.runtime.lane import BUSY_AT
from tulip_actors.runtime.pickling import pack
from tulip_actors.runtime.process_memory import settle_memory
from tulip_actors.runtime.spawn import dispatcher_actor, existing_actor, this_job_id, this_node_id

NAMESPACE = "tulip"
SCOPE = CallScope("bench", "bench", "bench", "bench")
CPU_CALLS = 8
CPU_S = 0.5

_runs = itertools.count()


@dataclass(frozen=True, slots=True)
class Way:
    """What is timed, and what comes before it each time."""

    run: Callable[[], Awaitable[object]]
    prepare: Callable[[], None] = lambda: None


class Port:
    """A ToolExecutor with one reader, as a host has it."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        node_id = this_node_id()
        name = f"tulip.dispatcher.{this_job_id()}.{node_id}"
        self._executor = DispatcherExecutor(
            Client("bench", 1, {"bench": pack(self._tools, "the tools")}),
            lambda: dispatcher_actor(name, NAMESPACE, node_id),
            lambda name: existing_actor(name, NAMESPACE),
        )
        self._prepared: dict[tuple[str, int], list[ToolRequest]] = {}
        self.pids: set[int] = set()
        self._open: set[CallKey] = set()
        self._done = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())

    def prepare(self, tool_name: str, number: int, **arguments: Any) -> None:
        """Make the requests of the next `calls`, which are their maker's to pay for."""
        run_id = f"run_{next(_runs)}"
        given = FrozenDict(arguments)
        policy = self._tools[tool_name].policy
        self._prepared[tool_name, number] = [
            ToolRequest(CallKey(run_id, 0, slot), tool_name, "call", given, SCOPE, "bench", policy)
            for slot in range(number)
        ]

    async def calls(self, tool_name: str, number: int) -> None:
        """Make the prepared calls of a tool, and wait for the last."""
        requests = self._prepared.pop((tool_name, number))
        keys = [request.key for request in requests]
        self._open = set(keys)
        self.pids.clear()
        self._done.clear()
        self._executor.submit(requests)
        await self._done.wait()
        self._executor.release(keys)

    def way(self, tool_name: str, number: int, **arguments: Any) -> Way:
        """Prepared calls, to be timed."""
        return Way(
            lambda: self.calls(tool_name, number),
            lambda: self.prepare(tool_name, number, **arguments),
        )

    async def close(self) -> None:
        """Let go of the dispatcher."""
        self._reader.cancel()
        await self._executor.close()

    async def _read(self) -> None:
        async for updates in self._executor.updates():
            for update in updates:
                if not isinstance(update, CallFinished):
                    continue
                if update.outcome.error is not None:
                    raise SystemExit(f"a call failed: {update.outcome.error}")
                self.pids.add(update.outcome.worker_pid or 0)
                self._open.discard(update.key)
            if not self._open:
                self._done.set()


async def in_turns(repeats: int, *ways: Way) -> list[float]:
    """The median seconds of each way, measured in turns."""
    took: list[list[float]] = [[] for _ in ways]
    for _ in range(repeats + 1):  # the first is for warming up
        for way, figures in zip(ways, took, strict=True):
            way.prepare()
            began_s = time.perf_counter()
            await way.run()
            figures.append(time.perf_counter() - began_s)
    return [statistics.median(figures[1:]) for figures in took]


def bare(function: Callable[..., Any], number: int, *arguments: Any, **options: Any) -> Way:
    """So many bare Ray tasks, one call each."""
    remote: Any = ray.remote(function)
    task = remote.options(**options) if options else remote

    async def run() -> None:
        refs = [task.remote(*arguments) for _ in range(number)]
        await asyncio.to_thread(ray.get, refs)

    return Way(run)


async def short_calls(port: Port, repeats: int, bounds: Bounds) -> None:
    """Calls that do nothing."""
    for name in ("nothing", "nothing_plain"):
        print(f"1,000 no-op calls, {name}")
        function = _doubles.nothing_plain
        ours, more, tasks = await in_turns(
            repeats,
            port.way(name, 1_000),
            port.way(name, 10_000),
            bare(function, 1_000),
        )
        print(f"  ms{ours * 1e3:48.1f}    (bare Ray tasks {tasks * 1e3:.1f})")
        bounds.at_most("  ratio to bare tasks", ours / tasks, 0.10)
        bounds.at_most("  10,000 calls: time per call, ratio", more / 10 / ours, 1.0)


async def whole_runs(repeats: int, bounds: Bounds) -> None:
    """A run of an agent whose model asks for all calls in one turn; every event is read."""
    tool = Tool(_doubles.nothing)
    async with Agent(AllAtOnceModel("nothing", 1_000), [tool], name="bench") as agent:

        async def run() -> None:
            events = [event async for event in agent.run("Go.")]
            if len(events) < 2_000:
                raise SystemExit(f"{len(events)} events, the last: {events[-1]!r:.300}")

        ours, tasks = await in_turns(repeats, Way(run), bare(_doubles.nothing_plain, 1_000))
    print("a whole run with 1,000 calls and its events")
    print(f"  ms{ours * 1e3:48.1f}    (bare Ray tasks {tasks * 1e3:.1f})")
    bounds.at_most("  ratio to bare tasks", ours / tasks, 0.5)


async def waiting_calls(port: Port, repeats: int, bounds: Bounds) -> None:
    """Calls that wait: coroutines beside asyncio, plain functions beside threads."""

    async def in_asyncio() -> None:
        await asyncio.gather(*(_doubles.wait_a_bit() for _ in range(1_000)))

    ours, alone = await in_turns(repeats, port.way("wait_a_bit", 1_000), Way(in_asyncio))
    print("1,000 coroutines of 100 ms")
    print(f"  ms{ours * 1e3:48.1f}    (plain asyncio {alone * 1e3:.1f})")
    bounds.at_most("  ratio to asyncio", ours / alone, 1.3)
    bounds.at_most("  processes", len(port.pids), 4)

    port.prepare("block_a_bit", 1_000)
    await port.calls("block_a_bit", 1_000)
    processes = len(port.pids)
    threads = processes * BUSY_AT[CallKind.PLAIN]
    with ThreadPoolExecutor(threads) as pool:

        async def in_threads() -> None:
            loop = asyncio.get_running_loop()
            await asyncio.gather(
                *(loop.run_in_executor(pool, _doubles.block_a_bit) for _ in range(1_000))
            )

        ours, alone = await in_turns(repeats, port.way("block_a_bit", 1_000), Way(in_threads))
    print("1,000 plain functions that block for 100 ms")
    print(f"  ms{ours * 1e3:48.1f}    ({threads} threads of one process {alone * 1e3:.1f})")
    bounds.at_most("  ratio to threads", ours / alone, 3.0)
    bounds.at_most("  processes", len(port.pids), 8)


async def cpu_calls(port: Port, repeats: int, bounds: Bounds) -> None:
    """Calls that compute."""
    number = 1_000_000
    began_s = time.process_time()
    _doubles.count_to(number)
    number = int(number * CPU_S / (time.process_time() - began_s))
    ours, tasks = await in_turns(
        repeats,
        port.way("count_to", CPU_CALLS, upto=number),
        bare(_doubles.count_to, CPU_CALLS, number, num_cpus=1),
    )
    print(f"{CPU_CALLS} calls of {CPU_S} s of CPU")
    print(f"  ms{ours * 1e3:48.1f}    (bare Ray tasks {tasks * 1e3:.1f})")
    bounds.at_most("  ratio to bare tasks", ours / tasks, 1.1)


async def lone_call(port: Port, repeats: int, bounds: Bounds) -> None:
    """One call at a time."""
    ours, task = await in_turns(
        repeats * 10, port.way("nothing_plain", 1), bare(_doubles.nothing_plain, 1)
    )
    print("a lone call")
    print(f"  ms{ours * 1e3:48.2f}    (one bare Ray task {task * 1e3:.2f})")
    bounds.at_most("  ratio to a bare task", ours / task, 3.0)


async def measure(repeats: int, kinds: Sequence[str], bounds: Bounds) -> None:
    """Print the figures."""
    async with Agent(SleepingModel(0.0), name="warm-up") as agent:
        await agent.arun("Hello.")  # starts Ray and the helpers
    settle_memory()  # as an agent's actor does
    port = Port(
        [
            Tool(_doubles.nothing),
            Tool(_doubles.nothing_plain),
            Tool(_doubles.wait_a_bit),
            Tool(_doubles.block_a_bit),
            Tool(_doubles.count_to, kind="cpu"),
        ]
    )
    for kind in kinds:
        if kind == "run":
            await whole_runs(repeats, bounds)
        else:
            await KINDS[kind](port, repeats, bounds)
    await port.close()


KINDS: dict[str, Callable[[Port, int, Bounds], Awaitable[None]]] = {
    "short": short_calls,
    "waiting": waiting_calls,
    "cpu": cpu_calls,
    "lone": lone_call,
}


def main() -> None:
    """Print the figures; exit with 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", default=[*KINDS, "run"])
    given = parser.parse_args()
    os.environ.setdefault("TULIP_QUIET", "1")
    os.environ.pop("RAY_ADDRESS", None)
    bounds = Bounds()
    asyncio.run(measure(given.repeats, given.kinds, bounds))
    bounds.exit()


if __name__ == "__main__":
    main()
