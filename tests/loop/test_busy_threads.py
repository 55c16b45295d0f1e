"""C12 with `on_busy="wait"`: runs of one thread, one after the other, on both runtimes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.loop.support import TOOLS, followed, inline, mark, marks, performer, script
from tests.runtime.support import eventually, exists, within
from tulip_actors import (
    Agent,
    AgentResult,
    ConfigError,
    Message,
    Role,
    RunCancelled,
    RunHandle,
    TerminateEvent,
    ThreadBusy,
    interrupt,
    tool,
)
from tulip_actors.core.defaults import SystemClock
from tulip_actors.errors import InterruptNotPending
from tulip_actors.memory.backends import MemoryCheckpointer
from tulip_actors.testing import FunctionModel


@tool
async def holds(path: str) -> str:
    """Leave a mark, then wait until the file `path.go` is there."""
    mark(path)
    await eventually(lambda: exists(f"{path}.go"), "the test lets go")
    return "free"


@tool
async def asks(question: str) -> str:
    """Ask a human."""
    return str(interrupt(question))


@pytest.fixture
async def waiting(runtime: str) -> AsyncIterator[Agent]:
    """An agent whose runs wait for their threads."""
    tools = [*TOOLS, holds, asks]
    async with Agent(performer(), tools, name="patient", runtime=runtime, on_busy="wait") as made:
        yield made


def let_go(path: str) -> None:
    Path(f"{path}.go").touch()


async def holding(agent: Agent, path: str, thread: str) -> RunHandle[AgentResult]:
    """A run that holds the thread until `let_go(path)`."""
    handle = agent.start(script([["holds", {"path": path}]], "first"), thread_id=thread)
    await eventually(lambda: marks(path) == 1, "the first run holds the thread")
    return handle


async def active(agent: Agent, number: int) -> None:
    """Wait until the host has so many runs, waiting ones included."""

    async def holds_so_many() -> bool:
        return (await agent.observe()).active_runs == number

    await eventually(holds_so_many, f"{number} active runs")


async def cancelled(handle: RunHandle[AgentResult]) -> None:
    """The run ended as one that was cancelled before it began."""
    events = [event async for event in handle.events()]
    assert [type(event) for event in events] == [TerminateEvent]
    assert events[0].stop_reason == "cancelled"  # type: ignore[attr-defined]
    with pytest.raises(RunCancelled):
        await within(handle.result())


def said(messages: Sequence[Message]) -> list[str]:
    return [message.content for message in messages if message.role is Role.ASSISTANT]


async def test_c12_a_second_run_waits_and_goes_on_with_the_conversation(
    waiting: Agent, thread: str, path: str
) -> None:
    first = await holding(waiting, path, thread)
    second = waiting.start(script("second"), thread_id=thread)
    await active(waiting, 2)
    let_go(path)
    run = await followed(second)
    assert (await first.result()).message == "first"
    assert said(run.ok.messages) == ["", "first", "second"]


async def test_c12_waiting_runs_get_the_thread_in_the_order_in_which_they_were_started(
    waiting: Agent, thread: str, path: str
) -> None:
    await holding(waiting, path, thread)
    handles = []
    for number in range(4):
        handles.append(waiting.start(script(f"run {number}"), thread_id=thread))
        await active(waiting, number + 2)
    let_go(path)
    runs = [await followed(handle) for handle in handles]
    assert said(runs[-1].ok.messages) == ["", "first", "run 0", "run 1", "run 2", "run 3"]


async def test_c12_a_waiting_run_ends_when_it_is_cancelled(
    waiting: Agent, thread: str, path: str
) -> None:
    first = await holding(waiting, path, thread)
    by_flag = waiting.start(script("by flag"), thread_id=thread)
    at_once = waiting.start(script("at once"), thread_id=thread)
    last = waiting.start(script("last"), thread_id=thread)
    await active(waiting, 4)
    await waiting.acancel(run_id=by_flag.run_id)
    at_once.cancel()
    await within(cancelled(by_flag))
    await within(cancelled(at_once))
    assert not first.done
    let_go(path)
    assert said((await followed(last)).ok.messages) == ["", "first", "last"]


async def test_c12_a_cancelled_task_stops_waiting(waiting: Agent, thread: str, path: str) -> None:
    await holding(waiting, path, thread)
    task = asyncio.ensure_future(waiting.arun(script("second"), thread_id=thread))
    await active(waiting, 2)
    task.cancel()
    await active(waiting, 1)
    let_go(path)
    await active(waiting, 0)


async def test_c12_a_stopping_host_ends_the_wait_and_drains_the_run_that_holds_the_thread(
    waiting: Agent, thread: str, path: str
) -> None:
    first = await holding(waiting, path, thread)
    second = waiting.start(script("second"), thread_id=thread)
    await active(waiting, 2)
    stopping = asyncio.ensure_future(waiting.stop(drain_s=30))
    await within(cancelled(second))
    let_go(path)
    await within(stopping)
    assert (await within(first.result())).message == "first"


async def test_c12_a_run_waits_for_a_thread_that_another_agent_holds(
    waiting: Agent, runtime: str, thread: str, path: str
) -> None:
    async with Agent(performer(), [holds], name="other", runtime=runtime) as other:
        await holding(other, path, thread)
        handle = waiting.start(script("second"), thread_id=thread)
        await active(waiting, 1)
        refused = await followed(other.start(script("refused"), thread_id=thread))
        assert isinstance(refused.failure, ThreadBusy)
        let_go(path)
        run = await followed(handle)
    assert said(run.ok.messages) == ["", "first", "second"]


async def test_c12_a_run_that_waits_for_another_agent_can_be_cancelled(
    waiting: Agent, runtime: str, thread: str, path: str
) -> None:
    async with Agent(performer(), [holds], name="other", runtime=runtime) as other:
        first = await holding(other, path, thread)
        handle = waiting.start(script("second"), thread_id=thread)
        await active(waiting, 1)
        handle.cancel()
        await within(cancelled(handle))
        assert not first.done
        let_go(path)
        await within(first.result())


async def test_c12_an_answer_waits_too(runtime: str) -> None:
    kept = MemoryCheckpointer()
    agent = Agent(performer(), [asks], runtime=runtime, on_busy="wait", checkpointer=kept)
    async with agent:
        paused = await agent.arun(script([["asks", {"question": "ok?"}]], "done"), thread_id="t")
        epoch = await kept.store.acquire("t", "somebody", 60)
        question = paused.interrupts[0].interrupt_id
        answer = asyncio.ensure_future(agent.aresume("yes", question))
        await active(agent, 1)
        await kept.store.release("t", epoch)
        result = await within(answer)
        assert (result.stop_reason, result.tool_executions[-1].result) == ("complete", "yes")
        with pytest.raises(InterruptNotPending):
            await agent.aresume("again", question)
        await active(agent, 0)


async def test_c12_an_answer_that_waited_for_a_later_run_is_refused(
    waiting: Agent, thread: str, path: str
) -> None:
    """The later run has closed the question, and the conversation has gone on."""
    paused = await waiting.arun(script([["asks", {"question": "ok?"}]], "done"), thread_id=thread)
    await holding(waiting, path, thread)
    answer = asyncio.ensure_future(waiting.aresume("yes", paused.interrupts[0].interrupt_id))
    let_go(path)
    with pytest.raises(InterruptNotPending, match="has continued its thread"):
        await within(answer)
    await active(waiting, 0)


@pytest.mark.parametrize("on_busy", ["refuse", "wait"])
async def test_c12_an_answer_that_did_not_get_the_thread_leaves_the_question_open(
    runtime: str, on_busy: Any
) -> None:
    kept = MemoryCheckpointer()
    agent = Agent(performer(), [asks], runtime=runtime, on_busy=on_busy, checkpointer=kept)
    async with agent:
        prompt = script([["asks", {"question": "ok?"}]], "done")
        paused = agent.start(prompt, thread_id="t")
        before = [event async for event in paused.events()]
        question = (await within(paused.result())).interrupts[0].interrupt_id
        await active(agent, 0)
        epoch = await kept.store.acquire("t", "somebody", 60)
        answer = asyncio.ensure_future(agent.aresume("no", question))
        if on_busy == "wait":
            await active(agent, 1)
            await agent.acancel(run_id=paused.run_id)
        with pytest.raises(RunCancelled if on_busy == "wait" else ThreadBusy):
            await within(answer)
        await kept.store.release("t", epoch)
        events = [event async for event in agent.resume("yes", question)]
        said = [event.source.seq for event in [*before, *events] if event.source]
        assert said == list(range(len(said)))
        assert events[-1].stop_reason == "complete"  # type: ignore[attr-defined]


# inline: what needs a clock or a look inside


async def test_f16_an_answer_cancelled_before_it_is_in_line_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = MemoryCheckpointer()
    made = inline(model=performer(), tools=[asks], on_busy="wait", checkpointer=kept)
    async with made as agent:
        prompt = script([["asks", {"question": "ok?"}]], "done")
        paused = await agent.arun(prompt, thread_id="t")
        looked_up, go_on = asyncio.Event(), asyncio.Event()
        find = kept.store.find

        async def slow(run_id: str) -> str | None:
            looked_up.set()
            await go_on.wait()
            return await find(run_id)

        monkeypatch.setattr(kept.store, "find", slow)
        epoch = await kept.store.acquire("t", "somebody", 60)
        answer = asyncio.ensure_future(agent.aresume("no", paused.interrupts[0].interrupt_id))
        await within(looked_up.wait())
        await agent.acancel(run_id=paused.run_id)
        go_on.set()
        with pytest.raises(RunCancelled):
            await within(answer)
        await kept.store.release("t", epoch)


class Ticks(SystemClock):
    """A clock whose pauses end at once, and are kept."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        await asyncio.sleep(0)


def gated(go: asyncio.Event, **options: Any) -> Agent:
    async def answers(messages: Sequence[Message], tools: object) -> str:
        await go.wait()
        return "done"

    return inline(model=FunctionModel(answers), **options)


async def test_c12_the_pauses_before_asking_again_grow_to_a_second(
    thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Ticks()
    monkeypatch.setattr(SystemClock, "sleep", lambda self, seconds: ticks.sleep(seconds))
    go = asyncio.Event()
    first = gated(go).start("first", thread_id=thread)
    second = gated(go, on_busy="wait").start("second", thread_id=thread)
    pauses = ticks.slept_s
    await eventually(lambda: pauses.count(1.0) > 2, "the pause has grown to its limit")
    go.set()
    await within(second.result())
    assert first.done
    short = [one for one in pauses if one < 1.0]
    assert short[0] == 0.02
    assert short == sorted(short)


async def test_c12_the_time_a_run_waited_counts_for_no_budget(
    thread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda self: now[0])
    go = asyncio.Event()
    agent = gated(go, on_busy="wait", time_budget_seconds=50)
    agent.start("first", thread_id=thread)
    second = agent.start("second", thread_id=thread)
    await active(agent, 2)
    now[0] += 1000
    go.set()
    assert (await within(second.result())).stop_reason == "complete"


async def test_c12_fifty_runs_at_once_on_a_thread_have_it_one_after_the_other(thread: str) -> None:
    agent = inline(model=FunctionModel(lambda messages, tools: "done"), on_busy="wait")
    handles = [agent.start(str(number), thread_id=thread) for number in range(50)]
    for number in range(0, 50, 7):
        handles[number].cancel()
    kept = [number for number in range(50) if number % 7]
    results = [await within(handles[number].result()) for number in kept]
    asked = [m.content for m in results[-1].messages if m.role is Role.USER]
    assert [number for number in asked if int(number) % 7] == [str(number) for number in kept]
    await active(agent, 0)


def test_c12_another_on_busy_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"on_busy: give 'refuse' or 'wait', not 'queue'"):
        inline("x", on_busy="queue")
