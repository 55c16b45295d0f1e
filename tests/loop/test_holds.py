"""Questions of the runtime's own about a call: may it run, and may it run again (C21).

What crosses processes runs in both runtimes, the rest inline.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.loop.support import Puppet, inline, mark, marks, ran, texts
from tulip_actors import (
    Agent,
    InterruptEvent,
    Role,
    ToolCompleteEvent,
    ToolContext,
    ToolStartEvent,
    interrupt,
    tool,
)
from tulip_actors.core.calls import CallFinished, CallLost, ToolUpdate
from tulip_actors.host import inline as inline_module
from tulip_actors.host.inline_executor import InlineExecutor
from tulip_actors.memory.backends import FileCheckpointer
from tulip_actors.testing import ScriptedModel, tool_call, tool_calls


@tool(requires_approval=True)
def pay(path: str, amount: int = 1) -> str:
    """Pay; every start of the body leaves a mark."""
    return f"paid {amount}, mark {mark(path)}"


@tool(requires_approval=True)
async def pay_with_receipt(path: str, ctx: ToolContext) -> str:
    """Pay, and ask where the receipt is to go."""
    mark(path)
    where = interrupt("Where to?")
    return f"sent to {where} in attempt {ctx.attempt}"


@tool(requires_approval=True, idempotent=True)
def refund_once(path: str) -> str:
    """Refund, once."""
    return f"RF-{mark(path)}"


@tool
def note(path: str) -> str:
    """Leave a mark."""
    return f"note {mark(path)}"


@tool
async def pays_through_a_child(path: str, ctx: ToolContext) -> object:
    """Make a call that a human should have approved."""
    return await ctx.call(pay, {"path": path})


TOOLS = [pay, pay_with_receipt, refund_once, note, pays_through_a_child]


def agent_of(*turns: object, runtime: str = "inline", **options: Any) -> Agent:
    model = ScriptedModel([*turns, "done"])  # type: ignore[list-item]
    return Agent(model, TOOLS, runtime=runtime, **options)


# approval


async def test_c21_a_tool_that_requires_approval_pauses_the_run_before_its_body_runs(
    runtime: str, path: str
) -> None:
    async with agent_of(
        tool_call("pay", path=path, amount="3", call_id="c1"), runtime=runtime
    ) as agent:
        paused = await agent.arun("go")
        assert (paused.stop_reason, marks(path)) == ("interrupted", 0)
        (question,) = paused.interrupts
        assert question.question == f'Run pay(path="{path}", amount=3)?'
        assert question.options == ("approve", "deny")
        assert question.metadata == {
            "hold": "approval",
            "tool_name": "pay",
            "tool_call_id": "c1",
            "arguments": {"path": path, "amount": 3},
        }
        result = await agent.aresume("approve")
    assert (result.text, marks(path)) == ("done", 1)
    assert [one.result for one in result.tool_executions] == ["paid 3, mark 1"]


@pytest.mark.parametrize("answer", [True, "Approve", " approve "])
async def test_c21_an_approval_may_be_said_in_several_ways(answer: object, path: str) -> None:
    async with agent_of(tool_call("pay", path=path)) as agent:
        await agent.arun("go")
        await agent.aresume(answer)
    assert marks(path) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("deny", "pay was not called: a human denied it"),
        (False, "pay was not called: a human denied it"),
        (None, "pay was not called: a human denied it"),
        ("yes", "pay was not called: a human denied it: yes"),
        (" too much ", "pay was not called: a human denied it: too much"),
        ({"limit": 2}, 'pay was not called: a human denied it: {"limit":2}'),
    ],
)
async def test_c21_whatever_else_is_answered_denies_the_call_like_a_veto(
    answer: object, told: str, path: str
) -> None:
    async with agent_of(tool_call("pay", path=path)) as agent:
        await agent.arun("go")
        result = await agent.aresume(answer)
    assert (result.stop_reason, marks(path)) == ("complete", 0)
    assert texts(result.messages, Role.TOOL) == [f"Error: {told}"]
    assert (result.metrics.tool_calls, result.tool_executions) == (0, ()), "it counts neither way"


async def test_c21_the_approval_is_not_the_answer_to_a_question_of_the_body(
    runtime: str, path: str
) -> None:
    async with agent_of(tool_call("pay_with_receipt", path=path), runtime=runtime) as agent:
        approval = (await agent.arun("go")).interrupts[0]
        asked = (await agent.aresume("approve")).interrupts[0]
        assert (asked.question, marks(path)) == ("Where to?", 1)
        assert asked.interrupt_id != approval.interrupt_id
        result = await agent.aresume("the office", asked.interrupt_id)
    assert marks(path) == 2, "the body runs again from its start, without another approval"
    assert [one.result for one in result.tool_executions] == ["sent to the office in attempt 2"]


async def test_c21_siblings_of_a_held_call_finish_and_are_recorded(path: str) -> None:
    calls = tool_calls(("pay", {"path": path}), ("note", {"path": f"{path}-note"}))
    async with agent_of(calls) as agent:
        await agent.arun("go")
        assert (marks(path), marks(f"{path}-note")) == (0, 1)
        result = await agent.aresume("approve")
    assert marks(f"{path}-note") == 1
    assert [one.result for one in result.tool_executions] == ["paid 1, mark 1", "note 1"]


async def test_f6_of_two_held_calls_each_is_answered_by_its_own_id(path: str) -> None:
    calls = tool_calls(("pay", {"path": path, "amount": 1}), ("pay", {"path": path, "amount": 2}))
    async with agent_of(calls) as agent:
        one, two = (await agent.arun("go")).interrupts
        await agent.aresume("deny", one.interrupt_id)
        assert marks(path) == 0, "none runs before the last answer"
        result = await agent.aresume("approve", two.interrupt_id)
    assert texts(result.messages, Role.TOOL) == [
        "Error: pay was not called: a human denied it",
        "paid 2, mark 1",
    ]


async def test_a_held_call_starts_and_ends_once_in_the_events(path: str) -> None:
    async with agent_of(tool_call("pay", path=path)) as agent:
        events = [event async for event in agent.run("go")]
        events += [event async for event in agent.resume("deny")]
    told = [event.event_type for event in events]
    assert told == [
        *("think", "tool_start", "interrupt", "terminate"),
        *("tool_complete", "think", "terminate"),
    ]


async def test_c20_duplicates_of_a_held_call_share_its_approval_and_its_denial(path: str) -> None:
    twice = tool_calls(("refund_once", {"path": path}), ("refund_once", {"path": path}))
    async with agent_of(twice, twice) as agent:
        assert len((await agent.arun("go")).interrupts) == 1
        again = await agent.aresume("deny")
        assert (len(again.interrupts), marks(path)) == (1, 0), "asked again in the next turn"
        result = await agent.aresume("approve")
    denied = "Error: refund_once was not called: a human denied it"
    assert texts(result.messages, Role.TOOL) == [denied, denied, "RF-1", "RF-1"]
    assert (result.metrics.tool_calls, marks(path)) == (2, 1)


@pytest.mark.parametrize("order", ["concurrent", "sequential"])
async def test_c20_duplicates_of_a_held_call_wait_while_another_question_is_open(
    order: str, path: str
) -> None:
    refund = ("refund_once", {"path": path})
    calls = tool_calls(refund, refund, ("pay", {"path": f"{path}-pay"}))
    async with agent_of(calls, tool_execution=order) as agent:
        events = [event async for event in agent.run("go")]
        one, two = [event for event in events if isinstance(event, InterruptEvent)]
        events += [event async for event in agent.resume("approve", one.interrupt_id)]
        events += [event async for event in agent.resume("approve", two.interrupt_id)]
    assert (marks(path), marks(f"{path}-pay")) == (1, 1)
    for kind in (ToolStartEvent, ToolCompleteEvent):
        told = sorted(event.tool_call_id for event in events if isinstance(event, kind))
        assert told == ["call_pay_2", "call_refund_once_0", "call_refund_once_1"]


async def test_c20_a_result_that_is_there_already_needs_no_approval(path: str) -> None:
    call = tool_call("refund_once", path=path)
    async with agent_of(call, call) as agent:
        await agent.arun("go")
        result = await agent.aresume("approve")
    assert (result.stop_reason, marks(path)) == ("complete", 1)
    assert [one.idempotent_cache_hit for one in result.tool_executions] == [False, True]


async def test_c21_what_is_approved_is_the_call_as_the_hooks_left_it(path: str) -> None:
    steps = {"on_before_tool_call": [{"arguments": {"path": path, "amount": 2}}]}
    async with agent_of(tool_call("pay", path=path, amount=99), hooks=[Puppet()]) as agent:
        paused = await agent.arun("go", metadata={"puppet": steps})
        assert "amount=2" in paused.interrupts[0].question
        result = await agent.aresume("approve")
    assert [one.result for one in result.tool_executions] == ["paid 2, mark 1"]


async def test_the_question_of_a_huge_call_is_short_and_its_metadata_whole() -> None:
    long = "x" * 10_000
    async with agent_of(tool_call("pay", path=long)) as agent:
        (question,) = (await agent.arun("go")).interrupts
    assert len(question.question) < 400
    assert question.metadata["arguments"] == {"path": long, "amount": 1}


@pytest.mark.parametrize(
    ("answer", "told"),
    [("approve", "paid 1, mark 1"), ("deny", "Error: pay was not called: a human denied it")],
)
async def test_c21_a_held_call_is_answered_by_another_process_that_has_the_records(
    answer: str, told: str, path: str, tmp_path: Path
) -> None:
    """The second agent stands for that process: it shares nothing but the folder."""

    def made() -> Agent:
        return agent_of(tool_call("pay", path=path), checkpointer=FileCheckpointer(str(tmp_path)))

    async with made() as asks, made() as answers:
        (question,) = (await asks.arun("go", thread_id="t")).interrupts
        result = await answers.aresume(answer, question.interrupt_id)
    assert texts(result.messages, Role.TOOL) == [told]


async def test_a_conversation_that_goes_on_without_the_approval_says_so(
    path: str, thread: str
) -> None:
    async with agent_of(tool_call("pay", path=path)) as agent:
        await agent.arun("go", thread_id=thread)
    result = (await ran(inline("fine"), "never mind", thread_id=thread)).ok
    (told,) = texts(result.messages, Role.TOOL)
    assert "waited for an approval that nobody gave, and was not run" in told
    assert marks(path) == 0


async def test_a_child_call_cannot_be_approved_and_is_told_so(runtime: str, path: str) -> None:
    async with agent_of(tool_call("pays_through_a_child", path=path), runtime=runtime) as agent:
        result = await agent.arun("go")
    assert "pay requires approval" in str(result.tool_executions[0].error)
    assert marks(path) == 0


# a worker that died


class Losing(InlineExecutor):
    """Loses the first calls of a tool that finish, as if their workers had died in mid-body."""

    losses = 1
    started = True

    def _tell(self, update: ToolUpdate) -> None:
        if isinstance(update, CallFinished) and self.losses > 0:
            self.losses -= 1
            update = CallLost(update.key, "killed", started=self.started)
        super()._tell(update)


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> type[Losing]:
    """Inline agents that are made from now on have an executor that loses calls."""

    class Here(Losing):
        pass

    monkeypatch.setattr(inline_module, "InlineExecutor", Here)
    return Here


@tool(on_unknown="ask")
async def transfer(path: str, ctx: ToolContext) -> str:
    """Transfer money, which must not happen twice by accident."""
    return f"transferred in attempt {ctx.attempt}, mark {mark(path)}"


def transferring(path: str, *, tools: Sequence[Any] = (transfer,)) -> Agent:
    return inline([["transfer", {"path": path}]], "done", tools=tools)


async def test_c21_whether_a_lost_call_runs_again_is_asked_where_its_tool_says_so(
    losing: type[Losing], path: str
) -> None:
    agent = transferring(path)
    events = [event async for event in agent.run("go")]
    (question,) = [event for event in events if isinstance(event, InterruptEvent)]
    assert question.question == (
        f'The worker died while transfer(path="{path}") ran; its effect may have happened. '
        "Run it again?"
    )
    assert question.options == ("retry", "skip")
    assert (question.metadata["hold"], question.metadata["reason"]) == ("lost", "killed")
    run = [event async for event in agent.resume("retry")]
    assert not any(isinstance(event, ToolStartEvent) for event in run), "it had started already"
    (execution,) = (await agent.get_state(question.interrupt_id.split("/")[0])).tool_executions  # type: ignore[union-attr]
    assert execution.result == "transferred in attempt 2, mark 2"


@pytest.mark.parametrize(
    ("answer", "said"), [("skip", ""), (False, ""), ("it is on the statement", True)]
)
async def test_c21_a_lost_call_that_is_not_to_run_again_tells_the_model_what_may_have_happened(
    answer: object, said: object, losing: type[Losing], path: str
) -> None:
    agent = transferring(path)
    await agent.arun("go")
    result = await agent.aresume(answer)
    (execution,) = result.tool_executions
    assert execution.error == (
        "the worker died while it ran (killed); its effect may have happened; "
        "a human decided not to run it again" + (f": {answer}" if said else "")
    )
    assert marks(path) == 1


async def test_a_call_that_is_lost_twice_is_asked_about_twice(
    losing: type[Losing], path: str
) -> None:
    losing.losses = 2
    agent = transferring(path)
    first = (await agent.arun("go")).interrupts[0]
    second = (await agent.aresume(True)).interrupts[0]
    assert first.interrupt_id != second.interrupt_id
    result = await agent.aresume("retry", second.interrupt_id)
    assert [one.result for one in result.tool_executions] == ["transferred in attempt 3, mark 3"]


async def test_an_approved_call_that_was_lost_is_not_approved_again(
    losing: type[Losing], path: str
) -> None:
    careful = tool(requires_approval=True, on_unknown="ask", name="transfer")(transfer.fn)
    agent = transferring(path, tools=[careful])
    asked = [(await agent.arun("go")).interrupts[0].metadata["hold"]]
    asked += [one.metadata["hold"] for one in (await agent.aresume("approve")).interrupts]
    result = await agent.aresume("retry")
    assert asked == ["approval", "lost"]
    assert [one.result for one in result.tool_executions] == ["transferred in attempt 2, mark 2"]


@pytest.mark.parametrize(
    ("on_unknown", "started", "error"),
    [
        ("report", True, "the worker died while it ran (killed); its effect may have happened"),
        ("ask", False, "its worker was lost before it began (killed); it had no effect"),
    ],
)
async def test_the_model_is_told_of_a_lost_call_where_there_is_nothing_to_ask(
    on_unknown: Any, started: bool, error: str, losing: type[Losing], path: str
) -> None:
    losing.started = started
    told = tool(on_unknown=on_unknown, name="transfer")(transfer.fn)
    result = await transferring(path, tools=[told]).arun("go")
    assert result.stop_reason == "complete"
    assert error in str(result.tool_executions[0].error)
