"""Calls that travel in bundles: order, errors, and a call whose maker went away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tulip_actors.errors import ActorLost, StaleEpoch
from tulip_actors.runtime.bundles import CALLS_PER_BUNDLE, BundledCalls, Call, Outcome, outcomes_of


class Target:
    """What the calls are made on."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def take(self, number: int) -> int:
        self.taken.append(number)
        return number * 2

    def refuse(self) -> None:
        raise StaleEpoch("too late")


class FakeActor:
    """As a handle looks to its caller: `actor.bundle.remote(calls)` gives something to await."""

    def __init__(self) -> None:
        self.target = Target()
        self.sizes: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.failure: Exception | None = None

    @property
    def bundle(self) -> FakeActor:
        return self

    async def remote(self, calls: Sequence[Call]) -> Sequence[Outcome]:
        self.sizes.append(len(calls))
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return outcomes_of(self.target, frozenset({"take", "refuse"}), calls)


async def test_a_lone_call_is_sent_at_once_and_alone() -> None:
    actor = FakeActor()
    calls = BundledCalls(lambda: actor, "it")
    assert await calls.call("take", 1) == 2
    assert await calls.call("take", 2) == 4
    assert actor.sizes == [1, 1]


async def test_what_comes_while_a_bundle_is_under_way_makes_the_next_in_order() -> None:
    actor = FakeActor()
    actor.open.clear()
    calls = BundledCalls(lambda: actor, "it")
    first = asyncio.ensure_future(calls.call("take", 0))
    await asyncio.sleep(0.01)
    rest = [asyncio.ensure_future(calls.call("take", n)) for n in range(1, 400)]
    await asyncio.sleep(0.01)
    actor.open.set()
    assert await asyncio.gather(first, *rest) == [n * 2 for n in range(400)]
    assert actor.target.taken == list(range(400))
    assert actor.sizes[:2] == [1, CALLS_PER_BUNDLE]
    assert len(actor.sizes) == 5


async def test_an_error_is_raised_by_its_own_call_alone() -> None:
    actor = FakeActor()
    calls = BundledCalls(lambda: actor, "it")
    before, refused, after = await asyncio.gather(
        calls.call("take", 1), calls.call("refuse"), calls.call("take", 2), return_exceptions=True
    )
    assert (before, after) == (2, 4)
    assert isinstance(refused, StaleEpoch)
    assert actor.sizes == [3]


async def test_a_lost_bundle_is_the_error_of_each_of_its_calls_and_the_next_is_sent() -> None:
    actor = FakeActor()
    actor.failure = ActorLost("it is gone")
    calls = BundledCalls(lambda: actor, "it")
    told = await asyncio.gather(
        calls.call("take", 1), calls.call("take", 2), return_exceptions=True
    )
    assert [type(one) for one in told] == [ActorLost, ActorLost]
    actor.failure = None
    assert await calls.call("take", 3) == 6


async def test_a_call_whose_maker_was_cancelled_harms_no_other() -> None:
    actor = FakeActor()
    actor.open.clear()
    calls = BundledCalls(lambda: actor, "it")
    tasks = [asyncio.ensure_future(calls.call("take", n)) for n in range(3)]
    await asyncio.sleep(0.01)
    tasks[1].cancel()
    actor.open.set()
    assert (await asyncio.gather(*tasks, return_exceptions=True))[::2] == [0, 4]
    assert tasks[1].cancelled()
    assert await calls.call("take", 5) == 10


async def test_only_what_may_be_called_is_called() -> None:
    actor = FakeActor()
    calls = BundledCalls(lambda: actor, "it")
    with pytest.raises(ValueError, match="__init__"):
        await calls.call("__init__")
