"""A team is a run (C36): a pattern subclasses `Team` and writes only `conduct`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import tulip_actors
from tulip_actors import (
    Agent,
    AgentResult,
    RunCancelled,
    RunContext,
    Runnable,
    Team,
    TerminateEvent,
    ToolCompleteEvent,
    TulipEvent,
    tool,
)
from tulip_actors.testing import ScriptedModel, text, tool_call


@dataclass(frozen=True, slots=True)
class Told:
    """What the relay gives back."""

    final_message: str
    child_run_id: str
    expected_child_run_id: str
    ids: tuple[str, str]
    dice: tuple[int, int]
    stop_reason: str = "complete"


@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


class Relay(Team[Told]):
    """Runs one member and asks one model; nothing else is written."""

    def __init__(self, runtime: str, turns: Sequence[object] = ()) -> None:
        super().__init__("relay", runtime=runtime)
        script = [*turns, text("from the member")]
        self.member = Agent(
            ScriptedModel(script),  # type: ignore[arg-type]
            [double],
            name="member",
            runtime=runtime,
        )
        self.judge = ScriptedModel(["judged once"])

    def members(self) -> Sequence[Agent]:
        return [self.member]

    async def conduct(self, input: str, ctx: RunContext) -> Told:
        result = await ctx.run(self.member, input, key="leg", specialist_id="m")
        assert isinstance(result, AgentResult)
        first = await ctx.complete(self.judge, [], key="judge")
        again = await ctx.complete(self.judge, [], key="judge")
        assert first == again, "a recorded key returns its answer"
        await ctx.sleep(0)
        return Told(
            final_message=f"{result.text}, {first.message.content}",
            child_run_id=result.run_id,
            expected_child_run_id=ctx.child_run_id("leg"),
            ids=(ctx.new_id("note", "a"), ctx.new_id("note", "a")),
            dice=(ctx.random("a").randrange(10**9), ctx.random("a").randrange(10**9)),
        )


async def stopped(team: Relay) -> None:
    await team.stop()
    await team.member.stop()


async def test_c36_a_team_is_run_like_an_agent(runtime: str) -> None:
    team = Relay(runtime)
    told = await team.arun("go")
    assert told.final_message == "from the member, judged once"
    assert (await team.observe()).name == "relay"
    handle = team.start("go")
    attached = team.attach(handle.run_id)
    assert (await handle.result()).final_message == (await attached.result()).final_message
    await stopped(team)


async def test_c36_ids_and_randomness_follow_from_the_run_and_the_key(runtime: str) -> None:
    team = Relay(runtime)
    told, other = await team.arun("go"), await team.arun("go")
    assert told.child_run_id == told.expected_child_run_id
    assert told.ids[0] == told.ids[1] != other.ids[0]
    assert told.dice[0] == told.dice[1] != other.dice[0]
    await stopped(team)


async def test_c36_a_members_events_join_the_teams_stream_and_its_end_is_last(
    runtime: str,
) -> None:
    team = Relay(runtime, [tool_call("double", n=4)])
    events: list[TulipEvent] = [event async for event in team.run("go")]
    await stopped(team)
    assert any(isinstance(event, ToolCompleteEvent) and event.result == "8" for event in events)
    last = events[-1]
    assert isinstance(last, TerminateEvent)
    assert last.source is not None
    assert (last.source.agent, last.final_message) == ("relay", "from the member, judged once")
    inner = [event for event in events if event.source and event.source.agent == "member"]
    for event in inner:
        assert event.source is not None
        assert event.source.parent_run_id == last.source.run_id
        assert event.source.specialist_id == "m"


async def test_c36_a_cancelled_team_starts_nothing_more() -> None:
    class Waits(Relay):
        async def conduct(self, input: str, ctx: RunContext) -> Told:
            while not ctx.cancel_requested:
                await ctx.sleep(0)
            return await super().conduct(input, ctx)

    team = Waits("inline")
    handle = team.start("go")
    team.cancel()
    with pytest.raises(RunCancelled):
        await handle.result()
    assert await team.member.model_trace() == []


def test_c36_an_agent_and_a_team_are_runnables() -> None:
    team = Relay("inline")
    runnables: list[Runnable[object]] = [team, team.member.runnable]
    assert [one.name for one in runnables] == ["relay", "member"]


def test_c36_patterns_use_the_public_names_only() -> None:
    folder = Path(__file__).resolve().parents[2] / "patterns"
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tulip_actors"):
                assert node.module == "tulip_actors", path
                assert {name.name for name in node.names} <= set(tulip_actors.__all__), path
