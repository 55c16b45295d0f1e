"""What is done about runs that were taken up and came to nothing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from tulip_actors.core.defaults import SystemClock
from tulip_actors.core.runs import Record, Recovered, RunRequest, RunStarted, StepDone
from tulip_actors.host.probation import (
    FRUITLESS_MAX,
    PAUSE_MAX_S,
    PAUSE_S,
    Probation,
    Verdict,
    fruitless,
    verdict_on,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
STARTED: Record = RunStarted("r", 0, AT, RunRequest("r", "t", "x"), "agent_1")
RECOVERED: Record = Recovered("r", 1, AT)
STEP: Record = StepDone("r", 2, AT, "step", {})


class Paused(SystemClock):
    """A clock whose pauses end at once, and are kept."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("recovered", "verdict"),
    [
        (0, Verdict.TAKE_UP),
        (1, Verdict.TAKE_UP_ALONE),
        (FRUITLESS_MAX - 1, Verdict.TAKE_UP_ALONE),
        (FRUITLESS_MAX, Verdict.GIVE_UP),
    ],
)
def test_a_run_is_judged_by_how_often_it_came_to_nothing(recovered: int, verdict: Verdict) -> None:
    assert verdict_on([STARTED, *[RECOVERED] * recovered]) is verdict


def test_a_run_that_got_further_is_like_any_other() -> None:
    records = [STARTED, *[RECOVERED] * 4, STEP, RECOVERED, STEP]
    assert (fruitless(records), verdict_on(records)) == (0, Verdict.TAKE_UP)


async def test_runs_on_probation_are_made_one_at_a_time() -> None:
    probation = Probation(Paused())
    await probation.enter([STARTED, RECOVERED])
    second = asyncio.ensure_future(probation.enter([STARTED, RECOVERED]))
    await asyncio.sleep(0)
    assert not second.done()
    probation.leave()
    await asyncio.wait_for(second, 5)
    probation.leave()


async def test_each_comes_after_a_pause_that_doubles_up_to_a_bound() -> None:
    clock = Paused()
    probation = Probation(clock)
    for times in (1, 2, 3, 9):
        await probation.enter([STARTED, *[RECOVERED] * times])
        probation.leave()
    assert clock.slept_s == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S, PAUSE_MAX_S]


async def test_one_that_is_cancelled_in_its_pause_makes_room() -> None:
    probation = Probation(SystemClock())
    waiting = asyncio.ensure_future(probation.enter([STARTED, *[RECOVERED] * 4]))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.wait_for(probation.enter([STARTED, RECOVERED]), 5)
