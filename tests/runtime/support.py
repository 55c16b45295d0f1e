"""What the runtime and pattern tests share: waiting, a model that plays its prompt, and tools.

Kept apart from the test files, and free of pytest, because workers import it.
"""

from __future__ import annotations

import array
import asyncio
import dataclasses
import datetime
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from tulip_actors import (
    Message,
    TerminateEvent,
    ToolCompleteEvent,
    ToolContext,
    ToolStartEvent,
    TulipEvent,
    tool,
)
from tulip_actors.core.messages import ToolCall
from tulip_actors.testing import tool_calls

T = TypeVar("T")
DEADLINE_S = 45.0
"""How long a condition may take on a busy machine before the test has failed."""
LONG_S = 300.0
"""How long the slow tools sleep: far beyond every deadline."""


async def within(work: Awaitable[T], seconds: float = DEADLINE_S) -> T:
    """The result of something that has to end by a deadline."""
    return await asyncio.wait_for(work, seconds)


async def eventually(
    holds: Callable[[], bool | Awaitable[bool]], what: str, seconds: float = DEADLINE_S
) -> None:
    """Wait until a condition holds; fail with `what` after the deadline."""
    ends_s = time.monotonic() + seconds
    while True:
        held = holds()
        if await held if isinstance(held, Awaitable) else held:
            return
        assert time.monotonic() < ends_s, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


async def collected(
    events: AsyncIterator[TulipEvent], seconds: float = DEADLINE_S
) -> list[TulipEvent]:
    """All events of a stream that has to end."""
    return await within(_all(events), seconds)


async def _all(events: AsyncIterator[TulipEvent]) -> list[TulipEvent]:
    return [event async for event in events]


def types(events: Sequence[TulipEvent]) -> list[str]:
    """Their discriminators."""
    return [event.event_type for event in events]


def assert_well_formed(events: Sequence[TulipEvent]) -> None:
    """What holds for every whole stream of one run, whatever happened in it."""
    assert [event.source.seq for event in events if event.source] == list(range(len(events)))
    assert isinstance(events[-1], TerminateEvent)
    assert sum(isinstance(event, TerminateEvent) for event in events) == 1
    assert_paired(events)


def assert_paired(events: Sequence[TulipEvent]) -> None:
    """Every tool start is followed by exactly one complete of its id, and none comes alone."""
    open_: list[tuple[str, str]] = []
    for event in events:
        run_id = event.source.run_id if event.source else ""
        if isinstance(event, ToolStartEvent):
            open_.append((run_id, event.tool_call_id))
        elif isinstance(event, ToolCompleteEvent):
            assert (run_id, event.tool_call_id) in open_, f"a complete without a start: {event!r}"
            open_.remove((run_id, event.tool_call_id))
    assert not open_, f"started and never completed: {open_}"


# a model whose script is the prompt, so that one agent (one actor) serves many tests


def script(*turns: object) -> str:
    """A prompt that `play` plays: text, or a list of calls `(tool, arguments)` per turn."""
    return json.dumps(turns)


class ModelTrouble(Exception):
    """What a scripted model raises."""


def play(messages: Sequence[Message], tools: object) -> Message | str | Exception | Awaitable[str]:
    """The turn that comes next in the script of the last prompt; `{"waits": mark}` takes long."""
    scripts = [n for n, m in enumerate(messages) if m.role == "user" and m.content[:1] == "["]
    turns = json.loads(messages[scripts[-1]].content)
    turn = turns[sum(message.role == "assistant" for message in messages[scripts[-1] :])]
    if isinstance(turn, str):
        return turn
    if isinstance(turn, dict):
        if "waits" in turn:
            return stay(turn["waits"])
        if "raise" in turn:
            return ModelTrouble(turn["raise"])
        return Message.assistant("", (ToolCall("bad", turn["tool"], malformed=turn["malformed"]),))
    return tool_calls(*[(name, arguments) for name, arguments in turn])


def write_pid(path: str) -> None:
    """Leave a mark in the file system, for the test to see; it appears whole."""
    Path(f"{path}.part").write_text(str(os.getpid()))
    Path(f"{path}.part").rename(path)


async def stay(mark: str, seconds: float = LONG_S) -> str:
    """Sleep between the marks `mark.started` and, however it ends, `mark.ended`."""
    write_pid(f"{mark}.started")
    try:
        await asyncio.sleep(seconds)
    finally:
        write_pid(f"{mark}.ended")
    return "waited"


def exists(path: str) -> bool:
    """True once a mark is there."""
    return Path(path).exists()


def was_stopped(mark: Path | str) -> bool:
    """True when a body that `waits` has left it, or its process was ended."""
    if Path(f"{mark}.ended").exists():
        return True
    pid = int(Path(f"{mark}.started").read_text())
    return pid != os.getpid() and not Path(f"/proc/{pid}").exists()


# tools


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(max_result_chars=None)
async def echo(text: str) -> str:
    """Say it back, however long it is."""
    return text


@tool
def fails(message: str) -> str:
    """Raise."""
    raise ValueError(message)


@tool
async def waits(mark: str, seconds: float = LONG_S) -> str:
    """Sleep; leave `mark.started` with the pid, and, however it ends, `mark.ended`."""
    return await stay(mark, seconds)


@tool
async def naps(seconds: float) -> str:
    """Sleep for a moment."""
    await asyncio.sleep(seconds)
    return "rested"


@tool
def blocks(seconds: float) -> str:
    """Sleep as a plain body does."""
    time.sleep(seconds)
    return "rested"


@tool
def double(x: int) -> int:
    """Twice as much."""
    return 2 * x


@tool
async def adouble(x: int) -> int:
    """Twice as much, as a coroutine."""
    return 2 * x


@tool
def count_keys(mapping: dict[str, int]) -> int:
    """How many keys."""
    return len(mapping)


@tool
async def total(n: int, ctx: ToolContext) -> int:
    """Add up the doubles of 0..n-1, each a call of its own."""
    return sum(await ctx.map(double, range(n)))  # type: ignore[arg-type]


@tool
async def atotal(n: int, ctx: ToolContext) -> int:
    """The same over a coroutine tool."""
    return sum(await ctx.map(adouble, range(n)))  # type: ignore[arg-type]


@tool
def total_sync(n: int, ctx: ToolContext) -> int:
    """The same from a plain body."""
    return sum(ctx.map_sync(double, range(n)))  # type: ignore[arg-type]


@tool
async def grand_total(rows: list[int], ctx: ToolContext) -> int:
    """A map over a tool that maps."""
    return sum(await ctx.map(total, rows))  # type: ignore[arg-type]


@tool
def grand_total_sync(rows: list[int], ctx: ToolContext) -> int:
    """The same from plain bodies."""
    return sum(ctx.map_sync(total_sync, rows))  # type: ignore[arg-type]


@tool
async def sums(pairs: list[dict[str, int]], ctx: ToolContext) -> list[object]:
    """A map whose items are mappings of arguments."""
    return await ctx.map(add, pairs)


@tool
async def keys_of(mappings: list[dict[str, int]], ctx: ToolContext) -> list[object]:
    """A map over a tool whose one argument is a mapping."""
    return await ctx.map(count_keys, mappings)


@tool
async def doubles(items: list[Any], ctx: ToolContext, keep: bool = False) -> list[str]:
    """A map over items that may not fit; with `keep`, failures stand in their item's place."""
    values = await ctx.map(double, items, return_exceptions=keep)
    return [f"{type(value).__name__}: {value}" for value in values]


@tool
async def fail_all(messages: list[str], ctx: ToolContext, keep: bool = False) -> list[str]:
    """A map over a tool that raises."""
    values = await ctx.map(fails, messages, return_exceptions=keep)
    return [f"{type(value).__name__}: {value}" for value in values]


@tool
async def one_call(x: int, ctx: ToolContext) -> object:
    """A single child call."""
    return await ctx.call(double, x)


@tool
def one_call_sync(x: int, ctx: ToolContext) -> object:
    """A single child call of a plain body."""
    return ctx.call_sync(double, {"x": x})


@tool
async def leaves_children(mark: str, ctx: ToolContext) -> str:
    """Fail while a child call is still running."""
    await asyncio.gather(ctx.call(waits, {"mark": mark}), ctx.call(fails, "first"))
    return "not reached"


@tool
async def waits_in_child(mark: str, ctx: ToolContext) -> object:
    """Wait for a child that waits."""
    return await ctx.call(waits, {"mark": mark})


@tool
def where(ctx: ToolContext) -> dict[str, object]:
    """What a body knows of its call."""
    return {
        "pid": os.getpid(),
        "run_id": ctx.run_id,
        "thread_id": ctx.thread_id,
        "agent": ctx.agent,
        "iteration": ctx.iteration,
        "call_id": ctx.tool_call_id,
        "key": ctx.idempotency_key,
        "metadata": dict(ctx.metadata),
    }


class Point(BaseModel):
    """A pydantic value."""

    x: int
    y: int


@dataclasses.dataclass
class Pair:
    """A dataclass value."""

    left: str
    right: int


@tool
def gives(kind: str) -> object:
    """Return a value of some kind."""
    values: dict[str, object] = {
        "none": None,
        "bytes": b"\xff\x00",
        "pydantic": Point(x=1, y=2),
        "dataclass": Pair("a", 1),
        "unicode": "grün 🌷 \u0000 日本",
        "large": "ä" * 1_000_000,
        "nested": {"points": [Point(x=1, y=2)], "set": {1}},
        "empty": "",
        "surrogate": "file-\udcff.txt",
        "set": {1},
        "date": datetime.date(2026, 2, 1),
        "array": array.array("d", [1, 2.5]),
    }
    return values[kind]


@tool(max_result_chars=None)
def gives_all(kind: str) -> object:
    """The same, however long it is."""
    return gives(kind)


@tool
async def types_of(kinds: list[str], ctx: ToolContext) -> list[object]:
    """What a parent gets of its children: the type of each value, and how it compares."""
    values = await ctx.map(gives, kinds)
    return [
        [type(value).__name__, value == gives(kind)]
        for kind, value in zip(kinds, values, strict=True)
    ]


@tool(max_result_chars=200)
def shouts(times: int) -> None:
    """Fail at length."""
    raise ValueError("no! " * times)


class Mute(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@tool
def dies(how: str) -> str:
    """End in an unusual way."""
    if how == "exit":
        raise SystemExit(3)
    if how == "mute":
        raise Mute
    if how == "cancelled":
        raise asyncio.CancelledError
    raise KeyboardInterrupt


@tool
def moves(origin: Point, by: Pair, scale: float = 1.0) -> Point:
    """A tool whose arguments are models and dataclasses."""
    return Point(x=int((origin.x + by.right) * scale), y=origin.y)


ALL_TOOLS = [
    add,
    echo,
    fails,
    waits,
    naps,
    blocks,
    double,
    total,
    atotal,
    total_sync,
    grand_total,
    grand_total_sync,
    sums,
    keys_of,
    doubles,
    fail_all,
    one_call,
    one_call_sync,
    leaves_children,
    waits_in_child,
    where,
    gives,
    gives_all,
    types_of,
    shouts,
    dies,
    moves,
]
