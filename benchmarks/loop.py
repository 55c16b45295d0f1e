"""`scripts/bench loop`: what a turn of the loop costs, in time and in memory.

Inline runtime, a model that costs nothing and is O(1) at any length, one trivial tool whose
arguments are new in each turn. Measured: us per turn at 50 and at 10,000 turns; within the run of
10,000, turns 1,000-2,000 against the last 1,000, from one model call to the next; the memory that
a run's state holds per turn.

Baseline: a bare asyncio loop with the same model and tool, a list of messages, and events that are
plain dataclasses put into a list. Beside it, in processes of their own, the same work on other
libraries, as far as they are installed (extra `bench`: `scripts/bench --with-peers loop`).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import inspect
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from benchmarks._bounds import Bounds
from benchmarks._doubles import AddingModel, add_one, add_one_plain
from benchmarks._peers import side_by_side
from tulip_actors import Agent, AgentResult, tool
from tulip_actors.core.frozen import Json
from tulip_actors.core.messages import Message, ToolCall, ToolResult

SHORT, LONG = 50, 10_000
STATE_SIZES = (1_000, 5_000, LONG)
PEER_TURNS = (SHORT, 400)
US_PER_TURN_MAX = 200.0
GROWTH_MAX, GROWTH_MAX_US = 1.15, 30.0
BYTES_PER_TURN_MAX = 2_048
FLAT_MAX = 1.1
PEERS = ("langgraph", "langchain", "openai_agents", "pydantic_ai", "tulip_agents")

Body = Callable[[int], int | Awaitable[int]]


# the baseline


@dataclass(frozen=True, slots=True)
class Thought:
    """The model answered."""

    turn: int
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """A call begins."""

    call_id: str
    arguments: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Completed:
    """A call has its result."""

    call_id: str
    result: str
    duration_ms: float


async def bare_loop(model: AddingModel, body: Body) -> list[Thought | Started | Completed]:
    """What anybody would write first: ask, call, append. Returns the events."""
    messages = [Message.user("Count.")]
    events: list[Thought | Started | Completed] = []
    while True:
        message = (await model.complete(messages)).message
        messages.append(message)
        events.append(Thought(len(messages) // 2, message.tool_calls))
        if not message.tool_calls:
            return events
        for call in message.tool_calls:
            events.append(Started(call.id, call.arguments))
            began_s = time.perf_counter()
            result = str(await asyncio.ensure_future(_called(body, call.arguments["n"])))
            took_ms = (time.perf_counter() - began_s) * 1000
            events.append(Completed(call.id, result, took_ms))
            messages.append(Message.tool(ToolResult(call.id, call.name, result)))


async def _called(body: Body, n: Json) -> int:
    assert isinstance(n, int)
    answer = body(n) if inspect.iscoroutinefunction(body) else await asyncio.to_thread(body, n)
    return await answer if inspect.isawaitable(answer) else answer


# what is measured


@dataclass(frozen=True, slots=True)
class Timed:
    """A run: how long it took, when its model was asked, and what it gave."""

    us_per_turn: float
    asked_at_ns: Sequence[int]
    result: AgentResult | None = None

    def between_us(self, first: int, last: int) -> float:
        """The median time from one model call to the next, in turns `first` to `last`."""
        gaps_ns = [b - a for a, b in pairwise(self.asked_at_ns[first : last + 1])]
        return statistics.median(gaps_ns) / 1000


async def our_run(turns: int, body: Body) -> Timed:
    """A run of an agent."""
    model = AddingModel(turns)
    tools = [tool(name="add_one")(body)]
    agent = Agent(model, tools, runtime="inline", max_iterations=turns + 1)
    began_ns = time.perf_counter_ns()
    result = await agent.arun("Count.")
    took_ns = time.perf_counter_ns() - began_ns
    await agent.stop()
    if result.iterations != turns or not result.success:
        raise SystemExit(f"the run is not what it should be: {result!r}")
    return Timed(took_ns / 1000 / turns, model.asked_at_ns, result)


async def bare_run(turns: int, body: Body) -> Timed:
    """A run of the baseline."""
    model = AddingModel(turns)
    began_ns = time.perf_counter_ns()
    await bare_loop(model, body)
    return Timed((time.perf_counter_ns() - began_ns) / 1000 / turns, model.asked_at_ns)


def size_bytes(root: object) -> int:
    """What an object holds, each thing in it counted once; classes and code belong to nobody."""
    seen: set[int] = set()
    total, rest = 0, [root]
    while rest:
        one = rest.pop()
        if id(one) in seen or isinstance(one, _SHARED):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        rest.extend(gc.get_referents(one))
    return total


_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


# the report


async def short_runs(runs: int, body: Body, bounds: Bounds) -> None:
    """Many short runs, ours and the baseline's in turn."""
    pairs: list[tuple[float, float]] = []
    for _ in range(runs + 1):
        ours_us = (await our_run(SHORT, body)).us_per_turn
        pairs.append((ours_us, (await bare_run(SHORT, body)).us_per_turn))
    ours, bare = map(statistics.median, zip(*pairs[1:], strict=True))  # the first warms up
    bounds.at_most(f"us per turn, {SHORT} turns", ours, US_PER_TURN_MAX)
    _compare(bare, ours, f"median of {runs}")


async def long_run(body: Body, bounds: Bounds) -> AgentResult | None:
    """One long run each; ours must not become slower within it. Returns ours."""
    bare = await bare_run(LONG, body)
    ours = await our_run(LONG, body)
    bounds.at_most(f"us per turn, {LONG:,} turns", ours.us_per_turn, US_PER_TURN_MAX)
    _compare(bare.us_per_turn, ours.us_per_turn, "one run")
    early, late = ours.between_us(1_000, 2_000), ours.between_us(LONG - 1_001, LONG - 1)
    bound_us = max(GROWTH_MAX * early, early + GROWTH_MAX_US)
    print(f"  turns 1,000-2,000, median{early:26.1f}")
    bounds.at_most("  the last 1,000, median", late, bound_us)
    print(f"  ratio{late / early:45.2f} x")
    return ours.result


async def state_sizes(longest: AgentResult | None, body: Body, bounds: Bounds) -> None:
    """What the state holds per turn, after runs of several lengths."""
    found: list[float] = []
    for turns in STATE_SIZES:
        result = longest if turns == LONG else (await our_run(turns, body)).result
        assert result is not None
        found.append(size_bytes(result.state) / turns)
        bounds.below(f"bytes of state per turn, {turns:,} turns", found[-1], BYTES_PER_TURN_MAX)
    bounds.at_most("  largest by smallest", max(found) / min(found), FLAT_MAX)


def _compare(bare: float, ours: float, how: str) -> None:
    print(f"  bare asyncio loop{bare:33.1f}    ({how})")
    print(f"  ratio{ours / bare:45.2f} x")


async def measure(runs: int, body: Body, bounds: Bounds) -> None:
    """Print our figures."""
    await short_runs(runs, body, bounds)
    await state_sizes(await long_run(body, bounds), body, bounds)


def main() -> None:
    """Print the figures; exit with 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help=f"runs of {SHORT} turns")
    parser.add_argument(
        "--peer-runs", type=int, default=16, help=f"runs of {SHORT} turns of a peer"
    )
    parser.add_argument("--no-peers", action="store_true", help="leave out the other libraries")
    parser.add_argument(
        "--plain-tool", action="store_true", help="a tool that is not async; without bounds, peers"
    )
    given = parser.parse_args()
    bounds = Bounds(held=not given.plain_tool)
    asyncio.run(measure(given.runs, add_one_plain if given.plain_tool else add_one, bounds))
    if not given.no_peers and not given.plain_tool:
        work = {turns: max(1, given.peer_runs * SHORT // turns) for turns in PEER_TURNS}
        side_by_side(PEERS, "run", work)
    bounds.exit()


if __name__ == "__main__":
    main()
