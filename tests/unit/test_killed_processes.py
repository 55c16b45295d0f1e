"""F8, F12, F17, F18 and F20 without a cluster: a process is killed, another goes on with its run.

What may live here: runs of the inline runtime over stores in files, in processes that are killed
with SIGKILL, and what an agent with the same store makes of them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.chaos.refunds import TAKES_KEY, TOOLS, cashier, order_for, paid
from tests.chaos.rules import UNKNOWN, of_history, of_stream
from tulip_actors import (
    Agent,
    InterruptEvent,
    RunRecoveredEvent,
    TerminateEvent,
    TulipEvent,
    interrupt,
    tool,
)
from tulip_actors.core.runs import Answered, RunRequest, RunStarted
from tulip_actors.memory.backends import FileCheckpointer, SQLiteBackend
from tulip_actors.testing import FunctionModel, ScriptedModel, tool_call
from tulip_actors.testing.faults import FaultPlan

AT = datetime(2026, 1, 2, tzinfo=UTC)
Store: TypeAlias = FileCheckpointer | SQLiteBackend
Opens: TypeAlias = Callable[[], Store]
CHILD_LIMIT_S = 60.0


@pytest.fixture(params=[FileCheckpointer, SQLiteBackend])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Opens:
    """Opens the store of this test, as each process does for itself."""
    return partial(request.param, tmp_path / "runs.db")


def agent_on(store: Store) -> Agent:
    return Agent(FunctionModel(cashier), TOOLS, runtime="inline", checkpointer=store)


def lives_until(opens: Opens, prompt: str, at_event: int, pipe: Connection) -> None:
    """Run, tell the run's id and every cursor, and be killed at that event."""

    async def run() -> None:
        agent = agent_on(opens())
        handle = agent.start(prompt, thread_id="t", stream_tokens=True)
        pipe.send(handle.run_id)
        plan = FaultPlan(seed=0).kill("agent", at_event=at_event)
        async for _ in plan.follow(handle.events(), agent.processes):
            pipe.send(handle.cursor)

    asyncio.run(run())


def killed_in(opens: Opens, prompt: str, at_event: int) -> list[str]:
    """What a process told that was killed in the middle of a run."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=lives_until, args=(opens, prompt, at_event, theirs))
    child.start()
    theirs.close()
    told = []
    try:
        while ours.poll(CHILD_LIMIT_S):
            told.append(ours.recv())
    except EOFError:
        pass
    child.kill()
    child.join(CHILD_LIMIT_S)
    assert child.exitcode == -signal.SIGKILL
    return told


@pytest.mark.parametrize(
    ("at_event", "refund"),
    [(2, "refund_plain"), (9, "refund_plain"), (9, "refund_keyed"), (10, "refund_recorded")],
)
async def test_f8_f12_f18_f20_a_run_whose_process_was_killed_goes_on_in_another(
    opens: Opens, tmp_path: Path, at_event: int, refund: str
) -> None:
    ledger = tmp_path / "ledger"
    told = killed_in(opens, order_for("order_1", refund, ledger, 0.05), at_event)
    async with agent_on(opens()) as agent:
        handle = agent.attach(told[0])
        events: list[TulipEvent] = [event async for event in handle.events()]
        result = await handle.result()
    assert [*of_stream(events), *of_history(result.messages)] == []
    assert sum(isinstance(event, RunRecoveredEvent) for event in events) == 1
    assert result.success
    refunds = len(paid(ledger))
    if refund in TAKES_KEY:
        assert refunds == 1
    else:
        assert refunds == 1 or (refunds == 0 and UNKNOWN in result.text)


async def test_f17_who_read_a_part_before_the_kill_gets_the_rest_by_its_cursor(
    opens: Opens, tmp_path: Path
) -> None:
    prompt = order_for("order_1", "refund_keyed", tmp_path / "ledger", 0.05)
    run_id, *cursors = killed_in(opens, prompt, 6)
    async with agent_on(opens()) as agent:
        rest = [event async for event in agent.attach(run_id, cursors[-1]).events()]
        whole = [event async for event in agent.attach(run_id).events()]
    assert len(cursors) == 5
    assert rest == whole[5:]


async def test_c38_the_events_of_a_run_that_was_lost_before_its_first_begin_with_number_0(
    opens: Opens,
) -> None:
    store = opens()
    epoch = await store.acquire("t", "run_1", 60)
    request = RunRequest("run_1", "t", "hello")
    await store.append("t", epoch, [RunStarted("run_1", 0, AT, request, "agent_1")])
    async with Agent(ScriptedModel(["hi"]), runtime="inline", checkpointer=store) as agent:
        events = [event async for event in agent.attach("run_1").events()]
    assert [event.event_type for event in events] == ["run_recovered", "think", "terminate"]
    assert [event.source.seq for event in events if event.source] == [0, 1, 2]


@tool
def asks() -> str:
    """Ask a human."""
    return f"he said {interrupt('go on?')}"


async def test_c38_a_resumed_segment_that_was_lost_before_its_first_event_is_told(
    opens: Opens,
) -> None:
    """The last event that is stored is the end of the segment before."""

    def agent() -> Agent:
        model = ScriptedModel([tool_call("asks"), "done"])
        return Agent(model, [asks], runtime="inline", checkpointer=opens())

    async with agent() as one:
        handle = one.start("go", thread_id="t")
        paused = [event async for event in handle.events()]
    store = opens()
    epoch = await store.acquire("t", f"{handle.run_id}/answer_1", 60)
    question = next(event for event in paused if isinstance(event, InterruptEvent))
    seq = len(paused)
    answered = Answered(handle.run_id, seq, AT, question.interrupt_id, "yes", "answer_1")
    await store.append("t", epoch, [answered])
    await store.release("t", epoch)
    async with agent() as two:
        attached = two.attach(handle.run_id)
        events = [event async for event in attached.events()]
        assert (await attached.result()).tool_executions[0].result == "he said yes"
    assert [event.source.seq for event in events if event.source] == list(range(len(events)))
    assert isinstance(events[-1], TerminateEvent)
    assert events[: len(paused)] == paused
    assert sum(isinstance(event, TerminateEvent) for event in events[len(paused) :]) == 1
