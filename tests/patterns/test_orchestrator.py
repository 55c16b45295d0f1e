"""The orchestrator: who is chosen, what is told, what is kept. Both runtimes."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from patterns import Orchestrator, OrchestratorResult, Specialist
from tests.runtime.support import (
    ALL_TOOLS,
    assert_paired,
    collected,
    eventually,
    was_stopped,
    within,
)
from tulip_actors import (
    ConfigError,
    EventBus,
    Message,
    ModelUnavailable,
    OrchestratorDecisionEvent,
    SpecialistCompleteEvent,
    SpecialistStartEvent,
    TerminateEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
)
from tulip_actors.testing import FunctionModel, ScriptedModel, tool_calls

IDS = ("size", "docs", "risk")


def a_task(route: object, summary: object = "all is well", **members: Sequence[object]) -> str:
    """A task that says how everybody is to answer it."""
    return json.dumps({"route": route, "summary": summary, "members": members})


def chosen(*ids: str) -> str:
    """A routing answer as the schema wants it."""
    return json.dumps({"specialists": ids, "reasoning": "they fit"})


def conduct_play(messages: Sequence[Message], tools: object) -> Any:
    """The orchestrator's model: routes, then summarises, as the task says."""
    content = messages[-1].content
    if not content.startswith("Task: "):
        return _answer(json.loads(content)["route"])
    task, _, _ = content.removeprefix("Task: ").partition("\n\nReports:")
    return _answer(json.loads(task)["summary"])


def _answer(wanted: Any) -> Any:
    return ModelUnavailable(wanted["raise"]) if isinstance(wanted, dict) else wanted


def member_play(member: str, messages: Sequence[Message], tools: object) -> Any:
    """A member's model: plays its turns of the task; without any it answers with its name."""
    task = json.loads(next(m.content for m in messages if m.role == "user"))
    turns = task["members"].get(member, [f"{member} found nothing"])
    turn = turns[sum(message.role == "assistant" for message in messages)]
    if isinstance(turn, dict):
        return LookupError(turn["raise"])
    return turn if isinstance(turn, str) else tool_calls(*[(name, args) for name, args in turn])


def specialists(**options: Any) -> list[Specialist]:
    """Three members that do as the task says."""
    return [
        Specialist(
            id=one,
            specialist_type=f"{one} auditor",
            description=f"looks at {one}",
            tools=ALL_TOOLS,
            model=FunctionModel(functools.partial(member_play, one)),
            **options,
        )
        for one in IDS
    ]


@pytest.fixture(scope="session")
def team(runtime: str) -> Iterator[Orchestrator]:
    """A team whose model chooses by schema."""
    made = Orchestrator(
        name="auditors",
        specialists=specialists(),
        model=FunctionModel(conduct_play),
        runtime=runtime,
    )
    yield made

    async def stop() -> None:
        await asyncio.gather(made.stop(), *[member.stop() for member in made.members()])

    asyncio.run(stop())


def decisions(events: Sequence[TulipEvent]) -> list[OrchestratorDecisionEvent]:
    return [event for event in events if isinstance(event, OrchestratorDecisionEvent)]


def starts(events: Sequence[TulipEvent]) -> list[SpecialistStartEvent]:
    return [event for event in events if isinstance(event, SpecialistStartEvent)]


def completes(events: Sequence[TulipEvent]) -> list[SpecialistCompleteEvent]:
    return [event for event in events if isinstance(event, SpecialistCompleteEvent)]


def own(events: Sequence[TulipEvent]) -> list[TulipEvent]:
    """The team's own events."""
    return [event for event in events if event.source and event.source.specialist_id is None]


def of_member(events: Sequence[TulipEvent], member: str) -> list[TulipEvent]:
    return [event for event in events if event.source and event.source.specialist_id == member]


def assert_each_start_has_one_complete(events: Sequence[TulipEvent]) -> None:
    begun = [event.member_run_id for event in starts(events)]
    ended = [event.member_run_id for event in completes(events)]
    assert sorted(begun) == sorted(ended)
    assert len(set(begun)) == len(begun)


# choosing


async def test_the_models_answer_chooses_the_specialists(team: Orchestrator) -> None:
    events = await collected(team.run(a_task(chosen("risk", "size"))))
    first = decisions(events)[0]
    assert first.decision == "invoke_specialist"
    assert first.specialists_selected == ("risk", "size")
    assert first.reasoning == "they fit"
    assert {event.specialist_id for event in starts(events)} == {"risk", "size"}


async def test_the_answer_is_constrained_by_a_schema_of_the_ids_there_are() -> None:
    model = ScriptedModel([chosen("size"), "summary"])
    team = Orchestrator(specialists=specialists(), model=model, runtime="inline")
    await within(team.arun(a_task("")))
    (schema,) = [asked.settings["response_format"] for asked in model.requests[:1]]
    told: Any = schema
    wanted = told["json_schema"]["schema"]["properties"]["specialists"]
    assert wanted["items"] == {"enum": list(IDS)}
    assert wanted["minItems"] == 1
    assert "- size: looks at size" in model.requests[0].messages[0].content


@pytest.mark.parametrize(
    ("route", "named"),
    [
        ("all of them, please", "not usable"),
        ("", "not usable"),
        ("[]", "not usable"),
        ("{}", "not usable"),
        ('{"specialists": 3}', "not usable"),
        ("x" * 5000, "not usable"),
        ('{"specialists": []}', "named nobody who exists"),
        ('{"specialists": ["nobody"]}', "named nobody who exists"),
        ({"raise": "no server"}, "the model failed: no server"),
    ],
)
async def test_an_answer_that_chooses_nobody_falls_back_to_all_and_says_so(
    team: Orchestrator, route: object, named: str
) -> None:
    events = await collected(team.run(a_task(route)))
    first = decisions(events)[0]
    assert first.specialists_selected == IDS
    assert "fallback to all specialists" in (first.reasoning or "")
    assert named in (first.reasoning or "")
    assert {event.specialist_id for event in starts(events)} == set(IDS)


async def test_an_id_that_is_named_twice_runs_once(team: Orchestrator) -> None:
    events = await collected(team.run(a_task(chosen("size", "size"))))
    assert [event.specialist_id for event in starts(events)] == ["size"]


async def test_ids_that_do_not_exist_are_left_out(team: Orchestrator) -> None:
    events = await collected(team.run(a_task(chosen("nobody", "docs"))))
    assert [event.specialist_id for event in starts(events)] == ["docs"]


@pytest.mark.parametrize(
    ("ids", "selected", "reasoning"),
    [
        (["docs"], ("docs",), "chosen by the router"),
        (["docs", "docs", "size"], ("docs", "size"), "chosen by the router"),
        ([], IDS, "fallback to all specialists: the router named nobody"),
        (["docs", "who"], IDS, "fallback to all specialists: the router named ['who']"),
    ],
)
async def test_a_router_chooses_without_a_model(
    ids: list[str], selected: tuple[str, ...], reasoning: str
) -> None:
    asked: list[tuple[str, list[str]]] = []

    def router(task: str, there: Sequence[Specialist]) -> list[str]:
        asked.append((task, [one.id for one in there]))
        return ids

    team = Orchestrator(specialists=specialists(), router=router, runtime="inline")
    task = a_task("")
    result = await within(team.arun(task))
    assert asked == [(task, list(IDS))]
    assert result.decisions[0].specialists_selected == selected
    assert result.decisions[0].reasoning == reasoning


async def test_without_router_and_model_all_run_and_the_decision_says_why() -> None:
    team = Orchestrator(specialists=specialists(), runtime="inline")
    result = await within(team.arun(a_task("")))
    assert result.decisions[0].specialists_selected == IDS
    assert "neither a router nor a model" in (result.decisions[0].reasoning or "")
    assert "size: size found nothing" in result.summary


# events


async def test_the_decisions_come_in_the_order_of_the_work(team: Orchestrator) -> None:
    events = await collected(team.run(a_task(chosen("size", "docs"))))
    assert [event.decision for event in decisions(events)] == [
        "invoke_specialist",
        "correlate",
        "summarize",
        "finalize",
    ]


async def test_one_report_needs_no_correlation(team: Orchestrator) -> None:
    events = await collected(team.run(a_task(chosen("size"))))
    assert "correlate" not in [event.decision for event in decisions(events)]


async def test_c40_the_teams_terminate_event_ends_the_stream(team: Orchestrator) -> None:
    events = await collected(team.run(a_task(chosen("size", "docs"))))
    end = events[-1]
    assert isinstance(end, TerminateEvent)
    assert end in own(events)
    assert (end.reason, end.stop_reason, end.final_message) == (
        "complete",
        "complete",
        "all is well",
    )


async def test_f50_events_of_members_are_told_apart_by_their_source(team: Orchestrator) -> None:
    turns = [[("total", {"n": 2})], "found"]
    task = a_task(chosen(*IDS), size=turns, docs=turns, risk=turns)
    handle = team.start(task)
    events = await collected(handle.events())
    for member in IDS:
        mine = of_member(events, member)
        sources = [event.source for event in mine if event.source]
        assert [source.seq for source in sources] == list(range(len(mine)))
        assert {source.parent_run_id for source in sources} == {handle.run_id}
        assert {source.agent for source in sources} == {member}
        (run_id,) = {source.run_id for source in sources}
        assert run_id in [start.member_run_id for start in starts(events)]
        assert isinstance(mine[-1], TerminateEvent)
    seqs = [event.source.seq for event in own(events) if event.source]
    assert seqs == list(range(len(seqs)))
    assert_paired(events)


async def test_each_start_has_exactly_one_complete(team: Orchestrator) -> None:
    events = await collected(team.run(a_task(chosen(*IDS))))
    assert_each_start_has_one_complete(events)
    for complete in completes(events):
        assert complete.result == f"{complete.specialist_id} found nothing"
        assert complete.error is None
        assert complete.specialist_type == f"{complete.specialist_id} auditor"
        assert complete.duration_ms > 0


async def test_f5_specialists_work_at_the_same_time(team: Orchestrator) -> None:
    turns = [[("naps", {"seconds": 1.0})], "found"]
    events = await collected(team.run(a_task(chosen(*IDS), size=turns, docs=turns, risk=turns)))
    begun = [start.timestamp for start in events if isinstance(start, ToolStartEvent)]
    ended = [end.timestamp for end in events if isinstance(end, ToolCompleteEvent)]
    assert len(begun) == 3
    assert max(begun) < min(ended)


async def test_max_parallel_specialists_is_a_bound() -> None:
    turns = [[("naps", {"seconds": 0.05})], "found"]
    team = Orchestrator(specialists=specialists(), max_parallel_specialists=1, runtime="inline")
    events = await collected(team.run(a_task("", size=turns, docs=turns, risk=turns)))
    open_ = 0
    for event in events:
        open_ += isinstance(event, SpecialistStartEvent)
        open_ -= isinstance(event, SpecialistCompleteEvent)
        assert open_ <= 1
    assert len(completes(events)) == 3


async def test_the_bus_has_every_members_events_once(team: Orchestrator) -> None:
    handle = team.start(a_task(chosen(*IDS)))
    events = await collected(handle.events())
    bus = EventBus.connect(runtime=team.runtime)
    for member in IDS:
        mine = of_member(events, member)
        run_id = mine[0].source.run_id if mine[0].source else ""
        held = [record.event async for record in bus.subscribe(run_id=run_id, follow=False)]
        assert held == mine
    held = [record.event async for record in bus.subscribe(run_id=handle.run_id, follow=False)]
    assert held == own(events)


async def test_a_teams_cursor_continues_without_gap_or_repeat(team: Orchestrator) -> None:
    handle = team.start(a_task(chosen(*IDS)))
    everything = await collected(handle.events())
    events = handle.events()
    first = [await within(anext(events)) for _ in range(5)]
    rest = await collected(handle.events(after=handle.cursor))
    assert [*first, *rest] == everything


async def test_tokens_of_members_are_streamed_when_asked_for(team: Orchestrator) -> None:
    events = await collected(team.run(a_task(chosen("size")), stream_tokens=True))
    chunks = [event for event in of_member(events, "size") if event.event_type == "model_chunk"]
    assert (
        "".join(getattr(chunk, "content", None) or "" for chunk in chunks) == "size found nothing"
    )


# results


async def test_the_result_has_what_everybody_found(team: Orchestrator) -> None:
    turns = [[("add", {"a": 20, "b": 22})], "it is 42"]
    result = await within(team.arun(a_task(chosen("size", "docs"), size=turns)))
    assert isinstance(result, OrchestratorResult)
    assert (result.success, result.error, result.stop_reason) == (True, None, "complete")
    assert result.summary == "all is well"
    assert list(result.specialist_results) == ["size", "docs"]
    size = result.specialist_results["size"]
    assert (size.output, size.success, size.error) == ("it is 42", True, None)
    assert size.state is not None
    assert [one.result for one in size.state.tool_executions] == ["42"]
    assert result.duration_ms > 0


async def test_execute_is_arun(team: Orchestrator) -> None:
    assert (await within(team.execute(a_task(chosen("size"))))).success


async def test_a_member_that_fails_leaves_the_others_results(team: Orchestrator) -> None:
    task = a_task(chosen(*IDS), docs=[[("add", {"a": 1, "b": 1})], {"raise": "no docs"}])
    handle = team.start(task)
    events = await collected(handle.events())
    assert_each_start_has_one_complete(events)
    (failed,) = [event for event in completes(events) if event.error]
    assert (failed.specialist_id, failed.result) == ("docs", None)
    assert "LookupError: no docs" in (failed.error or "")
    result = await within(handle.result())
    assert not result.success
    assert result.stop_reason == "error"
    assert "docs: " in (result.error or "")
    assert {k: v.success for k, v in result.specialist_results.items()} == {
        "size": True,
        "docs": False,
        "risk": True,
    }
    assert result.specialist_results["size"].output == "size found nothing"


async def test_a_member_that_fails_has_its_own_terminate_event_on_the_stream(
    team: Orchestrator,
) -> None:
    events = await collected(team.run(a_task(chosen("docs", "size"), docs=[{"raise": "no"}])))
    last = of_member(events, "docs")[-1]
    assert isinstance(last, TerminateEvent)
    assert last.stop_reason == "error"


async def test_the_correlation_names_who_failed(team: Orchestrator) -> None:
    events = await collected(team.run(a_task(chosen(*IDS), docs=[{"raise": "no"}])))
    (correlation,) = [event for event in decisions(events) if event.decision == "correlate"]
    assert correlation.reasoning == "3 reports, failed: docs"


async def test_a_member_that_used_up_its_turns_is_no_success() -> None:
    turns = [[("add", {"a": 1, "b": 1})]] * 9
    team = Orchestrator(specialists=specialists(max_iterations=2), runtime="inline")
    result = await within(team.arun(a_task("", size=[*turns[:2], "half done"])))
    size = result.specialist_results["size"]
    assert not size.success
    assert "max_iterations" in (size.error or "")
    assert size.output == "half done", "what it has is kept"


async def test_a_summary_that_fails_does_not_lose_the_reports(team: Orchestrator) -> None:
    result = await within(team.arun(a_task(chosen("size"), summary={"raise": "no server"})))
    assert "size found nothing" in result.summary
    assert "no server" in result.summary
    assert result.specialist_results["size"].success


async def test_an_empty_summary_is_replaced_by_the_reports(team: Orchestrator) -> None:
    result = await within(team.arun(a_task(chosen("size"), summary="")))
    assert "size found nothing" in result.summary


async def test_a_team_runs_many_tasks_at_once(team: Orchestrator) -> None:
    tasks = [a_task(chosen("size"), summary=f"task {n}") for n in range(5)]
    results = await within(asyncio.gather(*[team.arun(task) for task in tasks]), 40)
    assert [result.summary for result in results] == [f"task {n}" for n in range(5)]


def test_run_sync_works_for_a_team(team: Orchestrator) -> None:
    assert team.run_sync(a_task(chosen("size"))).success


async def test_the_repr_of_a_result_says_who_succeeded(team: Orchestrator) -> None:
    result = await within(team.arun(a_task(chosen("size", "docs"), docs=[{"raise": "no"}])))
    assert repr(result) == (
        f"OrchestratorResult(success=False, [size: ok, docs: failed], run_id='{result.run_id}')"
    )


# cancelling


def waiting_task(mark: Path, *rest: str) -> str:
    """A task in which `size` waits for a minute while the others answer."""
    return a_task(chosen(*IDS), size=[[("waits", {"mark": str(mark)})], "never"])


async def test_cancelling_a_team_reaches_its_members_tools(
    team: Orchestrator, tmp_path: Path
) -> None:
    mark = tmp_path / "body"
    handle = team.start(waiting_task(mark))
    await eventually(Path(f"{mark}.started").exists, "the member's tool has begun")
    handle.cancel()
    events = await collected(handle.events())
    end = events[-1]
    assert isinstance(end, TerminateEvent)
    assert end.stop_reason == "cancelled"
    assert_each_start_has_one_complete(events)
    await eventually(lambda: was_stopped(mark), "the member's tool was stopped")


async def test_a_cancelled_team_completes_its_members_tool_calls_on_the_stream(
    team: Orchestrator, tmp_path: Path
) -> None:
    mark = tmp_path / "body"
    handle = team.start(waiting_task(mark))
    await eventually(Path(f"{mark}.started").exists, "the member's tool has begun")
    handle.cancel()
    events = await collected(handle.events())
    assert_paired(events)
    assert isinstance(of_member(events, "size")[-1], TerminateEvent)


async def test_c7_a_cancelled_teams_members_end_on_the_bus(
    team: Orchestrator, tmp_path: Path
) -> None:
    mark = tmp_path / "body"
    handle = team.start(waiting_task(mark))
    await eventually(Path(f"{mark}.started").exists, "the member's tool has begun")
    handle.cancel()
    events = await collected(handle.events())
    (run_id,) = [start.member_run_id for start in starts(events) if start.specialist_id == "size"]
    heard: list[TulipEvent] = []

    async def hears() -> None:
        async for record in EventBus.connect(runtime=team.runtime).subscribe(run_id=run_id):
            heard.append(record.event)
            if isinstance(record.event, TerminateEvent):
                break

    await within(hears())
    assert_paired(heard)
    assert getattr(heard[-1], "stop_reason") == "cancelled"  # noqa: B009


async def test_breaking_out_of_a_teams_stream_cancels_everything(
    team: Orchestrator, tmp_path: Path
) -> None:
    mark = tmp_path / "body"
    async for event in team.run(waiting_task(mark)):
        if isinstance(event, ToolStartEvent):
            await eventually(Path(f"{mark}.started").exists, "the member's tool has begun")
            break
    await eventually(lambda: was_stopped(mark), "the member's tool was stopped")


async def test_a_cancelled_team_serves_the_next_task(team: Orchestrator) -> None:
    handle = team.start(a_task(chosen("size")))
    handle.cancel()
    await collected(handle.events())
    assert (await within(team.arun(a_task(chosen("size"))))).success


# refusals


def test_two_specialists_of_one_id_are_refused() -> None:
    one = Specialist(id="a", model=ScriptedModel(["x"]))
    with pytest.raises(ConfigError, match="two specialists have the same id"):
        Orchestrator(specialists=[one, one], runtime="inline")


def test_a_team_without_specialists_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one Specialist"):
        Orchestrator(specialists=[], runtime="inline")


@pytest.mark.parametrize("bound", [0, -1])
def test_a_bound_below_one_is_refused(bound: int) -> None:
    with pytest.raises(ConfigError, match="max_parallel_specialists: give at least 1"):
        Orchestrator(specialists=specialists(), max_parallel_specialists=bound, runtime="inline")


def test_a_specialist_without_any_model_is_refused_by_its_id() -> None:
    with pytest.raises(ConfigError, match="specialist 'a' has no model"):
        Orchestrator(specialists=[Specialist(id="a")], runtime="inline")


def test_a_specialist_without_a_model_takes_the_teams() -> None:
    team = Orchestrator(
        specialists=[Specialist(id="a")],
        model=ScriptedModel([chosen("a"), "summary"], shared=False),
        runtime="inline",
    )
    assert team.run_sync("x").specialist_results["a"].output == chosen("a")


def test_the_repr_of_a_team_names_its_members(team: Orchestrator) -> None:
    assert repr(team) == (
        f"Orchestrator('auditors', members=[size, docs, risk], runtime='{team.runtime}')"
    )


def test_the_pattern_uses_public_names_only() -> None:
    import ast

    import patterns
    import tulip_actors

    for path in Path(patterns.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tulip_actors"):
                assert node.module == "tulip_actors", f"{path.name} imports from {node.module}"
                assert {one.name for one in node.names} <= set(tulip_actors.__all__)


# processes


async def test_each_specialist_is_an_actor_in_a_process_of_its_own(team: Orchestrator) -> None:
    turns = [[("naps", {"seconds": 0.1})], "found"]
    events = await collected(team.run(a_task(chosen(*IDS), size=turns, docs=turns, risk=turns)))
    hosts = {event.source.pid for event in events if event.source}
    workers = {event.worker_pid for event in events if isinstance(event, ToolCompleteEvent)}
    if team.runtime == "ray":
        assert len(hosts) == 4, "three members and the team"
        assert not workers & hosts, "tools run elsewhere"
    else:
        assert len(hosts | workers) == 1
    for member in IDS:
        assert len({e.source.pid for e in of_member(events, member) if e.source}) == 1
