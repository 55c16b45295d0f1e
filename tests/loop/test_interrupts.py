"""A tool asks a human: the run pauses, is answered, and goes on (C21).

What crosses processes runs in both runtimes, the rest inline.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loop.support import inline, ran
from tulip_actors import (
    Agent,
    AgentState,
    HookProvider,
    InterruptEvent,
    RunNotFound,
    TerminateEvent,
    ToolCompleteEvent,
    ToolContext,
    ToolStartEvent,
    TulipEvent,
    interrupt,
    tool,
)
from tulip_actors.errors import ConfigError, InterruptNotPending
from tulip_actors.testing import ScriptedModel, text, tool_call, tool_calls


@tool
def approve(amount: int) -> str:
    """Ask whether to pay; a yes is asked again."""
    first = interrupt(f"pay {amount}?", ["yes", "no"], {"amount": amount})
    return str(first) if first != "yes" else f"yes, {interrupt('sure?')}"


@tool
def note(path: str, line: str) -> str:
    """Append a line to a file, so that a test sees how often the body ran."""
    with Path(path).open("a") as file:
        file.write(line + "\n")
    return line


@tool
async def asks_through_a_child(ctx: ToolContext) -> object:
    """Let a child ask, which nobody could pause for."""
    return await ctx.call(approve, {"amount": 1})


@tool
def confirm(path: str, what: str) -> str:
    """Ask about something; every start of the body leaves a mark."""
    with Path(f"{path}-{what}").open("a") as file:
        file.write("x")
    return f"{what}: {interrupt(f'{what}?')}"


def agent_of(runtime: str, *turns: object) -> Agent:
    return Agent(
        ScriptedModel([*turns, text("done")]),  # type: ignore[list-item]
        [approve, note, confirm, asks_through_a_child],
        runtime=runtime,
    )


async def all_of(stream: object) -> list[TulipEvent]:
    return [event async for event in stream]  # type: ignore[attr-defined]


def questions(events: list[TulipEvent]) -> list[InterruptEvent]:
    return [event for event in events if isinstance(event, InterruptEvent)]


async def test_c21_a_run_pauses_with_its_question_and_goes_on_with_the_answer(
    runtime: str,
) -> None:
    """C8: a paused run is "interrupted", and no success."""
    async with agent_of(runtime, tool_call("approve", amount=3)) as agent:
        paused = await agent.arun("go")
        assert (paused.stop_reason, paused.success) == ("interrupted", False)
        (question,) = paused.interrupts
        assert (question.question, question.options) == ("pay 3?", ("yes", "no"))
        assert question.metadata == {"amount": 3}
        result = await agent.aresume("no")
    assert (result.stop_reason, result.text, result.run_id) == ("complete", "done", paused.run_id)
    assert [one.result for one in result.tool_executions] == ["no"]
    assert result.iterations == 2


async def test_c21_several_questions_of_one_body_replay_in_order() -> None:
    async with agent_of("inline", tool_call("approve", amount=3)) as agent:
        await agent.arun("go")
        second = await agent.aresume("yes")
        assert [one.question for one in second.interrupts] == ["sure?"]
        result = await agent.aresume("certainly")
    assert [one.result for one in result.tool_executions] == ["yes, certainly"]


async def test_f6_two_tools_of_one_turn_pause_under_ids_of_their_own() -> None:
    calls = tool_calls(("approve", {"amount": 1}), ("approve", {"amount": 2}))
    async with agent_of("inline", calls) as agent:
        one, two = sorted(questions(await all_of(agent.run("go"))), key=lambda e: e.question)
        assert one.interrupt_id != two.interrupt_id
        await agent.aresume("no, not two", two.interrupt_id)
        result = await agent.aresume("no, not one", one.interrupt_id)
    assert [one.result for one in result.tool_executions] == ["no, not one", "no, not two"]


async def test_f3_f7_only_the_answered_call_runs_again(runtime: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    calls = tool_calls(("note", {"path": str(ran), "line": "sibling"}), ("approve", {"amount": 1}))
    async with agent_of(runtime, calls) as agent:
        await agent.arun("go")
        result = await agent.aresume("no")
    assert ran.read_text() == "sibling\n"
    assert [one.result for one in result.tool_executions] == ["sibling", "no"]


async def test_f3_f6_an_answer_starts_the_call_that_asked_and_no_other(
    runtime: str, tmp_path: Path
) -> None:
    """Three calls wait; each is answered by its own id, in another order than they asked."""
    path = str(tmp_path / "starts")
    asked = ("tea", "milk", "cake")

    def starts() -> list[int]:
        return [len(Path(f"{path}-{what}").read_text()) for what in asked]

    calls = tool_calls(*[("confirm", {"path": path, "what": what}) for what in asked])
    async with agent_of(runtime, calls) as agent:
        paused = await agent.arun("go")
        ids = {one.question: one.interrupt_id for one in paused.interrupts}
        assert (len(set(ids.values())), starts()) == (3, [1, 1, 1])
        for what in ("cake", "tea"):
            paused = await agent.aresume(f"yes, {what}", ids[f"{what}?"])
            assert paused.stop_reason == "interrupted"
        assert starts() == [1, 1, 1], "none runs before the last answer"
        result = await agent.aresume("yes, milk", ids["milk?"])
    assert starts() == [2, 2, 2]
    assert [one.result for one in result.tool_executions] == [
        f"{what}: yes, {what}" for what in asked
    ]


def test_c35_resume_sync_answers_from_code_that_is_not_async() -> None:
    agent = agent_of("inline", tool_call("approve", amount=3))
    assert agent.run_sync("go").stop_reason == "interrupted"
    assert agent.resume_sync("no").text == "done"


async def test_c21_a_segment_ends_at_once_while_another_question_is_open() -> None:
    calls = tool_calls(("approve", {"amount": 1}), ("approve", {"amount": 2}))
    async with agent_of("inline", calls) as agent:
        one, two = questions(await all_of(agent.run("go")))
        events = await all_of(agent.resume("no", one.interrupt_id))
        assert [type(event) for event in events] == [TerminateEvent]
        assert isinstance(events[0], TerminateEvent)
        assert events[0].stop_reason == "interrupted"
        await agent.aresume("no", two.interrupt_id)


async def test_c7_the_segments_of_a_run_go_on_counting_and_each_ends_once(runtime: str) -> None:
    async with agent_of(runtime, tool_call("approve", amount=1)) as agent:
        first = await all_of(agent.run("go"))
        second = await all_of(agent.resume("no"))
    events = first + second
    assert [event.source.seq for event in events if event.source] == list(range(len(events)))
    for segment in (first, second):
        ends = [event for event in segment if isinstance(event, TerminateEvent)]
        assert ends == [segment[-1]]
    starts = [event.tool_call_id for event in events if isinstance(event, ToolStartEvent)]
    ends_of_calls = [event.tool_call_id for event in events if isinstance(event, ToolCompleteEvent)]
    assert starts == ends_of_calls


async def test_c21_a_wrong_or_answered_id_is_an_error_that_changes_nothing() -> None:
    calls = tool_calls(("approve", {"amount": 1}), ("approve", {"amount": 2}))
    async with agent_of("inline", calls) as agent:
        one, two = questions(await all_of(agent.run("go")))
        with pytest.raises(InterruptNotPending, match=one.interrupt_id):
            await agent.aresume("no")
        with pytest.raises(InterruptNotPending):
            await agent.aresume("no", f"{one.interrupt_id}9")
        await agent.aresume("no", one.interrupt_id)
        with pytest.raises(InterruptNotPending, match=two.interrupt_id):
            await agent.aresume("again", one.interrupt_id)
        result = await agent.aresume("no", two.interrupt_id)
    assert result.stop_reason == "complete"


async def test_an_answer_to_a_run_that_nobody_knows_says_so() -> None:
    async with agent_of("inline") as agent:
        with pytest.raises(RunNotFound, match="started no run"):
            await agent.aresume("yes")
        with pytest.raises(RunNotFound, match="run_of_nobody"):
            await agent.aresume("yes", "run_of_nobody/0.0/0")


async def test_a_thread_that_was_answered_holds_a_valid_history() -> None:
    async with agent_of("inline", tool_call("approve", amount=1)) as agent:
        await agent.arun("go", thread_id="answered thread")
        await agent.aresume("no", thread_id="answered thread")
        result = await agent.arun("more", thread_id="answered thread")
    said = [(message.role.value, message.content) for message in result.messages]
    assert said[:4] == [("user", "go"), ("assistant", ""), ("tool", "no"), ("assistant", "done")]


async def test_a_child_call_cannot_pause_and_is_told_so(runtime: str) -> None:
    async with agent_of(runtime, tool_call("asks_through_a_child")) as agent:
        result = await agent.arun("go")
    assert result.stop_reason == "complete"
    assert "ask before ctx.map" in str(result.tool_executions[0].error)


def test_interrupt_outside_of_a_tool_is_refused() -> None:
    with pytest.raises(ConfigError, match="inside a tool"):
        interrupt("anybody there?")


async def test_c13_explicit_mode_offers_ask_user_and_task_complete() -> None:
    model = ScriptedModel(
        [tool_call("ask_user", question="red or blue?"), tool_call("task_complete", summary="red")]
    )
    async with Agent(model, completion_mode="explicit", runtime="inline") as agent:
        paused = await agent.arun("paint")
        assert [one.question for one in paused.interrupts] == ["red or blue?"]
        result = await agent.aresume("red")
    assert (result.stop_reason, result.text) == ("complete", "red")


async def test_c7_a_run_whose_hook_raises_the_error_of_another_runs_question_ends_as_it_should(
    thread: str,
) -> None:
    class Resumes(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            raise InterruptNotPending("another run waits for no answer")

    run = await ran(inline("x", hooks=[Resumes()]), "x", thread_id=thread)
    assert isinstance(run.failure, InterruptNotPending)
    assert run.end.reason == "error"
    assert (await ran(inline("free"), "x", thread_id=thread)).ok.message == "free"
