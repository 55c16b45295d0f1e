"""C16: hooks with `runs_in = "caller"`, on both runtimes, and what handlers at the caller raise."""

from __future__ import annotations

import logging
import os
import pickle
import threading
from pathlib import Path
from typing import IO, Any

import pytest

from tests.loop.support import CALLBACKS, HookTrouble, Puppet, inline
from tests.runtime.support import eventually, within
from tulip_actors import (
    Agent,
    ConfigError,
    HookProvider,
    TerminateEvent,
    ThinkEvent,
    TulipEvent,
    tool,
)
from tulip_actors.hooks.builtin import LoggingHook
from tulip_actors.testing import ScriptedModel, text, tool_call


class Here(HookProvider):
    """Observes with what cannot be sent anywhere: a lock and an open file."""

    runs_in = "caller"

    def __init__(self, file: IO[str] | None = None) -> None:
        self.lock = threading.Lock()
        self.file = file
        self.seen: list[tuple[int, TulipEvent]] = []

    def on_event(self, event: TulipEvent) -> None:
        with self.lock:
            self.seen.append((os.getpid(), event))
            if self.file is not None:
                self.file.write(f"{event.event_type}\n")

    @property
    def events(self) -> list[TulipEvent]:
        return [event for _, event in self.seen]


class Raises(HookProvider):
    """Raises at the first event of a type."""

    runs_in = "caller"

    def __init__(self, at: type[TulipEvent]) -> None:
        self.at = at

    def on_event(self, event: TulipEvent) -> None:
        if isinstance(event, self.at):
            raise HookTrouble(event.event_type)


@tool
async def again() -> str:
    """Nothing."""
    return "again"


def endless(runtime: str, **options: Any) -> Agent:
    """An agent whose runs go on until they are cancelled."""
    model = ScriptedModel([tool_call("again")], repeat_last=True)
    wanted = {"max_iterations": 100_000, "tool_loop_threshold": 100_000, **options}
    return Agent(model, [again], runtime=runtime, **wanted)


async def idle(agent: Agent) -> None:
    """Wait until no run is active."""

    async def nothing_runs() -> bool:
        return (await agent.observe()).active_runs == 0

    await eventually(nothing_runs, "the run has ended")


async def test_c16_a_hook_at_the_caller_sees_the_runs_that_are_awaited_or_iterated(
    runtime: str, tmp_path: Path
) -> None:
    with (tmp_path / "events").open("w") as file:
        hook = Here(file)
        async with Agent(ScriptedModel([text("hi")]), runtime=runtime, hooks=[hook]) as agent:
            await agent.arun("x")
            assert [event.event_type for event in hook.events] == ["think", "terminate"]
            iterated = [event async for event in agent.run("x")]
            assert hook.events[2:] == iterated
            handled = [event async for event in agent.start("x").events()]
            assert hook.events[4:] == handled
    assert {pid for pid, _ in hook.seen} == {os.getpid()}
    assert (tmp_path / "events").read_text() == "think\nterminate\n" * 3


async def test_c16_hooks_of_both_places_serve_the_same_run(runtime: str) -> None:
    here = Here()
    async with Agent(ScriptedModel([text("hi")]), runtime=runtime, hooks=[here, Puppet()]) as agent:
        events = [event async for event in agent.run("x")]
    assert here.events == events
    assert any(event.event_type == "causal_node" for event in events)


async def test_c16_a_hook_at_the_caller_raises_out_of_arun_and_the_run_is_cancelled(
    runtime: str,
) -> None:
    async with endless(runtime, hooks=[Raises(ThinkEvent)]) as agent:
        with pytest.raises(HookTrouble, match="think"):
            await within(agent.arun("x"))
        await idle(agent)


async def test_c16_a_hook_at_the_caller_raises_out_of_the_iteration_and_the_run_is_cancelled(
    runtime: str,
) -> None:
    async with endless(runtime, hooks=[Raises(ThinkEvent)]) as agent:
        stream = agent.run("x")
        with pytest.raises(HookTrouble, match="think"):
            await within(anext(stream))
        await idle(agent)
        assert [event async for event in stream] == []


async def test_c16_a_callback_handler_that_raises_does_the_same(runtime: str) -> None:
    async with endless(runtime, callback_handler=Raises(ThinkEvent).on_event) as agent:
        with pytest.raises(HookTrouble, match="think"):
            await within(agent.arun("x"))
        await idle(agent)


async def test_c16_a_run_that_was_started_goes_on_when_a_hook_at_the_caller_raises(
    runtime: str,
) -> None:
    hooks = [Raises(ThinkEvent)]
    async with Agent(ScriptedModel([text("hi")]), runtime=runtime, hooks=hooks) as agent:
        handle = agent.start("x")
        with pytest.raises(HookTrouble):
            await within(anext(handle.events()))
        assert (await within(handle.result())).message == "hi"


async def test_c16_a_hook_that_raises_on_the_last_event_is_heard(runtime: str) -> None:
    hooks = [Raises(TerminateEvent)]
    async with Agent(ScriptedModel([text("hi")]), runtime=runtime, hooks=hooks) as agent:
        with pytest.raises(HookTrouble, match="terminate"):
            await within(agent.arun("x"))


async def test_c16_hooks_at_the_caller_are_called_by_priority_and_before_the_callback_handler() -> (
    None
):
    told: list[str] = []

    class Named(HookProvider):
        runs_in = "caller"

        def __init__(self, name: str, priority: int) -> None:
            self.name, self.priority = name, priority

        def on_event(self, event: TulipEvent) -> None:
            told.append(self.name)

    hooks = [Named("late", 75), Named("early", 25)]
    agent = inline("hi", hooks=hooks, callback_handler=lambda event: told.append("handler"))
    await agent.arun("x")
    assert told == ["early", "late", "handler"] * 2


async def test_c16_a_logging_hook_at_the_caller_knows_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Logs(LoggingHook):
        runs_in = "caller"

    with caplog.at_level(logging.INFO):
        result = await inline("hi", hooks=[Logs()]).arun("x")
    assert {message.split()[0] for message in caplog.messages} == {result.run_id}


def test_c16_a_copy_of_the_agent_in_another_process_has_no_hooks_at_the_caller() -> None:
    agent = Agent(ScriptedModel([text("hi")]), runtime="inline", hooks=[Here()])
    assert pickle.loads(pickle.dumps(agent)).run_sync("x").message == "hi"


@pytest.mark.parametrize("callback", CALLBACKS)
def test_c16_a_hook_at_the_caller_may_not_steer(callback: str) -> None:
    hook = type("Steers", (Here,), {callback: lambda self, *arguments: None})()
    with pytest.raises(ConfigError, match=f"hooks: Steers has {callback}"):
        inline("x", hooks=[hook])


def test_c16_another_place_for_a_hook_is_refused() -> None:
    class Elsewhere(HookProvider):
        runs_in = "driver"  # type: ignore[assignment]

    with pytest.raises(ConfigError, match=r"runs_in of Elsewhere is 'actor' or 'caller'"):
        inline("x", hooks=[Elsewhere()])
