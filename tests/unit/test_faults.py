"""Fault plans: what follows from a seed, whom they kill, and what a faulty store does to a run."""

from __future__ import annotations

import asyncio
import pickle
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tulip_actors import Agent, ConfigError, StoreUnavailable, TulipError, tool
from tulip_actors.core.ports import RunStore
from tulip_actors.memory.backends import FileCheckpointer
from tulip_actors.testing import ScriptedModel, tool_call
from tulip_actors.testing.faults import FaultPlan, FaultyStore
from tulip_actors.testing.stores import RunStoreConformance, step


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like one of Ray's."""
    process = subprocess.Popen(["bash", "-c", "exec -a ray::victim sleep 60"])
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"ray::"):
        time.sleep(0.01)
    yield process
    process.kill()
    process.wait()


async def counted(to: int) -> AsyncIterator[int]:
    for number in range(1, to + 1):
        yield number


def test_the_same_seed_and_calls_make_the_same_plan() -> None:
    def plan(seed: int) -> FaultPlan:
        return FaultPlan(seed).kill("agent").kill("worker", between_s=(1, 5)).store_fails()

    assert plan(7).faults == plan(7).faults
    assert plan(7).store_faults == plan(7).store_faults
    assert plan(7).faults != plan(8).faults
    assert "seed=7" in repr(plan(7))


async def test_a_process_is_killed_at_its_event_and_the_plan_says_so(
    victim: subprocess.Popen[bytes],
) -> None:
    async def processes() -> Mapping[str, Sequence[int]]:
        return {"agent": [victim.pid]}

    plan = FaultPlan(7).kill("agent", at_event=2)
    alive = [victim.poll() is None async for _ in plan.follow(counted(1), processes)]
    assert alive == [True]
    assert [number async for number in plan.follow(counted(3), processes)] == [1, 2, 3]
    assert victim.wait(10) == -signal.SIGKILL
    assert repr(plan) == f"FaultPlan(seed=7): killed agent {victim.pid} at event 2"


@pytest.fixture
def innocent() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is none of Ray's."""
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


async def test_a_process_that_is_none_of_rays_is_left_alone(
    innocent: subprocess.Popen[bytes],
) -> None:
    """A number that is a worker's on another machine may be anybody's here."""

    async def processes() -> Mapping[str, Sequence[int]]:
        return {"worker": [innocent.pid]}

    plan = FaultPlan(7).kill("worker", between_s=(0, 0)).kill("services", between_s=(0, 0))
    await plan.carry_out(processes)
    assert [one.met for one in plan.done] == [False, False]
    assert innocent.poll() is None


async def test_a_node_is_dropped_by_what_the_plan_was_given() -> None:
    dropped: list[str] = []

    async def drop() -> None:
        dropped.append("node")

    async def processes() -> Mapping[str, Sequence[int]]:
        return {}

    plan = FaultPlan(7).drop_node(drop, at_event=1)
    assert [number async for number in plan.follow(counted(2), processes)] == [1, 2]
    assert dropped == ["node"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: FaultPlan(7).kill("planet"),  # type: ignore[arg-type]
        lambda: FaultPlan(7).kill("agent", at_event=0),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        wrong()


class TestAFaultyStoreWithoutFaults(RunStoreConformance):
    """It is the store it wraps."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "threads"

    async def make_store(self) -> RunStore:
        return FaultyStore(FileCheckpointer(self.path), FaultPlan(7))

    async def reopen(self, store: RunStore) -> RunStore:
        return FaultyStore(FileCheckpointer(self.path), FaultPlan(7))


async def test_a_store_fails_once_is_away_and_comes_back(tmp_path: Path) -> None:
    plan = FaultPlan(7).store_fails(at=2).store_away(0.2, at=3)
    store = pickle.loads(pickle.dumps(FaultyStore(FileCheckpointer(tmp_path / "t"), plan)))
    epoch = await store.acquire("t", "r", 60)
    await store.append("t", epoch, [step("r", 1)])
    with pytest.raises(StoreUnavailable):
        await store.append("t", epoch, [step("r", 2)])
    with pytest.raises(StoreUnavailable):
        await store.append("t", epoch, [step("r", 3)])
    async with asyncio.timeout(10):
        while True:
            try:
                assert await store.read("t") == [step("r", 1)]
                break
            except StoreUnavailable:
                await asyncio.sleep(0.02)


@tool
def pays() -> str:
    """Pay."""
    return "paid"


@pytest.mark.parametrize("at", range(1, 4))
async def test_f9_a_store_that_fails_once_ends_the_run_with_an_error_and_keeps_the_rest(
    tmp_path: Path, at: int
) -> None:
    store = FaultyStore(FileCheckpointer(tmp_path / "t"), FaultPlan(7).store_fails(at=at))
    model = ScriptedModel([tool_call("pays"), "done"])
    async with Agent(model, [pays], runtime="inline", checkpointer=store) as agent:
        with pytest.raises(TulipError, match="the store is away"):
            await agent.arun("go", thread_id="t")
        assert (await agent.arun("again", thread_id="t")).success
