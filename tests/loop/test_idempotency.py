"""One result per call, in call order (C19); one execution per idempotent call (C20)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.loop.support import (
    Puppet,
    Run,
    followed,
    inline,
    mark,
    marks,
    plain_id,
    ran,
    records_of,
    script,
)
from tulip_actors import Agent, Role, ToolExecution, tool
from tulip_actors.core.runs import ToolIntents
from tulip_actors.tools.executor import find_matching_execution


def refund(path: str, **arguments: Any) -> list[Any]:
    return ["refund", {"path": path, **arguments}]


def results(run: Run) -> list[str | None]:
    return [one.result for one in run.ok.tool_executions]


def hits(run: Run) -> list[bool]:
    return [one.idempotent_cache_hit for one in run.ok.tool_executions]


# C19


async def test_c19_calls_with_one_id_get_one_result_each_in_call_order(
    agent: Agent, path: str
) -> None:
    calls = [
        ["last", {"path": path}, "same"],
        ["add", {"a": 1, "b": 1}, "same"],
        ["fails", {"message": "x"}, "same"],
        ["add", {"a": 1, "b": 1}, "same"],
        ["nowhere", {}, "same"],
    ]
    run = await ran(agent, script(calls, "done"))
    assert [(one.tool_name, one.result, one.error) for one in run.ok.tool_executions] == [
        ("last", "1", None),
        ("add", "2", None),
        ("fails", None, "ValueError: x"),
        ("add", "2", None),
    ]
    told = [message for message in run.ok.messages if message.role is Role.TOOL]
    assert [message.name for message in told] == [call[0] for call in calls]
    assert {message.tool_call_id for message in told} == {"same"}
    assert len(run.starts) == len(run.completes) == 5


async def test_c19_ids_repeated_in_later_turns_do_not_mix(agent: Agent) -> None:
    turns = [[["add", {"a": n, "b": 0}, "same"]] for n in range(3)]
    run = await ran(agent, script(*turns, "done"))
    assert results(run) == ["0", "1", "2"]


async def test_c19_an_empty_id_is_an_id_like_any_other() -> None:
    run = await ran(
        inline([["add", {"a": 1, "b": 1}, ""], ["say", {"text": "x"}, ""]], "done"), "x"
    )
    assert results(run) == ["2", "x"]


# C20 in one run


async def test_c20_duplicates_in_one_turn_share_one_execution(agent: Agent, path: str) -> None:
    run = await ran(agent, script([refund(path), refund(path), refund(path)], "done"))
    assert marks(path) == 1
    assert (results(run), hits(run)) == (["RF-1"] * 3, [False, True, True])
    assert [one.tool_call_id for one in run.ok.tool_executions] == ["call_0", "call_1", "call_2"]
    assert [message.content for message in run.ok.messages[-4:-1]] == ["RF-1"] * 3
    assert [one.result for one in run.completes] == ["RF-1"] * 3
    assert [one.duration_ms == 0 for one in run.completes] == [False, True, True]
    assert run.end.total_tool_calls == 3


async def test_c20_a_duplicate_in_a_later_turn_is_served(agent: Agent, path: str) -> None:
    run = await ran(agent, script([refund(path)], [refund(path)], "done"))
    assert (marks(path), results(run), hits(run)) == (1, ["RF-1"] * 2, [False, True])


@pytest.mark.parametrize(
    ("first", "second", "bodies"),
    [
        ({"amount": 1}, {"amount": 1}, 1),
        ({"amount": 1}, {"amount": 1.0}, 2),
        ({"amount": 1}, {"amount": True}, 2),
        ({"amount": 0}, {"amount": False}, 2),
        ({"amount": 1}, {"amount": "1"}, 2),
        ({"amount": None}, {"amount": "null"}, 2),
        ({}, {"currency": "EUR"}, 1),
        ({}, {"amount": 1}, 1),
        ({}, {"amount": 1.0}, 2),
        ({"currency": "USD"}, {}, 2),
        ({"amount": {"a": 1, "b": [1]}}, {"amount": {"b": [1], "a": 1}}, 1),
        ({"amount": [1, 2]}, {"amount": [2, 1]}, 2),
        ({"amount": {"a": 1}}, {"amount": {"a": True}}, 2),
        ({"amount": "ü"}, {"amount": "ü"}, 1),
    ],
    ids=plain_id,
)
@pytest.mark.parametrize("apart", [False, True], ids=["in one turn", "in two turns"])
async def test_c20_equality_of_arguments_is_typed_and_counts_defaults(
    first: dict[str, Any], second: dict[str, Any], bodies: int, apart: bool, path: str
) -> None:
    calls = [refund(path, **first), refund(path, **second)]
    turns = [[calls[0]], [calls[1]]] if apart else [calls]
    run = await ran(inline(*turns, "done"), "x")
    assert (marks(path), hits(run)) == (bodies, [False, bodies == 1])


async def test_c20_arguments_are_compared_as_the_signature_takes_them(path: str) -> None:
    @tool(idempotent=True)
    async def pay(cents: int) -> int:
        """Pay."""
        return mark(path)

    turns = [[["pay", {"cents": cents}]] for cents in (1, "1", 1.0, 2)]
    run = await ran(inline(*turns, "done", tools=[pay]), "x")
    assert (marks(path), hits(run)) == (2, [False, True, True, False])


async def test_c20_other_tools_with_the_same_arguments_are_other_calls(path: str) -> None:
    @tool(idempotent=True)
    async def one(path: str) -> int:
        """Mark."""
        return mark(path)

    @tool(idempotent=True)
    async def two(path: str) -> int:
        """Mark."""
        return mark(path)

    calls = [["one", {"path": path}], ["two", {"path": path}]]
    run = await ran(inline(calls, "done", tools=[one, two]), "x")
    assert (marks(path), hits(run)) == (2, [False, False])


async def test_c20_a_tool_that_is_not_idempotent_runs_every_time(agent: Agent, path: str) -> None:
    call = ["count", {"path": path}]
    run = await ran(agent, script([call, call], [call], "done"))
    assert (marks(path), sorted(results(run), key=str)) == (3, ["1", "2", "3"])
    assert not any(hits(run))


async def test_c20_failed_executions_are_never_served(agent: Agent, path: str) -> None:
    call = ["refund_on_second_try", {"path": path}]
    run = await ran(agent, script([call], [call], [["say", {"text": "x"}], call], "done"))
    assert [one.error for one in run.ok.tool_executions] == [
        "ValueError: the bank is closed",
        None,
        None,
        None,
    ]
    assert hits(run) == [False, False, False, True]
    assert marks(path) == 2


async def test_c20_duplicates_in_one_turn_share_a_failure_which_is_no_hit(path: str) -> None:
    call = ["refund_on_second_try", {"path": path}]
    run = await ran(inline([call, call], [call], "done"), "x")
    assert [one.error for one in run.ok.tool_executions] == [
        "ValueError: the bank is closed",
        "ValueError: the bank is closed",
        None,
    ]
    assert hits(run) == [False, False, False]
    assert marks(path) == 2


async def test_c20_vetoed_calls_are_never_served_and_not_counted(agent: Agent, path: str) -> None:
    metadata = {"puppet": {"on_before_tool_call": [{"cancel": True}]}}
    run = await ran(
        agent, script([refund(path)], [refund(path)], [refund(path)], "done"), metadata=metadata
    )
    assert (results(run), hits(run)) == (["RF-1", "RF-1"], [False, True])
    assert (marks(path), run.end.total_tool_calls) == (1, 2)
    assert [one.error is None for one in run.completes] == [False, True, True]


async def test_c20_a_call_that_a_hook_forbade_does_not_keep_its_duplicate_from_running(
    path: str,
) -> None:
    metadata = {"puppet": {"on_before_tool_call": [{"cancel": True}]}}
    agent = inline([refund(path), refund(path), refund(path)], "done", hooks=[Puppet()])
    run = await ran(agent, "x", metadata=metadata)
    assert (results(run), hits(run), marks(path)) == (["RF-1", "RF-1"], [False, True], 1)


async def test_c20_what_counts_are_the_arguments_after_the_hooks(path: str) -> None:
    steps = [{"arguments": {"path": path, "amount": 5}}, None, {"arguments": {"path": path}}]
    agent = inline(
        [refund(path), refund(path, amount=5), refund(path, amount=7)], "done", hooks=[Puppet()]
    )
    run = await ran(agent, "x", metadata={"puppet": {"on_before_tool_call": steps}})
    assert (marks(path), hits(run)) == (2, [False, True, False])


async def test_c20_what_is_served_is_what_the_after_hooks_made_of_it(path: str) -> None:
    metadata = {"puppet": {"on_after_tool_call": [{"result": "[redacted]"}]}}
    agent = inline([refund(path), refund(path)], [refund(path)], "done", hooks=[Puppet()])
    run = await ran(agent, "x", metadata=metadata)
    assert results(run) == ["[redacted]"] * 3
    assert (hits(run), marks(path)) == ([False, True, True], 1)


async def test_c20_duplicates_wait_for_the_retries_of_the_call_they_share(path: str) -> None:
    metadata = {"puppet": {"on_after_tool_call": [{"retry": True}, {"retry": True}]}}
    agent = inline([refund(path), refund(path)], "done", hooks=[Puppet()])
    run = await ran(agent, "x", metadata=metadata)
    assert (results(run), hits(run), marks(path)) == (["RF-3", "RF-3"], [False, True], 3)


@pytest.mark.parametrize("order", ["concurrent", "sequential"])
async def test_c20_a_hit_needs_no_executor(order: str, path: str, thread: str) -> None:
    agent = inline([refund(path)], [refund(path), refund(path)], "done", tool_execution=order)
    await ran(agent, "x", thread_id=thread)
    intents = [one for one in await records_of(thread) if isinstance(one, ToolIntents)]
    assert [len(one.intents) for one in intents] == [1]
    assert marks(path) == 1


# C20 over the runs of a thread


async def test_c20_a_later_run_of_the_thread_is_served_the_record(
    agent: Agent, path: str, thread: str
) -> None:
    for number in range(2):
        run = await ran(agent, script([refund(path)], "done"), thread_id=thread)
        execution = run.ok.tool_executions[-1]
        assert (execution.result, execution.idempotent_cache_hit) == ("RF-1", number == 1)
        assert execution.run_id == run.ok.run_id
        assert run.end.total_tool_calls == 1
    assert marks(path) == 1


async def test_c20_another_thread_is_not_served(agent: Agent, path: str, thread: str) -> None:
    for name in ("a", "b"):
        run = await ran(agent, script([refund(path)], "done"), thread_id=f"{thread} {name}")
        assert hits(run) == [False]
    assert marks(path) == 2


async def test_c20_runs_without_a_thread_do_not_share(path: str) -> None:
    agent = inline([refund(path)], "done")
    for _ in range(2):
        assert hits(await ran(agent, "x")) == [False]
    assert marks(path) == 2


async def test_c20_another_agent_on_the_thread_is_served_too(path: str, thread: str) -> None:
    for expected in (False, True):
        run = await ran(inline([refund(path)], "done"), "x", thread_id=thread)
        assert run.ok.tool_executions[-1].idempotent_cache_hit is expected


async def test_c20_what_failed_in_an_earlier_run_is_not_served(path: str, thread: str) -> None:
    call = ["refund_on_second_try", {"path": path}]
    told = []
    for _ in range(3):
        run = await ran(inline([call], "done"), "x", thread_id=thread)
        told.append((run.completes[0].result, run.ok.tool_executions[-1].idempotent_cache_hit))
    assert told == [(None, False), ("RF", False), ("RF", True)]


async def test_c20_what_was_cancelled_in_an_earlier_run_is_not_served(
    path: str, thread: str
) -> None:
    started = asyncio.Event()

    @tool(idempotent=True)
    async def hangs_once(path: str) -> int:
        """Hang the first time."""
        if mark(path) == 1:
            started.set()
            await asyncio.Event().wait()
        return marks(path)

    agent = inline([["hangs_once", {"path": path}]], "done", tools=[hangs_once])
    handle = agent.start("x", thread_id=thread)
    await started.wait()
    handle.cancel()
    cancelled = await followed(handle)
    assert cancelled.end.reason == "cancelled"
    run = await ran(agent, "x", thread_id=thread)
    execution = run.ok.tool_executions[-1]
    assert (execution.result, execution.idempotent_cache_hit) == ("2", False)


async def test_c20_what_ended_in_a_run_that_failed_is_served(path: str, thread: str) -> None:
    agent = inline([refund(path)], "done", hooks=[Puppet()])
    metadata = {"puppet": {"on_iteration_end": ["raise"]}}
    assert (await ran(agent, "x", thread_id=thread, metadata=metadata)).end.reason == "error"
    run = await ran(agent, "x", thread_id=thread)
    assert (run.completes[0].result, marks(path)) == ("RF-1", 1)


# the page's function


def executed(result: str | None, error: str | None = None, **arguments: Any) -> ToolExecution:
    return ToolExecution("pay", "c", arguments, result, error)


def test_find_matching_execution_finds_the_newest_that_succeeded() -> None:
    old, new = executed("old", n=1), executed("new", n=1)
    failed, other = executed(None, "no", n=1), executed("x", n=2)
    assert find_matching_execution([old, new, failed, other], "pay", {"n": 1}) is new
    assert find_matching_execution([failed], "pay", {"n": 1}) is None
    assert find_matching_execution([old], "refund", {"n": 1}) is None
    assert find_matching_execution([], "pay", {"n": 1}) is None


@pytest.mark.parametrize("other", [1.0, True, "1", None, [1], {"n": 1}])
def test_find_matching_execution_compares_types(other: Any) -> None:
    assert find_matching_execution([executed("x", n=1)], "pay", {"n": other}) is None
