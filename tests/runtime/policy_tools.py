"""Tools that go wrong, and tools with a policy.

Each body leaves lines in a log: its process and when it began, and the same with when it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.runtime.support import script, within
from tulip_actors import Agent, ToolContext, ToolExecution, tool

FOREVER_S = 999
NEVER_S = 9e9
"""When a body has ended that has not."""


class Body(NamedTuple):
    """One execution of a body, from its log. `ended_at_s` is `NEVER_S` for one that did not end."""

    pid: int
    began_at_s: float
    ended_at_s: float


@contextlib.contextmanager
def logged(log: str) -> Iterator[None]:
    """Log a body."""
    mark = f"{os.getpid()} {time.time()}"
    _write(log, mark)
    try:
        yield
    finally:
        _write(log, f"{mark} {time.time()}")


def _write(log: str, line: str) -> None:
    with Path(log).open("a") as file:
        file.write(line + "\n")


def bodies(log: Path) -> list[Body]:
    """The executions in a log, in the order of their beginnings."""
    found: dict[str, Body] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        pid, began, *ended = line.split()
        found[f"{pid} {began}"] = Body(
            int(pid), float(began), float(ended[0]) if ended else NEVER_S
        )
    return list(found.values())


def most_at_once(executions: list[Body]) -> int:
    """How many bodies ran at the same time."""
    changes = [(one.began_at_s, 1) for one in executions]
    changes += [(one.ended_at_s, -1) for one in executions]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


async def executions(agent: Agent, *calls: tuple[str, dict[str, Any]]) -> Sequence[ToolExecution]:
    """What became of the calls of one turn."""
    return (await within(agent.arun(script(list(calls), "done")), 60)).tool_executions


def tries(log: str) -> int:
    """How often bodies began."""
    return len(bodies(Path(log)))


# that fail


@tool(retries=2)
def flaky(log: str, good_from: int, ctx: ToolContext) -> str:
    """Raise until the so-and-so-manyth time."""
    with logged(log):
        if tries(log) < good_from:
            raise ValueError(f"try {tries(log)}")
        return f"attempt {ctx.attempt}, key {ctx.idempotency_key}"


@tool(retries=2)
async def aflaky(log: str, good_from: int, ctx: ToolContext) -> str:
    """The same as a coroutine."""
    with logged(log):
        if tries(log) < good_from:
            raise ValueError(f"try {tries(log)}")
        return f"attempt {ctx.attempt}, key {ctx.idempotency_key}"


@tool
def dies_once(log: str) -> str:
    """Take the process along, the first time."""
    _write(log, f"{os.getpid()} {time.time()}")
    if tries(log) == 1:
        os._exit(1)
    return "lived"


@tool(idempotent=True)
async def dies_once_with_key(log: str, ctx: ToolContext) -> str:
    """The same for a tool that can pass its key on."""
    _write(log, f"{os.getpid()} {time.time()}")
    if tries(log) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"lived, attempt {ctx.attempt}"


@tool(on_unknown="retry")
def always_dies(log: str) -> str:
    """Take every process along."""
    _write(log, f"{os.getpid()} {time.time()}")
    os._exit(1)


# that take long


@tool(timeout_s=1)
def sleeps_on(log: str) -> str:
    """Sleep in Python."""
    with logged(log):
        time.sleep(FOREVER_S)
        return "never"


@tool(timeout_s=1)
def blocks_in_c(log: str) -> str:
    """Sleep in C, without the interpreter's lock."""
    with logged(log):
        ctypes.CDLL(None).sleep(FOREVER_S)
        return "never"


@tool(timeout_s=1)
def holds_the_lock(log: str) -> str:
    """Sleep in C with the interpreter's lock: nothing else in the process goes on."""
    with logged(log):
        ctypes.PyDLL(None).sleep(FOREVER_S)
        return "never"


@tool(timeout_s=1)
async def blocks_its_loop(log: str) -> str:
    """A coroutine that does not await."""
    with logged(log):
        time.sleep(FOREVER_S)  # noqa: ASYNC251  # that is what it is for
        return "never"


@tool(timeout_s=0.3)
async def cleans_up(log: str) -> str:
    """Wait, and clean up when it is told to end."""
    with logged(log):
        await asyncio.sleep(FOREVER_S)
        return "never"


@tool(timeout_s=0.3, cancel_grace_s=0.3)
async def will_not_end(log: str) -> str:
    """Wait, and refuse to end for a long time."""
    with logged(log):
        ends_at_s = time.time() + 3
        while (left_s := ends_at_s - time.time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left_s)
        return "at last"


@tool
def looks(log: str, ctx: ToolContext) -> str:
    """A plain body that looks whether it should end."""
    with logged(log):
        while not ctx.cancelled():
            time.sleep(0.01)
        return "stopped"


@tool
def rests(log: str, seconds: float) -> str:
    """Sleep for a moment."""
    with logged(log):
        time.sleep(seconds)
        return "rested"


@tool
async def arests(log: str, seconds: float) -> str:
    """The same as a coroutine."""
    with logged(log):
        await asyncio.sleep(seconds)
        return "rested"


@tool(max_concurrency=2)
async def narrow(log: str) -> str:
    """At most two at a time."""
    with logged(log):
        await asyncio.sleep(0.05)
        return "through"


@tool(max_concurrency=1)
async def nested(log: str, depth: int, ctx: ToolContext) -> str:
    """Calls itself; it could never end if it kept its place while it waits."""
    with logged(log):
        return await ctx.call(nested, {"log": log, "depth": depth - 1}) if depth else "ground"  # type: ignore[return-value]


# that use what they are given


@tool(timeout_s=60)
async def tells(ctx: ToolContext) -> float:
    """Say how far it is, and when its time is up."""
    ctx.progress(0.5, "half way")
    assert ctx.deadline_s is not None
    return ctx.deadline_s - time.time()


@tool(kind="cpu")
def computes(log: str) -> int:
    """A process and a CPU of its own."""
    with logged(log):
        time.sleep(0.2)
        return os.getpid()


@tool(memory=50_000_000)
def eats(megabytes: int) -> int:
    """Use memory."""
    eaten = []
    for _ in range(megabytes):
        eaten.append(bytearray(b"x") * 1_000_000)
        time.sleep(0.002)
    return len(eaten)


@tool(resources={"unobtainium": 1})
def needs_what_nobody_has() -> None:
    """Cannot be placed."""


@tool(idempotent=True)
async def pays(log: str, amount: int) -> str:
    """Pay once."""
    with logged(log):
        await asyncio.sleep(0.05)
        return f"paid {amount}"


@tool
async def pays_often(log: str, times: int, ctx: ToolContext) -> list[object]:
    """Ask for the same payment again and again."""
    return await ctx.map(pays, [{"log": log, "amount": 1}] * times)


@tool
async def maps_lazily(log: str, items: int, wide: int, ctx: ToolContext) -> list[object]:
    """Map over an iterator with a window; values as they come."""
    taken = 0

    def all_items() -> Iterator[dict[str, object]]:
        nonlocal taken
        for _ in range(items):
            taken += 1
            yield {"log": log, "seconds": 0.01}

    most_ahead = ended = 0
    async for _ in ctx.map_as_completed(arests, all_items(), max_in_flight=wide):
        ended += 1
        most_ahead = max(most_ahead, taken - ended + 1)
    return [ended, most_ahead]


@tool
async def leaves_a_map_early(log: str, ctx: ToolContext) -> str:
    """Take the first value of a map, and no more."""
    items = [{"log": log, "seconds": 0.01}, {"log": log, "seconds": FOREVER_S}]
    entries = ctx.map_as_completed(arests, items)
    async for index, value in entries:
        await entries.aclose()  # type: ignore[attr-defined]  # it is an async generator
        return f"{index}: {value}"
    return "nothing"


@tool(max_result_chars=None)
async def gives_a_megabyte(n: int) -> str:
    """Return a long text."""
    return f"{n:07d}" * 150_000


@tool
async def maps_over_megabytes(items: int, ctx: ToolContext) -> int:
    """Take long texts from other calls, and let go of them."""
    total = 0
    async for _, value in ctx.map_as_completed(gives_a_megabyte, range(items), max_in_flight=50):
        total += len(str(value))
    return total


class Spoiled:
    """A value that cannot be taken apart."""

    def __reduce__(self) -> tuple[object, ...]:
        raise ValueError("it fell apart")


@tool
def spoils() -> object:
    """Return what cannot travel."""
    return Spoiled()


@tool
async def spoils_as_coroutine() -> object:
    """The same as a coroutine."""
    return Spoiled()


@tool
async def takes_spoiled(ctx: ToolContext) -> list[str]:
    """Ask other calls for it."""
    plain = await ctx.map(spoils, [{}], return_exceptions=True)
    other = await ctx.map(spoils_as_coroutine, [{}], return_exceptions=True)
    return [type(value).__name__ for value in (*plain, *other)]


@tool(num_cpus=0.5)
async def cleans_up_alone(log: str) -> str:
    """A coroutine with a process of its own that waits, and cleans up."""
    with logged(log):
        await asyncio.sleep(FOREVER_S)
        return "never"


POLICY_TOOLS = [
    spoils,
    spoils_as_coroutine,
    takes_spoiled,
    cleans_up_alone,
    gives_a_megabyte,
    maps_over_megabytes,
    flaky,
    aflaky,
    dies_once,
    dies_once_with_key,
    always_dies,
    sleeps_on,
    blocks_in_c,
    holds_the_lock,
    blocks_its_loop,
    cleans_up,
    will_not_end,
    looks,
    rests,
    arests,
    narrow,
    nested,
    tells,
    computes,
    eats,
    needs_what_nobody_has,
    pays,
    pays_often,
    maps_lazily,
    leaves_a_map_early,
]
