"""How a run's records and events leave its host, also when store, bus or body misbehave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tulip_actors import (
    AgentConfig,
    ClusterError,
    RunCancelled,
    RunContext,
    RunNotFound,
    TerminateEvent,
    ThinkEvent,
    ThreadBusy,
    ThreadForgotten,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
    tool,
)
from tulip_actors.core.bus import BusQuery, EventBatch
from tulip_actors.core.codec import unpack_event
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.run_info import StoredRun
from tulip_actors.core.runs import Record, RunEnded, RunRequest, RunStarted
from tulip_actors.host import publisher as publisher_module
from tulip_actors.host.bus import MemoryBusLog
from tulip_actors.host.feed import Feed
from tulip_actors.host.inline_executor import InlineExecutor
from tulip_actors.host.ports import HostPorts
from tulip_actors.host.publisher import Publisher
from tulip_actors.host.record_writer import Claim, RecordWriter
from tulip_actors.host.run_host import RunHost
from tulip_actors.host.sink import RunSink
from tulip_actors.loop.agent_runnable import AgentRunnable
from tulip_actors.memory.run_store import MemoryRunStore
from tulip_actors.models.registry import get_model
from tulip_actors.testing import ScriptedModel, tool_calls

REQUEST = RunRequest("run_1", "thread", "hello")
AT = datetime(2026, 1, 1, tzinfo=UTC)


def record(seq: int = 0) -> RunEnded:
    return RunEnded("run_1", seq, AT, "complete", "complete")


class Gate:
    """A MemoryRunStore whose writes wait until they are let through, or fail."""

    def __init__(self) -> None:
        self.inner = MemoryRunStore()
        self.open = asyncio.Event()
        self.asked = asyncio.Event()
        self.batches: list[int] = []
        self.failure: Exception | None = None

    @property
    def keeps_events(self) -> bool:
        return False

    async def append(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        self.asked.set()
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        self.batches.append(len(records))
        await self.inner.append(thread_id, epoch, records, events)

    async def acquire(
        self, thread_id: str, owner: str, lease_s: float, *, host_id: str = "", above: int = 0
    ) -> int:
        return await self.inner.acquire(thread_id, owner, lease_s, host_id=host_id, above=above)

    async def events_of(self, run_id: str, after: int = -1) -> Sequence[Emitted]:
        return await self.inner.events_of(run_id, after)

    async def held_by(self, host_id: str) -> Sequence[tuple[str, str]]:
        return await self.inner.held_by(host_id)

    async def renew(self, thread_id: str, epoch: int, lease_s: float) -> None:
        await self.inner.renew(thread_id, epoch, lease_s)

    async def release(self, thread_id: str, epoch: int) -> None:
        await self.inner.release(thread_id, epoch)

    async def read(self, thread_id: str, after: int = 0) -> Sequence[Record]:
        return await self.inner.read(thread_id, after)

    async def find(self, run_id: str) -> str | None:
        return await self.inner.find(run_id)

    async def runs(self) -> Sequence[StoredRun]:
        return await self.inner.runs()

    async def delete(self, thread_id: str) -> bool:
        return await self.inner.delete(thread_id)


class SlowAcquire(Gate):
    """A store that takes its time to give a thread away."""

    async def acquire(
        self, thread_id: str, owner: str, lease_s: float, *, host_id: str = "", above: int = 0
    ) -> int:
        epoch = await self.inner.acquire(thread_id, owner, lease_s, host_id=host_id, above=above)
        self.asked.set()
        await self.open.wait()
        return epoch

    async def append(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        await self.inner.append(thread_id, epoch, records, events)


class Forgets(Gate):
    """A store that has lost its memory whenever something is appended, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.open.set()

    async def append(
        self,
        thread_id: str,
        epoch: int,
        records: Sequence[Record],
        events: Sequence[Emitted] = (),
    ) -> None:
        if self.times:
            self.times -= 1
            self.inner = MemoryRunStore()
            raise ThreadForgotten("its memory is gone")
        await super().append(thread_id, epoch, records, events)


class BrokenBus(MemoryBusLog):
    """A bus that fails so many times."""

    def __init__(self, failures: Sequence[Exception]) -> None:
        super().__init__()
        self.failures = list(failures)
        self.batches: list[EventBatch] = []

    async def publish(self, batch: EventBatch) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.batches.append(batch)
        await super().publish(batch)


async def events_on(bus: MemoryBusLog) -> list[TulipEvent]:
    page = await bus.poll(BusQuery(None))
    return [unpack_event(packed) for _, batch in page.batches for packed in batch.packed]


def seqs(feed: Feed) -> list[int]:
    return [entry.seq for entry in feed.peek(0)]


async def writer(gate: Gate, on_durable: Any = lambda: None) -> RecordWriter:
    claim = Claim("thread", "run_1", "host_1", 60)
    return RecordWriter(gate, claim, await claim.acquired(gate), on_durable, lambda: ((), ()))


# records


async def test_records_are_written_behind_and_in_order() -> None:
    gate = Gate()
    gate.open.set()
    writing = await writer(gate)
    for seq in range(5):
        writing.add((record(seq),))
    assert writing.blocked
    await writing.durable()
    assert [one.seq for one in await gate.read("thread")] == [0, 1, 2, 3, 4]
    assert not writing.blocked


async def test_at_most_one_write_is_in_flight_and_the_next_takes_all_that_came() -> None:
    gate = Gate()
    writing = await writer(gate)
    writing.add((record(0),))
    await gate.asked.wait()
    for seq in range(1, 5):
        writing.add((record(seq),))
    gate.open.set()
    await writing.durable()
    assert gate.batches == [1, 4]


async def test_durable_waits_for_what_was_taken() -> None:
    gate = Gate()
    writing = await writer(gate)
    writing.add((record(0),))
    waiting = asyncio.create_task(writing.durable())
    await gate.asked.wait()
    assert not waiting.done()
    gate.open.set()
    await asyncio.wait_for(waiting, 5)


async def test_durable_with_nothing_to_write_returns_at_once() -> None:
    await asyncio.wait_for((await writer(Gate())).durable(), 5)


async def test_cancelling_who_waits_does_not_cancel_the_write() -> None:
    gate = Gate()
    writing = await writer(gate)
    writing.add((record(0),))
    waiting = asyncio.create_task(writing.durable())
    await gate.asked.wait()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    gate.open.set()
    await writing.durable()
    assert len(await gate.read("thread")) == 1


async def test_after_a_failed_write_nothing_more_is_written_and_the_failure_is_kept() -> None:
    gate = Gate()
    gate.open.set()
    gate.failure = OSError("disk full")
    released: list[bool] = []
    writing = await writer(gate, lambda: released.append(True))
    writing.add((record(0),))
    with pytest.raises(OSError, match="disk full"):
        await writing.durable()
    gate.failure = None
    writing.add((record(1),))
    with pytest.raises(OSError, match="disk full"):
        await writing.durable()
    assert await gate.read("thread") == []
    assert released, "what was held back is let out: the run is about to say that it failed"
    assert not writing.blocked


# events


def sink_with(bus: MemoryBusLog, run_id: str = "run_1") -> tuple[RunSink, Feed]:
    feed = Feed()
    return RunSink(replace(REQUEST, run_id=run_id), "bob", "node", feed, Publisher(bus)), feed


async def test_c38_events_are_held_until_the_record_before_them_is_stored() -> None:
    gate, bus = Gate(), MemoryBusLog()
    sink, feed = sink_with(bus)
    writing = await writer(gate, sink.release)
    sink.follow(writing)
    sink.emit(ThinkEvent(iteration=0))
    assert seqs(feed) == [0], "nothing was recorded before it"
    writing.add((record(),))
    sink.emit(ThinkEvent(iteration=1))
    sink.emit(ThinkEvent(iteration=2))
    await gate.asked.wait()
    assert seqs(feed) == [0]
    gate.open.set()
    await writing.durable()
    assert seqs(feed) == [0, 1, 2]


async def test_c38_held_events_keep_their_order_past_later_records() -> None:
    gate = Gate()
    sink, feed = sink_with(MemoryBusLog())
    writing = await writer(gate, sink.release)
    sink.follow(writing)
    for n in range(4):
        writing.add((record(n),))
        sink.emit(ThinkEvent(iteration=n))
    gate.open.set()
    await writing.durable()
    assert seqs(feed) == [0, 1, 2, 3]


async def test_c38_after_a_failed_write_nothing_is_held_back_for_ever() -> None:
    gate = Gate()
    gate.failure = OSError("disk full")
    sink, feed = sink_with(MemoryBusLog())
    writing = await writer(gate, sink.release)
    sink.follow(writing)
    writing.add((record(),))
    sink.emit(ThinkEvent(iteration=0))
    gate.open.set()
    with pytest.raises(OSError, match="disk full"):
        await writing.durable()
    assert seqs(feed) == [0]


async def test_c7_the_terminate_event_comes_last_and_once() -> None:
    sink, feed = sink_with(MemoryBusLog())
    sink.emit(ThinkEvent(iteration=0))
    sink.emit(TerminateEvent(reason="complete"))
    sink.emit(TerminateEvent(reason="error"))
    sink.emit(ThinkEvent(iteration=1))
    assert sink.terminated
    await sink.finish()
    assert [entry.event.event_type for entry in feed.peek(0)] == ["think", "terminate"]
    last = feed.peek(1)[0].event
    assert isinstance(last, TerminateEvent)
    assert last.reason == "complete"


async def test_c37_the_terminate_event_is_on_the_bus_before_the_feed_has_it() -> None:
    published = asyncio.Event()

    class SlowBus(MemoryBusLog):
        async def publish(self, batch: EventBatch) -> None:
            await super().publish(batch)
            await published.wait()

    bus = SlowBus()
    sink, feed = sink_with(bus)
    sink.emit(TerminateEvent(reason="complete"))
    finishing = asyncio.create_task(sink.finish())
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(await events_on(bus)) == 1
    assert seqs(feed) == []
    published.set()
    await finishing
    assert seqs(feed) == [0]


async def test_the_sink_stamps_the_same_source_for_feed_and_bus() -> None:
    bus = MemoryBusLog()
    sink, feed = sink_with(bus)
    sink.emit(ThinkEvent(iteration=0))
    sink.emit(TerminateEvent(reason="complete"))
    await sink.finish()
    assert await events_on(bus) == [entry.event for entry in feed.peek(0)]
    source = feed.peek(0)[0].event.source
    assert source is not None
    assert (source.run_id, source.thread_id, source.agent) == ("run_1", "thread", "bob")
    assert (source.node_id, source.seq) == ("node", 0)


async def test_an_event_that_is_emitted_twice_keeps_its_first_source() -> None:
    sink, feed = sink_with(MemoryBusLog())
    event = ThinkEvent(iteration=0)
    sink.emit(event)
    again = sink.emit(event)
    assert event.source is not None
    assert again.source is not None
    assert (event.source.seq, again.source.seq) == (0, 1)
    assert [entry.event.source for entry in feed.peek(0)] == [event.source, again.source]


async def test_a_members_events_are_passed_on_to_the_feed_and_not_to_the_bus_again() -> None:
    bus = MemoryBusLog()
    member, member_feed = sink_with(bus, run_id="run_2")
    member.emit(ThinkEvent(iteration=0))
    team, team_feed = sink_with(bus)
    team.forward(member_feed.peek(0))
    team.emit(TerminateEvent(reason="complete"))
    await team.finish()
    assert [entry.event.event_type for entry in team_feed.peek(0)] == ["think", "terminate"]
    on_the_bus = sorted(event.event_type for event in await events_on(bus))
    assert on_the_bus == ["terminate", "think"]  # each once; two runs have no order


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_a_store_that_lost_its_memory_is_given_everything_however_often(times: int) -> None:
    store = Forgets(times)
    taken: list[Record] = []
    claim = Claim("thread", "run_1", "host_1", 60)
    writing = RecordWriter(
        store, claim, await claim.acquired(store), lambda: None, lambda: (taken, ())
    )
    for seq in range(3):
        taken.append(record(seq))
        writing.add((record(seq),))
        await writing.durable()
    assert list(await store.read("thread")) == taken
    assert (writing.written, writing.blocked) == (3, False)


# the bus's side


def publishing(bus: MemoryBusLog, monkeypatch: pytest.MonkeyPatch) -> tuple[RunSink, Publisher]:
    monkeypatch.setattr(publisher_module, "RETRIES_S", (0.0, 0.0))
    publisher = Publisher(bus)
    return RunSink(REQUEST, "bob", "node", Feed(), publisher), publisher


async def test_a_bus_that_is_away_for_a_moment_misses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bus = BrokenBus([ClusterError("away"), ClusterError("away")])
    sink, publisher = publishing(bus, monkeypatch)
    sink.emit(ThinkEvent(iteration=0))
    await asyncio.wait_for(publisher.flush(), 5)
    assert len(await events_on(bus)) == 1
    assert publisher.dropped == 0


async def test_a_bus_that_stays_away_is_given_up_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bus = BrokenBus([ClusterError("away")] * 3)
    sink, publisher = publishing(bus, monkeypatch)
    with caplog.at_level(logging.WARNING):
        sink.emit(ThinkEvent(iteration=0))
        await asyncio.wait_for(publisher.flush(), 5)
    assert publisher.dropped == 1
    assert "1 events are missing" in caplog.text
    sink.emit(ThinkEvent(iteration=1))
    await asyncio.wait_for(publisher.flush(), 5)
    assert len(await events_on(bus)) == 1


@pytest.mark.parametrize("failure", [RuntimeError("odd"), OSError("odd"), ValueError("odd")])
async def test_a_bus_that_raises_something_else_stops_neither_run_nor_publisher(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = BrokenBus([failure])
    sink, publisher = publishing(bus, monkeypatch)
    sink.emit(ThinkEvent(iteration=0))
    await asyncio.wait_for(publisher.flush(), 5)
    sink.emit(ThinkEvent(iteration=1))
    sink.emit(TerminateEvent(reason="complete"))
    await asyncio.wait_for(sink.finish(), 5)
    assert [event.event_type for event in await events_on(bus)][-1] == "terminate"


async def test_events_that_come_while_one_publish_runs_make_the_next_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bus = BrokenBus([])
    sink, publisher = publishing(bus, monkeypatch)
    for n in range(10):
        sink.emit(ThinkEvent(iteration=n))
    await publisher.flush()
    assert len(bus.batches) == 1
    assert bus.batches[0].run_ids == {"run_1"}
    assert bus.batches[0].agents == {"bob"}
    assert bus.batches[0].types == {"think"}


# the host


class Waits:
    """A Runnable that says hello and waits."""

    name = "waits"

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def conduct(self, input: str, ctx: RunContext) -> str:
        ctx.emit(ThinkEvent(iteration=0, reasoning=input))
        self.begun.set()
        await self.go.wait()
        return "result"


def host_of(runnable: Any, **ports: Any) -> tuple[RunHost, MemoryBusLog]:
    bus = ports.pop("bus", None) or MemoryBusLog()
    tools = runnable.config.tools if isinstance(runnable, AgentRunnable) else {}
    made = HostPorts(
        store=ports.pop("store", None) or MemoryRunStore(),
        bus=bus,
        executor=InlineExecutor(lambda toolset: tools, "node"),
        resolve_model=get_model,
        node_id="node",
        **ports,
    )
    return RunHost("host_1", runnable, made), bus


async def read_all(feed: Feed) -> list[TulipEvent]:
    async def reading() -> list[TulipEvent]:
        return [entry.event async for batch in feed.batches() for entry in batch]

    return await asyncio.wait_for(reading(), 5)


async def settled(feed: Feed) -> tuple[object, BaseException | None]:
    await read_all(feed)
    return feed.settled()


async def test_a_run_ends_with_its_result_and_gives_its_thread_back() -> None:
    store = MemoryRunStore()
    runnable = Waits()
    host, _ = host_of(runnable, store=store)
    feed = host.start(REQUEST)
    await runnable.begun.wait()
    assert host.observe().active_runs == 1
    runnable.go.set()
    assert await settled(feed) == ("result", None)
    assert host.observe().active_runs == 0
    assert await store.acquire("thread", "another", 60) == 2
    records = await store.read("thread")
    assert isinstance(records[0], RunStarted)
    await host.stop(0)


async def test_a_run_id_that_is_known_is_not_started_twice() -> None:
    runnable = Waits()
    host, _ = host_of(runnable)
    feed = host.start(REQUEST)
    assert host.start(REQUEST) is feed
    runnable.go.set()
    await settled(feed)
    assert host.start(REQUEST) is feed, "also when it has ended"
    await host.stop(0)


async def test_c12_a_second_run_on_a_busy_thread_is_refused_with_a_terminate_event() -> None:
    runnable = Waits()
    host, _ = host_of(runnable)
    first = host.start(REQUEST)
    await runnable.begun.wait()
    second = host.start(RunRequest("run_2", "thread", "hello"))
    events = await read_all(second)
    assert [event.event_type for event in events] == ["terminate"]
    assert isinstance(second.settled()[1], ThreadBusy)
    runnable.go.set()
    assert await settled(first) == ("result", None)
    await host.stop(0)


async def test_a_run_cancelled_while_it_takes_its_thread_gives_it_back() -> None:
    store = SlowAcquire()
    host, _ = host_of(Waits(), store=store)
    feed = host.start(REQUEST)
    await asyncio.wait_for(store.asked.wait(), 5)
    host.cancel(["run_1"], at_once=True)
    for _ in range(3):
        await asyncio.sleep(0)
    store.open.set()
    events = await read_all(feed)
    assert [event.event_type for event in events][-1] == "terminate"
    assert await store.inner.acquire("thread", "run_2", 60) > 0
    await host.stop(0)


async def test_a_cancel_in_a_runs_last_moments_does_not_leave_it_open() -> None:
    gate = Gate()
    runnable = Waits()
    host, _ = host_of(runnable, store=gate)
    feed = host.start(REQUEST)
    await runnable.begun.wait()
    runnable.go.set()
    await asyncio.wait_for(gate.asked.wait(), 5)
    for _ in range(5):
        await asyncio.sleep(0)
    host.cancel(["run_1"], at_once=True)
    for _ in range(3):
        await asyncio.sleep(0)
    gate.open.set()
    events = await read_all(feed)
    assert [event.event_type for event in events] == ["think", "terminate"]
    assert host.observe().active_runs == 0
    await host.stop(0)


async def test_a_store_that_fails_ends_the_run_with_its_error() -> None:
    gate = Gate()
    gate.failure = OSError("disk full")
    gate.open.set()
    runnable = Waits()
    runnable.go.set()
    host, bus = host_of(runnable, store=gate)
    feed = host.start(REQUEST)
    events = await read_all(feed)
    assert sum(isinstance(event, TerminateEvent) for event in events) == 1
    assert isinstance(feed.settled()[1], OSError)
    assert [event.event_type for event in await events_on(bus)][-1] == "terminate"
    assert host.observe().active_runs == 0
    await host.stop(0)


@pytest.mark.parametrize("failure", [RuntimeError("odd"), ClusterError("away")])
async def test_a_bus_that_fails_does_not_keep_a_run_from_ending(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "RETRIES_S", (0.0,))
    runnable = Waits()
    runnable.go.set()
    host, _ = host_of(runnable, bus=BrokenBus([failure] * 6))
    feed = host.start(REQUEST)
    assert await settled(feed) == ("result", None)
    assert host.observe().active_runs == 0
    await host.stop(0)


async def test_a_runnable_that_raises_ends_with_an_error_event_and_its_exception() -> None:
    class Raises:
        name = "raises"

        async def conduct(self, input: str, ctx: RunContext) -> str:
            raise LookupError("lost")

    host, _ = host_of(Raises())
    feed = host.start(REQUEST)
    (last,) = await read_all(feed)
    assert isinstance(last, TerminateEvent)
    assert (last.reason, last.stop_reason) == ("error", "error")
    assert isinstance(feed.settled()[1], LookupError)
    await host.stop(0)


async def test_stopping_a_host_cancels_its_runs_and_takes_no_new_ones() -> None:
    runnable = Waits()
    host, _ = host_of(runnable)
    feed = host.start(REQUEST)
    await runnable.begun.wait()
    await asyncio.wait_for(host.stop(0), 5)
    assert isinstance((await settled(feed))[1], RunCancelled)
    with pytest.raises(Exception, match="stopping"):
        host.start(RunRequest("run_2", "t", "x"))


async def test_ended_runs_are_kept_for_a_while_and_then_only_on_the_bus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tulip_actors.host import run_host

    monkeypatch.setattr(run_host, "ENDED_RUNS_KEPT", 2)
    runnable = Waits()
    runnable.go.set()
    host, _ = host_of(runnable)
    for n in range(4):
        await settled(host.start(RunRequest(f"run_{n}", f"t{n}", "x")))
        await asyncio.sleep(0)
    with pytest.raises(RunNotFound, match=r"run_0.*bus"):
        await host.follow("run_0").ended()
    assert host.follow("run_3").closed
    await host.stop(0)


async def test_f44_ended_runs_with_more_events_than_there_is_room_for_are_on_the_bus_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tulip_actors.host import run_host

    monkeypatch.setattr(run_host, "ENDED_BYTES_KEPT", 10)
    runnable = Waits()
    runnable.go.set()
    host, _ = host_of(runnable)
    feed = host.start(RunRequest("run_1", "t", "x"))
    await settled(feed)
    assert len(feed) > 0
    with pytest.raises(RunNotFound, match=r"run_1.*bus"):
        await host.follow("run_1").ended()
    with pytest.raises(RunNotFound):  # and is not run a second time
        await host.start(RunRequest("run_1", "t", "x")).ended()
    await host.stop(0)


class CancelAt:
    """A fault point at which the run is cancelled at once."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.host: RunHost | None = None

    async def reach(self, point: str, run_id: str) -> None:
        if point == self.point and self.host is not None:
            self.host.cancel([run_id], at_once=True)
            await asyncio.sleep(0)


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_c7_a_cancel_between_intents_and_bodies_leaves_every_call_paired() -> None:
    turn = tool_calls(("add", {"a": 1, "b": 1}), ("nothing", {}), ("add", {"a": 2, "b": 2}))
    config = AgentConfig.checked(
        name="bob",
        model=ScriptedModel([turn, "never"]),
        tools=[add],
        system_prompt=None,
        max_iterations=5,
        termination=None,
    )
    faults = CancelAt("intents_stored")
    host, _ = host_of(AgentRunnable(config), faults=faults)
    faults.host = host
    events = await read_all(host.start(REQUEST))
    starts = [event for event in events if isinstance(event, ToolStartEvent)]
    completes = [event for event in events if isinstance(event, ToolCompleteEvent)]
    assert sorted(e.tool_call_id for e in starts) == sorted(e.tool_call_id for e in completes)
    assert len(completes) == 3
    for complete in completes:
        at = events.index(complete)
        assert any(s.tool_call_id == complete.tool_call_id for s in starts if s in events[:at])
    assert isinstance(events[-1], TerminateEvent)
    assert events[-1].stop_reason == "cancelled"
    await host.stop(0)
