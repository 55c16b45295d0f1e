"""C44: the stores that agents reach through an actor do what every RunStore must.

The actors' classes run here in the test's own process, behind a handle that answers as Ray's does;
one test asks the real actor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.support import eventually, play, script, within
from tulip_actors import Agent
from tulip_actors.agent.runtimes import DEFAULT_NAMESPACE
from tulip_actors.core.ports import RunStore
from tulip_actors.errors import ActorLost, ThreadForgotten
from tulip_actors.memory.backends import SQLiteBackend
from tulip_actors.runtime import services
from tulip_actors.runtime.pickling import pack
from tulip_actors.runtime.service_clients import ClusterRunStore
from tulip_actors.runtime.services import Services
from tulip_actors.runtime.spawn import store_actor, this_node_id
from tulip_actors.runtime.store_actor import StoreActor
from tulip_actors.testing import FunctionModel
from tulip_actors.testing.stores import RunStoreConformance, ended, started, step

pytestmark = pytest.mark.usefixtures("ray_cluster")


class Method:
    """A method as a Ray handle has it."""

    def __init__(self, method: Callable[..., Coroutine[Any, Any, object]]) -> None:
        self._method = method

    def remote(self, *arguments: object) -> asyncio.Future[object]:
        return asyncio.ensure_future(self._method(*arguments))


class Handle:
    """A handle on an object of this process."""

    def __init__(self, actor: object) -> None:
        self.actor = actor

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self.actor, name))


class TestServices(RunStoreConformance):
    """The memory of the services actor."""

    async def make_store(self) -> RunStore:
        self.handle = Handle(Services())
        return ClusterRunStore(lambda: self.handle)

    async def reopen(self, store: RunStore) -> RunStore:
        return ClusterRunStore(lambda: self.handle)


class TestStoreActor(RunStoreConformance):
    """A SQLite file of another node."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "runs.db"

    async def make_store(self) -> RunStore:
        return self._store()

    async def reopen(self, store: RunStore) -> RunStore:
        return self._store()

    def _store(self) -> RunStore:
        actor = StoreActor(pack(SQLiteBackend(self.path), "the checkpointer"))
        handle = Handle(actor)
        return ClusterRunStore(lambda: handle)


async def test_an_append_whose_answer_was_lost_is_taken_once(tmp_path: Path) -> None:
    """By the actor that took it, and by one that has come in its place."""
    packed = pack(SQLiteBackend(tmp_path / "runs.db"), "the checkpointer")
    handle = Handle(StoreActor(packed))
    store = ClusterRunStore(lambda: handle)
    epoch = await store.acquire("t", "r", 60)
    await store.append("t", epoch, [started("r", "t")])
    wanted = [started("r", "t"), step("r", 1)]
    for another in (False, True):
        if another:
            handle.actor = StoreActor(packed)
        again = ClusterRunStore(lambda: handle)
        again._appends["t", epoch] = 1  # as the sender knows it, who has had no answer
        await again.append("t", epoch, [step("r", 1)])
        assert await store.read("t") == wanted


async def test_a_writer_whose_store_has_lost_its_memory_is_told_so() -> None:
    handle = Handle(Services())
    store = ClusterRunStore(lambda: handle)
    epoch = await store.acquire("t", "r", 60)
    await eventually(lambda: time.time_ns() // 1_000_000 > epoch, "epochs begin with the time")
    handle.actor = Services()
    with pytest.raises(ThreadForgotten, match="lost its memory"):
        await store.append("t", epoch, [ended("r", 1)])
    again = await store.acquire("t", "r", 60, above=epoch)
    assert again > epoch


async def test_an_agent_of_another_node_reaches_the_file_through_an_actor(
    tmp_path: Path, ray_cluster: str
) -> None:
    import ray

    backend = SQLiteBackend(tmp_path / "runs.db")
    actor = store_actor(pack(backend, "it"), str(backend.path), DEFAULT_NAMESPACE, this_node_id())
    store = ClusterRunStore(lambda: actor, bundled=False)
    try:
        epoch = await within(store.acquire("t", "r", 60))
        await within(store.append("t", epoch, [started("r", "t")]))
        await within(store.release("t", epoch))
        assert await backend.read("t") == await within(store.read("t")) == [started("r", "t")]
    finally:
        ray.kill(actor)

    async def says_that_it_is_gone() -> bool:
        try:
            await store.read("t")
        except ActorLost:
            return True
        return False

    await eventually(says_that_it_is_gone, "nobody waits for an actor that was ended for good")


async def test_an_agent_on_the_node_of_the_file_opens_it_itself(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    agent = Agent(FunctionModel(play), name="filed", runtime="ray", checkpointer=url)
    result = await within(agent.arun(script("kept"), thread_id="t"))
    await agent.stop()
    later = Agent(FunctionModel(play), name="later", runtime="inline", checkpointer=url)
    state = await later.get_state("t")
    assert state is not None
    assert state.run_id == result.run_id
    await later.stop()


async def test_f14_who_watches_the_services_does_not_stay_there_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that has died would keep a connection open in them, for each time it died."""
    monkeypatch.setattr(services, "WATCH_S", 0.01)
    await within(Services().until_gone(), 5)
