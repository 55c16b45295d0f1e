"""A small `scripts/chaos`: each kind of process is killed under a few runs, and what must hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.chaos.refunds import order_for, paid
from tests.chaos.rules import of_history, of_stream
from tests.chaos.storm import Storm, cashier_agent
from tests.runtime.support import within
from tulip_actors import Agent, RunRecoveredEvent, TulipEvent
from tulip_actors.testing.faults import TARGETS, FaultPlan, Target

pytestmark = [pytest.mark.usefixtures("ray_cluster"), pytest.mark.slow]

SEED = Random().getrandbits(32)
"""Printed when a test fails; put it here to repeat what it drew."""


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    """The agent whose helpers, and itself, are killed."""
    made = cashier_agent()
    yield made
    asyncio.run(made.stop())


@pytest.mark.parametrize("target", TARGETS)
async def test_f8_f12_f18_f20_c7_c38_runs_outlive_the_death_of(
    target: Target, agent: Agent, tmp_path: Path
) -> None:
    """No refund twice and none silently, histories that a provider takes, whole streams."""
    storm = Storm(agent, tmp_path, SEED, target)
    await within(storm.warm_up(), 60)
    await within(storm.wave(4), 90)
    figures = storm.figures
    assert figures.problems == [], f"seed {SEED}\n{figures.told()}"
    assert (figures.finished, figures.untouched) == (4, 0)


async def test_c20_a_later_run_of_the_thread_is_served_what_was_paid_before_the_kill(
    agent: Agent, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    # Slow enough that the run has not ended before its process is found and killed.
    prompt = order_for("order_1", "refund_recorded", ledger, 0.3)
    plan = FaultPlan(SEED).kill("agent", at_event=6)
    first = agent.start(prompt, thread_id=f"thread of {tmp_path}")
    events = [event async for event in plan.follow(first.events(), agent.processes)]
    assert sum(isinstance(event, RunRecoveredEvent) for event in events) == 1
    result = await within(agent.arun(prompt, thread_id=f"thread of {tmp_path}"))
    assert "refunded order_1" in result.text
    assert len(paid(ledger)) == 1
    assert of_history(result.messages) == []


async def test_f17_who_comes_back_with_a_cursor_gets_the_rest_across_a_kill(
    agent: Agent, tmp_path: Path
) -> None:
    prompt = order_for("order_1", "refund_plain", tmp_path / "ledger", 0.05)
    handle = agent.start(prompt, stream_tokens=True)
    read: list[TulipEvent] = []
    async for event in handle.events():
        read.append(event)
        if len(read) == 3:
            break
    plan = FaultPlan(SEED).kill("agent", between_s=(0.0, 0.1))
    await within(plan.carry_out(agent.processes))
    attached = agent.attach(handle.run_id, handle.cursor)
    rest = [event async for event in attached.events()]
    assert of_stream([*read, *rest]) == []
    assert (await within(attached.result())).success
    assert len(paid(tmp_path / "ledger")) == 1
