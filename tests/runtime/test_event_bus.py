"""C37: what the bus shows of runs. Both runtimes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.runtime.support import ModelTrouble, collected, script, types, within
from tulip_actors import (
    Agent,
    BusRecord,
    EventBus,
    TerminateEvent,
    ThinkEvent,
    ToolStartEvent,
    TulipEvent,
)

PROMPT = script([("add", {"a": 1, "b": 2}), ("total", {"n": 3})], "done")


def a_bus(agent: Agent) -> EventBus:
    return EventBus.connect(runtime=agent.runtime)


async def held(bus: EventBus, run_id: str) -> list[TulipEvent]:
    """What the bus holds of a run now."""
    return [record.event async for record in bus.subscribe(run_id=run_id, follow=False)]


async def until_the_end(records: AsyncIterator[BusRecord]) -> list[TulipEvent]:
    """What a follower hears, up to the first TerminateEvent."""
    heard = []
    async for record in records:
        heard.append(record.event)
        if isinstance(record.event, TerminateEvent):
            break
    return heard


async def test_c37_the_bus_has_the_same_events_in_the_same_order_as_the_stream(
    agent: Agent,
) -> None:
    handle = agent.start(PROMPT, stream_tokens=True)
    events = await collected(handle.events())
    assert await held(a_bus(agent), handle.run_id) == events


async def test_c37_the_terminate_event_is_on_the_bus_when_the_caller_has_it(agent: Agent) -> None:
    bus = a_bus(agent)
    for _ in range(5):
        async for event in agent.run(script("hi")):
            if isinstance(event, TerminateEvent):
                assert event.source is not None
                assert types(await held(bus, event.source.run_id)) == ["think", "terminate"]


async def test_c37_everything_is_on_the_bus_when_arun_returns(agent: Agent) -> None:
    result = await within(agent.arun(PROMPT))
    assert types(await held(a_bus(agent), result.run_id))[-1] == "terminate"


async def test_c37_a_failed_run_is_on_the_bus_too(agent: Agent) -> None:
    handle = agent.start(script({"raise": "broken"}))
    try:
        await within(handle.result())
    except ModelTrouble:
        assert types(await held(a_bus(agent), handle.run_id)) == ["terminate"]


async def test_c37_a_follower_hears_a_run_while_it_goes_on(agent: Agent) -> None:
    bus = a_bus(agent)
    handle = agent.start(script([("naps", {"seconds": 0.5})], "done"))
    heard: list[TulipEvent] = []

    async def follows() -> None:
        async for record in bus.subscribe(run_id=handle.run_id):
            heard.append(record.event)
            if isinstance(record.event, ToolStartEvent):
                assert not handle.done
            if isinstance(record.event, TerminateEvent):
                break

    await within(follows())
    assert types(heard) == ["think", "tool_start", "tool_complete", "think", "terminate"]


async def test_c37_the_types_filter_takes_names_and_classes(agent: Agent) -> None:
    result = await within(agent.arun(PROMPT))
    records = a_bus(agent).subscribe(
        run_id=result.run_id, types=["terminate", ThinkEvent], follow=False
    )
    assert [record.event.event_type async for record in records] == ["think", "think", "terminate"]


async def test_c37_the_agent_filter_leaves_others_out(agent: Agent) -> None:
    bus = a_bus(agent)
    await within(agent.arun(script("hi")))
    assert [r async for r in bus.subscribe(agent="nobody", follow=False)] == []
    agents = {
        record.event.source.agent
        async for record in bus.subscribe(agent="player", follow=False)
        if record.event.source
    }
    assert agents == {"player"}


async def test_c37_every_records_cursor_continues_without_gap_or_repeat(agent: Agent) -> None:
    bus = a_bus(agent)
    result = await within(agent.arun(PROMPT))
    everything = [r async for r in bus.subscribe(run_id=result.run_id, follow=False)]
    for n, record in enumerate(everything):
        rest = bus.subscribe(run_id=result.run_id, after=record.cursor, follow=False)
        assert [one.event async for one in rest] == [one.event for one in everything[n + 1 :]]


async def test_c37_runs_at_once_are_each_in_order(agent: Agent) -> None:
    bus = a_bus(agent)
    results = await within(asyncio.gather(*[agent.arun(PROMPT) for _ in range(10)]), 60)
    for result in results:
        events = await held(bus, result.run_id)
        assert [event.source.seq for event in events if event.source] == list(range(len(events)))
        assert types(events)[-1] == "terminate"


async def test_c37_a_program_may_publish_events_of_its_own(agent: Agent) -> None:
    bus = a_bus(agent)
    last = None
    async for record in bus.subscribe(follow=False):
        last = record.cursor
    await bus.publish([ThinkEvent(iteration=41), ThinkEvent(iteration=42)])
    seen = [record.event async for record in bus.subscribe(after=last, follow=False)]
    assert [event.iteration for event in seen if isinstance(event, ThinkEvent)] == [41, 42]
