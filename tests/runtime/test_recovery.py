"""Any process may die, and runs go on: the agent's, a worker's, the dispatcher's, the services'.

Each test kills one process with SIGKILL at a moment that it knows. On Ray.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.policy_tools import NEVER_S, bodies
from tests.runtime.recovery_tools import (
    RECOVERY_TOOLS,
    open_gate,
    refunds,
)
from tests.runtime.support import (
    assert_well_formed,
    eventually,
    exists,
    play,
    script,
    types,
    within,
)
from tulip_actors import (
    Agent,
    AgentRestartedEvent,
    EventBus,
    Message,
    ModelChunkEvent,
    ModelResponse,
    Role,
    RunHandle,
    RunNotFound,
    RunRecoveredEvent,
    ThinkEvent,
    ToolStartEvent,
    TulipEvent,
)
from tulip_actors.agent.runtimes import DEFAULT_NAMESPACE
from tulip_actors.runtime.spawn import services_actor
from tulip_actors.testing import FunctionModel

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture
async def agent() -> AsyncIterator[Agent]:
    """An agent of its own: its process is killed."""
    made = Agent(FunctionModel(play), RECOVERY_TOOLS, "Play.", name="payer", runtime="ray")
    yield made
    await made.stop()


class Follower:
    """Reads a run's events as they come."""

    def __init__(self, handle: RunHandle[Any]) -> None:
        self.events: list[TulipEvent] = []
        self.reading = asyncio.ensure_future(self._read(handle))

    async def _read(self, handle: RunHandle[Any]) -> None:
        async for event in handle.events():
            self.events.append(event)

    def saw(self, kind: type[TulipEvent], times: int = 1) -> bool:
        return sum(isinstance(event, kind) for event in self.events) >= times


async def kill_the_agent(agent: Agent) -> int:
    """Kill the process in which an agent's runs are; returns its id."""
    pid = (await within(agent.observe())).pid
    os.kill(pid, signal.SIGKILL)
    return pid


async def kill(agent: Agent, target: str) -> None:
    """Kill the "dispatcher" or the "services" that serve an agent."""
    for pid in (await within(agent.processes()))[target]:
        os.kill(pid, signal.SIGKILL)


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.content for message in messages if message.role is Role.TOOL]


# the agent's process


async def test_f12_f8_a_run_whose_process_is_killed_goes_on_and_its_tool_runs_once(
    agent: Agent, tmp_path: Path
) -> None:
    log, gate = str(tmp_path / "log"), str(tmp_path / "gate")
    calls = [["refund_slowly", {"log": log, "gate": gate}], ["refund", {"log": log}]]
    handle = agent.start(script(calls, [["refund", {"log": log}]], "done"))
    follower = Follower(handle)
    await eventually(lambda: exists(f"{gate}.waits"), "the body waits")
    await kill_the_agent(agent)
    open_gate(gate)
    await within(follower.reading)
    assert_well_formed(follower.events)
    assert types(follower.events).count("run_recovered") == 1
    result = await within(handle.result())
    assert texts(result.messages) == ["refunded slowly", "refunded", "refunded"]
    assert refunds(log) == 3
    assert (await agent.observe()).restarts == 1


async def test_a_finished_call_is_not_repeated_and_no_answer_of_the_model_is_paid_for_twice(
    agent: Agent, tmp_path: Path
) -> None:
    log, mark = str(tmp_path / "log"), str(tmp_path / "model")
    handle = agent.start(script([["refund", {"log": log}]], {"waits": mark}))
    follower = Follower(handle)
    await eventually(lambda: exists(f"{mark}.started"), "the model is asked for its second turn")
    await kill_the_agent(agent)
    Path(f"{mark}.started").unlink()
    await eventually(lambda: exists(f"{mark}.started"), "it is asked again")
    assert len(await agent.model_trace()) == 1, "for that turn alone"
    assert refunds(log) == 1
    handle.cancel()
    await within(follower.reading)
    assert_well_formed(follower.events)


async def test_c38_what_was_shown_of_a_turn_is_void_when_it_is_made_again(tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")

    async def stream(messages: Sequence[Message], tools: object) -> AsyncIterator[ModelChunkEvent]:
        yield ModelChunkEvent(content="first ")
        yield ModelChunkEvent(content="second")
        if not exists(f"{gate}.open"):
            await asyncio.sleep(60)
        yield ModelChunkEvent(done=True)

    made = Agent(Streams(stream), name="speaker", runtime="ray")
    handle = made.start("say it", stream_tokens=True)
    follower = Follower(handle)
    await eventually(lambda: follower.saw(ModelChunkEvent, 2), "two pieces are shown")
    open_gate(gate)
    await kill_the_agent(made)
    await within(follower.reading)
    assert_well_formed(follower.events)
    (recovered,) = [one for one in follower.events if isinstance(one, RunRecoveredEvent)]
    assert (recovered.iteration, recovered.chunks_discarded) == (0, 2)
    assert types(follower.events)[3:] == [*["model_chunk"] * 3, "think", "terminate"]
    assert (await handle.result()).text == "first second"
    await made.stop()


async def test_f17_a_run_that_nobody_follows_goes_on_by_itself_and_is_found_afterwards(
    agent: Agent, tmp_path: Path
) -> None:
    log, gate = str(tmp_path / "log"), str(tmp_path / "gate")
    handle = agent.start(script([["refund_slowly", {"log": log, "gate": gate}]], "done"))
    await eventually(lambda: exists(f"{gate}.waits"), "the body waits")
    await kill_the_agent(agent)
    open_gate(gate)
    found = Agent.attach(handle.run_id, runtime="ray")
    events = [event async for event in found.events()]
    assert_well_formed(events)
    assert (await within(found.result())).text == "done"
    half = Agent.attach(handle.run_id, found.cursor, runtime="ray")
    assert [event async for event in half.events()] == []


async def test_an_answer_whose_segment_is_killed_is_taken_once(
    agent: Agent, tmp_path: Path
) -> None:
    log, gate = str(tmp_path / "log"), str(tmp_path / "gate")
    asks = [["ask_and_refund", {"log": log, "gate": gate}]]
    paused = await within(agent.arun(script(asks, "done")))
    handle = agent.begin(await agent_answer(agent, paused.interrupts[0].interrupt_id))
    follower = Follower(handle)
    await eventually(lambda: exists(f"{gate}.waits"), "the body goes on with the answer")
    await kill_the_agent(agent)
    open_gate(gate)
    await within(follower.reading)
    assert types(follower.events)[-2:] == ["think", "terminate"]
    first = follower.events[0].source
    assert first is not None
    assert first.seq > 0, "of the segments before it nothing is told again"
    assert (await handle.result()).stop_reason == "complete"
    assert refunds(log) == 1


async def agent_answer(agent: Agent, interrupt_id: str) -> Any:
    from tulip_actors.core.runs import Answer

    return await agent._answer(Answer("yes", interrupt_id, "answer_1"), None)  # as `resume` does


async def test_c22_calls_made_by_a_tool_are_told_once_through_the_death_of_the_agent(
    agent: Agent, tmp_path: Path
) -> None:
    log, gate = str(tmp_path / "log"), str(tmp_path / "gate")
    handle = agent.start(script([["fans_out", {"log": log, "gate": gate}]], "done"))
    follower = Follower(handle)
    await eventually(lambda: follower.saw(ToolStartEvent, 4), "parent and children have begun")
    await eventually(lambda: exists(f"{gate}.waits"), "a child waits")
    await kill_the_agent(agent)
    open_gate(gate)
    await within(follower.reading)
    assert_well_formed(follower.events)
    assert refunds(log) == 3
    assert len(bodies(Path(log))) == 3
    assert all(body.ended_at_s < NEVER_S for body in bodies(Path(log)))


async def test_a_cancel_that_was_asked_for_before_the_kill_holds_after_it(
    agent: Agent, tmp_path: Path
) -> None:
    mark = str(tmp_path / "model")
    handle = agent.start(script({"waits": mark}))
    follower = Follower(handle)
    await eventually(lambda: exists(f"{mark}.started"), "the model is asked")
    pid = (await within(agent.observe())).pid
    os.kill(pid, signal.SIGSTOP)  # so that the cancel does not get there
    handle.cancel()
    os.kill(pid, signal.SIGKILL)
    await within(follower.reading)
    assert_well_formed(follower.events)
    assert (await handle.result()).stop_reason == "cancelled"


async def test_a_restart_is_told_on_the_bus(agent: Agent, tmp_path: Path) -> None:
    mark = str(tmp_path / "model")
    handle = agent.start(script({"waits": mark}))
    await eventually(lambda: exists(f"{mark}.started"), "the model is asked")
    await kill_the_agent(agent)
    bus = EventBus.connect(runtime="ray")

    async def told() -> AgentRestartedEvent:
        async for record in bus.subscribe(run_id=agent.id):
            assert isinstance(record.event, AgentRestartedEvent)
            return record.event
        raise AssertionError("the subscription ended")

    restarted = await within(told())
    assert (restarted.restarts, restarted.runs) == (1, (handle.run_id,))
    handle.cancel()


async def test_a_run_that_kills_its_process_is_given_up_and_others_go_on(
    agent: Agent, tmp_path: Path
) -> None:
    """The one that kills is found out, and the host serves on."""
    log, gate = str(tmp_path / "log"), str(tmp_path / "gate")
    bystander = agent.start(script([["refund_slowly", {"log": log, "gate": gate}]], "done"))
    await eventually(lambda: exists(f"{gate}.waits"), "the other run's body waits")
    deadly = Agent(FunctionModel(dies), RECOVERY_TOOLS, name="deadly", runtime="ray")
    result = deadly.start("die")
    with pytest.raises(Exception, match="given up: its process died 5 times"):
        await within(result.result(), 90)
    open_gate(gate)
    assert (await within(bystander.result())).text == "done"
    await deadly.stop()


def dies(messages: Sequence[Message], tools: object) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "never said"


# the dispatcher's process


@pytest.mark.parametrize(("tool", "left"), [("refund_with_key", 1), ("refund_slowly", 1)])
async def test_f8_calls_whose_dispatcher_died_are_repeated_with_their_key_or_reported(
    agent: Agent, tmp_path: Path, tool: str, left: int
) -> None:
    log, gate = str(tmp_path / "log"), str(tmp_path / "gate")
    handle = agent.start(script([[tool, {"log": log, "gate": gate}]], "done"))
    follower = Follower(handle)
    await eventually(lambda: exists(f"{gate}.waits"), "the body waits")
    await kill(agent, "dispatcher")
    open_gate(gate)
    await within(follower.reading)
    assert_well_formed(follower.events)
    (told,) = texts((await handle.result()).messages)
    if tool == "refund_with_key":
        assert told == "refunded with key"
        assert refunds(log, distinct=True) == left
    else:
        assert "may have happened" in told
        assert refunds(log) <= left


# the services' process


async def test_runs_go_on_when_store_and_bus_have_lost_their_memory(
    agent: Agent, tmp_path: Path
) -> None:
    log, gate = str(tmp_path / "log"), str(tmp_path / "gate")
    handle = agent.start(
        script(
            [["refund", {"log": log}]],
            [["refund_slowly", {"log": log, "gate": gate}]],
            [["refund", {"log": log}]],
            "done",
        )
    )
    follower = Follower(handle)
    await eventually(lambda: exists(f"{gate}.waits"), "the second body waits")
    await kill(agent, "services")
    await eventually(lambda: run_is_stored(handle.run_id), "the run is in the new memory")
    await kill_the_agent(agent)  # what the new memory holds is enough to go on
    open_gate(gate)
    await within(follower.reading)
    assert_well_formed(follower.events)
    assert refunds(log) == 3
    bus = EventBus.connect(runtime="ray")
    on_the_bus = [one.event async for one in bus.subscribe(handle.run_id, follow=False)]
    assert on_the_bus == follower.events, "each once, and in order"


async def run_is_stored(run_id: str) -> bool:
    services = services_actor(DEFAULT_NAMESPACE)
    try:
        return bool(await services.find.remote(run_id))
    except Exception:  # it is not back yet
        return False


# finding runs


async def test_a_run_that_nobody_has_is_not_found() -> None:
    with pytest.raises(RunNotFound, match="run_nowhere"):
        await within(Agent.attach("run_nowhere", runtime="ray").result())


async def test_a_run_of_another_agent_is_found_through_any(agent: Agent) -> None:
    handle = agent.start(script("done"))
    await within(handle.result())
    other = Agent(FunctionModel(play), name="other", runtime="ray")
    found = other.attach(handle.run_id)
    assert (await within(found.result())).text == "done"
    events = [event async for event in found.events()]
    assert isinstance(events[0], ThinkEvent)


class Streams:
    """A model that only streams."""

    def __init__(self, streams: Any) -> None:
        self._streams = streams

    async def complete(self, messages: Any, tools: Any = None, **settings: object) -> ModelResponse:
        raise NotImplementedError

    def stream(self, messages: Any, tools: Any = None, **settings: object) -> Any:
        return self._streams(messages, tools)
