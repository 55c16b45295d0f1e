"""F8: an executor is asked for the outcome of a call until that is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tulip_actors import AgentConfig, tool
from tulip_actors.core.calls import CallKey
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.runs import Record, RunRequest, ToolFinished
from tulip_actors.host.bus import MemoryBusLog
from tulip_actors.host.feed import Feed
from tulip_actors.host.inline_executor import InlineExecutor
from tulip_actors.host.ports import HostPorts
from tulip_actors.host.run_host import RunHost
from tulip_actors.loop.agent_runnable import AgentRunnable
from tulip_actors.memory.backends.memory import MemoryCheckpointer
from tulip_actors.models.registry import get_model
from tulip_actors.testing import ScriptedModel, tool_call
from tulip_actors.testing.faults import FaultPlan, FaultyStore


@tool
async def pays() -> str:
    """Pay."""
    return "paid"


BEGAN = asyncio.Event()


@tool
async def pays_for_ever() -> str:
    """Never come to an end."""
    BEGAN.set()
    await asyncio.Event().wait()
    return "paid"


class SlowForResults(FaultyStore):
    """A store in which a result waits to be stored until `open` is set."""

    def __init__(self) -> None:
        super().__init__(MemoryCheckpointer(), FaultPlan(seed=0))
        self.asked = asyncio.Event()
        self.open = asyncio.Event()

    async def append(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        if any(isinstance(record, ToolFinished) for record in records):
            self.asked.set()
            await self.open.wait()
        await super().append(thread_id, epoch, records, events)


class Remembers(InlineExecutor):
    """An executor that notes what it may forget."""

    def __init__(self, config: AgentConfig) -> None:
        super().__init__(lambda toolset: config.tools, "node")
        self.released: list[CallKey] = []

    def release(self, keys: Sequence[CallKey]) -> None:
        self.released += keys
        super().release(keys)


def begun(name: str) -> tuple[RunHost, Remembers, SlowForResults, Feed]:
    """A run that calls one tool, and what it runs on."""
    model = ScriptedModel([tool_call(name), "done"])
    config = AgentConfig.checked(name="a", model=model, tools=[pays, pays_for_ever])
    executor, store = Remembers(config), SlowForResults()
    ports = HostPorts(store, MemoryBusLog(), executor, get_model, "node")
    host = RunHost("host_1", AgentRunnable(config), ports)
    return host, executor, store, host.start(RunRequest("run_1", "t", "go"))


async def test_f8_an_outcome_is_kept_by_the_executor_until_it_is_stored() -> None:
    """Forgotten earlier, and the process killed, the call would count as never made."""
    host, executor, store, feed = begun("pays")
    await asyncio.wait_for(store.asked.wait(), 5)
    assert executor.released == []
    store.open.set()
    await asyncio.wait_for(feed.ended(), 5)
    assert executor.released == [CallKey("run_1", 0, 0)]
    await host.stop(0)


async def test_f8_a_call_that_was_cancelled_is_kept_until_that_is_stored() -> None:
    host, executor, store, feed = begun("pays_for_ever")
    await asyncio.wait_for(BEGAN.wait(), 5)
    host.cancel(["run_1"], at_once=True)
    await asyncio.wait_for(store.asked.wait(), 5)
    assert executor.released == []
    store.open.set()
    await asyncio.wait_for(feed.ended(), 5)
    assert executor.released == [CallKey("run_1", 0, 0)]
    await host.stop(0)
