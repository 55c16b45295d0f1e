"""The executor of two: which call goes where, and that nothing of either is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from tulip_actors import ToolContext, tool
from tulip_actors.core.calls import (
    CallFinished,
    CallKey,
    CallScope,
    CallStatus,
    CallSubmitted,
    ToolOutcome,
    ToolRequest,
    ToolUpdate,
)
from tulip_actors.host.inline_executor import InlineExecutor
from tulip_actors.host.split_executor import SplitExecutor

SCOPE = CallScope("run_1", "thread", "agent", "agent_1")
HERE, THERE = CallKey("run_1", 0, 0), CallKey("run_1", 0, 1)


@tool(inline=True)
def thread_name() -> str:
    """Tell where the body runs."""
    return threading.current_thread().name


@tool(inline=True)
async def waits_for_ever() -> None:
    """Wait."""
    await asyncio.Event().wait()


@tool
def elsewhere() -> str:
    """What a task would do."""
    return threading.current_thread().name


@tool(inline=True)
async def calls_elsewhere(ctx: ToolContext) -> object:
    """Call a tool that is not inline."""
    return await ctx.call(elsewhere)


TOOLS = {one.name: one for one in (thread_name, waits_for_ever, elsewhere, calls_elsewhere)}


def request(name: str, key: CallKey) -> ToolRequest:
    return ToolRequest(key, name, "call", {}, SCOPE, "tools", TOOLS[name].policy)


class Tasks:
    """Stands for the executor that runs calls elsewhere; the test says how they end."""

    def __init__(self) -> None:
        self.submitted: list[CallKey] = []
        self.adopted: list[tuple[CallKey, str]] = []
        self.cancelled: list[CallKey] = []
        self.released: list[CallKey] = []
        self.asked: list[CallKey] = []
        self.told: asyncio.Queue[ToolUpdate | Exception] = asyncio.Queue()
        self.closed = False
        self.queued = 3

    async def incarnation(self) -> str:
        return "tasks"

    def submit(self, requests: Sequence[ToolRequest]) -> None:
        self.submitted += [one.key for one in requests]

    def adopt(self, requests: Sequence[ToolRequest], incarnation: str) -> None:
        self.adopted += [(one.key, incarnation) for one in requests]

    async def updates(self) -> AsyncIterator[Sequence[ToolUpdate]]:
        while True:
            update = await self.told.get()
            if isinstance(update, Exception):
                raise update
            yield [update]

    async def status(self, keys: Sequence[CallKey]) -> dict[CallKey, CallStatus]:
        self.asked += keys
        return dict.fromkeys(keys, CallStatus.QUEUED)

    async def cancel(self, keys: Sequence[CallKey]) -> None:
        self.cancelled += keys

    def release(self, keys: Sequence[CallKey]) -> None:
        self.released += keys

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
async def tasks() -> Tasks:
    return Tasks()


@pytest.fixture
async def split(tasks: Tasks) -> AsyncIterator[SplitExecutor]:
    made = SplitExecutor(InlineExecutor(lambda toolset: TOOLS, "node"), tasks)
    yield made
    await made.close()


async def ended(split: SplitExecutor, count: int) -> list[ToolUpdate]:
    """Everything that is told up to the `count`-th end of a call."""
    told: list[ToolUpdate] = []
    async with asyncio.timeout(10):
        async for batch in split.updates():
            told += batch
            if sum(isinstance(update, CallFinished) for update in told) == count:
                return told
    raise AssertionError("the updates ended")


async def test_inline_calls_run_here_and_all_others_elsewhere(
    split: SplitExecutor, tasks: Tasks
) -> None:
    split.submit([request("elsewhere", THERE), request("thread_name", HERE)])
    assert tasks.submitted == [THERE]
    tasks.told.put_nowait(CallFinished(THERE, ToolOutcome(result="from a task")))
    outcomes = {u.key: u.outcome for u in await ended(split, 2) if isinstance(u, CallFinished)}
    assert outcomes[THERE].result == "from a task"
    assert outcomes[HERE].result is not None


async def test_f43_a_plain_inline_body_runs_in_a_thread_and_never_on_the_loop(
    split: SplitExecutor,
) -> None:
    split.submit([request("thread_name", HERE)])
    [finished] = [u for u in await ended(split, 1) if isinstance(u, CallFinished)]
    assert finished.outcome.result != threading.current_thread().name


async def test_what_an_inline_body_calls_runs_here_and_is_told(
    split: SplitExecutor, tasks: Tasks
) -> None:
    split.submit([request("calls_elsewhere", HERE)])
    told = await ended(split, 2)
    assert [u.key for u in told if isinstance(u, CallSubmitted)] == [HERE.child(0)]
    assert [u.key for u in told if isinstance(u, CallFinished)] == [HERE.child(0), HERE]
    assert tasks.submitted == []
    await split.status([HERE.child(0)])
    assert tasks.asked == [], "the others have never heard of it"


async def test_cancel_status_and_release_reach_the_one_that_runs_the_call(
    split: SplitExecutor, tasks: Tasks
) -> None:
    split.submit([request("waits_for_ever", HERE), request("elsewhere", THERE)])
    statuses = await split.status([HERE, THERE])
    assert statuses == {HERE: CallStatus.RUNNING, THERE: CallStatus.QUEUED}
    await split.cancel([HERE, THERE])
    [finished] = [u for u in await ended(split, 1) if isinstance(u, CallFinished)]
    assert finished.outcome.error == "cancelled"
    split.release([HERE, THERE])
    assert tasks.asked == tasks.cancelled == tasks.released == [THERE]
    assert (await split.status([HERE]))[HERE] is CallStatus.QUEUED, "it is no longer known here"


async def test_the_name_of_its_memory_is_new_when_that_of_either_is(tasks: Tasks) -> None:
    names = set()
    for _ in range(2):  # as after the death of the agent's process
        made = SplitExecutor(InlineExecutor(lambda toolset: TOOLS, "node"), tasks)
        names.add(await made.incarnation())
    assert len(names) == 2
    assert all("tasks" in name for name in names)


async def test_queued_calls_of_both_are_counted(tasks: Tasks) -> None:
    one_at_a_time = InlineExecutor(lambda toolset: TOOLS, "node", 1)
    split = SplitExecutor(one_at_a_time, tasks)
    split.submit([request("waits_for_ever", HERE), request("thread_name", HERE._replace(slot=2))])
    assert split.queued == 1 + tasks.queued
    await split.close()


async def test_what_the_others_raise_is_raised_where_the_updates_are_read(
    split: SplitExecutor, tasks: Tasks
) -> None:
    tasks.told.put_nowait(RuntimeError("gone"))
    with pytest.raises(RuntimeError, match="gone"):
        await ended(split, 1)


async def test_closing_it_closes_both_and_ends_the_updates(tasks: Tasks) -> None:
    split = SplitExecutor(InlineExecutor(lambda toolset: TOOLS, "node"), tasks)
    reading = asyncio.ensure_future(_read(split))
    split.submit([request("waits_for_ever", HERE)])
    await split.close()
    await asyncio.wait_for(reading, 10)
    assert tasks.closed


async def _read(split: SplitExecutor) -> None:
    async for _ in split.updates():
        pass
