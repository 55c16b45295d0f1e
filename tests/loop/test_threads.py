"""C11, C12: a new run on a known thread, and two at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.loop.support import (
    HookTrouble,
    ModelTrouble,
    Puppet,
    followed,
    inline,
    plain_id,
    ran,
    records_of,
    script,
)
from tulip_actors import (
    Agent,
    AgentState,
    HookProvider,
    Message,
    Role,
    TerminateEvent,
    ThreadBusy,
    tool,
)
from tulip_actors.core.runs import RunEnded
from tulip_actors.core.termination import (
    ConfidenceMet,
    MaxIterations,
    NoToolCalls,
    TextMention,
    TokenLimit,
    ToolCalled,
)
from tulip_actors.memory.fold import standing
from tulip_actors.testing import FunctionModel

ADD: Any = ["add", {"a": 1, "b": 2}]
ADDS: Any = {"calls": [ADD], "usage": [10, 2]}


def spoken(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.role.value, message.content) for message in messages]


async def test_c11_a_new_run_continues_the_conversation(agent: Agent, thread: str) -> None:
    first, second = script([ADD], "three"), script("heard")
    await ran(agent, first, thread_id=thread)
    run = await ran(agent, second, thread_id=thread)
    said = [
        ("user", first),
        ("assistant", ""),
        ("tool", "3"),
        ("assistant", "three"),
        ("user", second),
    ]
    assert spoken(run.ok.messages)[:-1] == said
    assert run.ok.message == json.dumps([content for _, content in said])


async def test_c11_counters_are_fresh_and_earlier_executions_are_kept(
    agent: Agent, thread: str
) -> None:
    prompt = script(ADDS, {"text": "three", "usage": [1, 1]})
    first = await ran(agent, prompt, thread_id=thread)
    second = await ran(agent, prompt, thread_id=thread)
    for run in (first, second):
        assert (run.end.iterations_used, run.end.total_tool_calls) == (2, 1)
        assert (run.ok.iterations, run.ok.metrics.tool_calls) == (2, 1)
        assert run.end.usage == {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
        assert [think.iteration for think in run.thinks] == [0, 1]
    assert [one.run_id for one in second.ok.tool_executions] == [first.ok.run_id, second.ok.run_id]


async def test_c11_three_runs_are_one_conversation_with_one_system_prompt(thread: str) -> None:
    agent = inline("hi", system_prompt="Be brief.")
    for number in range(3):
        run = await ran(agent, f"hello {number}", thread_id=thread)
    assert spoken(run.ok.messages) == [
        ("system", "Be brief."),
        *[
            said
            for number in range(3)
            for said in (("user", f"hello {number}"), ("assistant", "hi"))
        ],
    ]


async def test_c11_another_agent_continues_the_thread(thread: str) -> None:
    await ran(inline("I am one"), "who?", thread_id=thread)
    run = await ran(inline("I am two"), "and now?", thread_id=thread)
    assert [content for _, content in spoken(run.ok.messages)] == [
        *("who?", "I am one", "and now?", "I am two")
    ]


async def test_c11_runs_without_a_thread_remember_nothing() -> None:
    agent = inline("hi")
    for _ in range(2):
        run = await ran(agent, "x")
        assert len(run.ok.messages) == 2
        assert run.ok.thread_id == run.ok.run_id


@pytest.mark.parametrize(
    "termination",
    [
        NoToolCalls(),
        TextMention("three"),
        ToolCalled("add"),
        ToolCalled("add", require_success=True),
        MaxIterations(2),
        TokenLimit(20),
        ConfidenceMet(0.2),
    ],
    ids=plain_id,
)
async def test_c11_a_condition_met_in_an_earlier_run_does_not_end_a_later_one(
    termination: Any, thread: str
) -> None:
    first = inline(ADDS, ADDS, {"text": "three", "usage": [10, 2]}, reflexion=True)
    await ran(first, "x", thread_id=thread)
    run = await ran(inline("hi", termination=termination), "y", thread_id=thread)
    assert (run.end.reason, run.end.final_message) == ("complete", "hi")


async def test_c11_confidence_and_its_history_start_anew(thread: str) -> None:
    agent = inline(ADDS, "three", reflexion=True)
    for _ in range(2):
        run = await ran(agent, "x", thread_id=thread)
        assert run.end.final_confidence == 0.15
        assert list(run.ok.state.confidence_history) == [0.15]


async def test_c11_budgets_start_anew(thread: str) -> None:
    agent = inline(ADDS, "three", token_budget=13, max_iterations=2)
    for _ in range(3):
        assert (await ran(agent, "x", thread_id=thread)).end.reason == "complete"


async def test_c11_tool_loop_detection_reads_this_run_alone(thread: str) -> None:
    agent = inline(ADDS, ADDS, "three")
    for _ in range(3):
        assert (await ran(agent, "x", thread_id=thread)).end.reason == "complete"
    assert (await ran(inline(ADDS), "x", thread_id=thread)).end.iterations_used == 3


async def test_c11_the_reflector_reads_this_run_alone(thread: str) -> None:
    agent = inline(ADDS, ADDS, "three", reflexion=True)
    for _ in range(2):
        run = await ran(agent, "x", thread_id=thread)
        assert [one.assessment for one in run.reflections] == ["on_track", "on_track"]


async def test_c11_errors_counted_are_this_runs(thread: str) -> None:
    await ran(inline([["fails", {"message": "x"}]], "went on"), "x", thread_id=thread)
    run = await ran(inline(ADDS, "three"), "x", thread_id=thread)
    assert (run.ok.metrics.tool_errors, run.ok.metrics.tool_calls) == (0, 1)


@pytest.mark.parametrize(
    "second",
    [
        {"turns": [ModelTrouble("overloaded")]},
        {"turns": ["x"], "termination": ConfidenceMet(0)},
        {"turns": [ADDS], "termination": MaxIterations(1)},
        {"turns": [{"text": ""}]},
    ],
    ids=["error", "at once", "at the cap", "empty"],
)
async def test_c11_a_run_that_said_nothing_does_not_repeat_what_the_last_one_said(
    second: dict[str, Any], thread: str
) -> None:
    await ran(inline("the answer of the first run"), "x", thread_id=thread)
    turns = second.pop("turns")
    run = await ran(inline(*turns, output_key="answer", **second), "y", thread_id=thread)
    assert run.end.final_message is None
    if run.result is not None:
        assert run.ok.message == ""
        assert run.ok.state.metadata["answer"] == ""


async def test_c11_what_a_failed_run_did_is_in_the_thread(agent: Agent, thread: str) -> None:
    failing = script([ADD], {"raise": "overloaded"})
    assert (await ran(agent, failing, thread_id=thread)).end.reason == "error"
    run = await ran(agent, script("hi"), thread_id=thread)
    assert [role for role, _ in spoken(run.ok.messages)] == [
        *("user", "assistant", "tool", "user", "assistant")
    ]


async def test_c11_f19_a_thread_left_by_a_cancelled_run_has_a_result_for_every_call(
    thread: str,
) -> None:
    started = asyncio.Event()

    @tool
    async def hangs() -> None:
        """Never end."""
        started.set()
        await asyncio.Event().wait()

    agent = inline([["hangs", {}], ["hangs", {}]], tools=[hangs])
    handle = agent.start("x", thread_id=thread)
    await started.wait()
    handle.cancel()
    assert (await followed(handle)).end.reason == "cancelled"
    run = await ran(inline("hi"), "y", thread_id=thread)
    assert [role for role, _ in spoken(run.ok.messages)] == [
        *("user", "assistant", "tool", "tool", "user", "assistant")
    ]
    told = [message for message in run.ok.messages if message.role is Role.TOOL]
    assert all(message.is_error and "cancelled" in message.content for message in told)


async def test_c11_the_summary_at_the_cap_is_part_of_the_thread(thread: str) -> None:
    first = await ran(inline(ADDS, "so far", max_iterations=1), "x", thread_id=thread)
    run = await ran(inline("hi"), "y", thread_id=thread)
    assert list(run.ok.messages[:-2]) == list(first.ok.messages)
    assert run.ok.messages[-3] == Message.assistant("so far")


async def test_c11_the_summary_of_task_complete_is_part_of_the_thread(thread: str) -> None:
    done: Any = [["task_complete", {"summary": "so far"}]]
    first = await ran(inline(done, completion_mode="explicit"), "x", thread_id=thread)
    run = await ran(inline("hi"), "y", thread_id=thread)
    assert list(run.ok.messages[:-2]) == list(first.ok.messages)


async def test_c11_guidance_of_reflexion_is_part_of_the_thread(thread: str) -> None:
    failing: Any = [["fails", {"message": "x"}]]
    first = await ran(inline(failing, "went on", reflexion=True), "x", thread_id=thread)
    run = await ran(inline("hi"), "y", thread_id=thread)
    assert list(run.ok.messages[:-2]) == list(first.ok.messages)
    assert Role.SYSTEM in [message.role for message in first.ok.messages]


async def test_c11_the_model_of_a_later_run_sees_what_the_messages_say(thread: str) -> None:
    await ran(inline(ADDS, "three"), "x", thread_id=thread)
    agent = inline("hi")
    run = await ran(agent, "y", thread_id=thread)
    (asked,) = await agent.model_trace()
    assert list(asked.messages) == list(run.ok.messages[:-1])  # type: ignore[attr-defined]


# what a hook makes of the thread before the first turn


class Rewrites(HookProvider):
    """Replaces the messages before the first turn."""

    def __init__(self, rewrite: Any) -> None:
        self.rewrite = rewrite

    def on_before_invocation(self, prompt: str, state: AgentState) -> AgentState:
        return replace(state, messages=type(state.messages)(self.rewrite(list(state.messages))))


REWRITES = {
    "drops the first two": lambda messages: messages[2:],
    "drops everything but the prompt": lambda messages: messages[-1:],
    "changes an early one": lambda messages: [Message.user("[redacted]"), *messages[1:]],
    "puts one in front": lambda messages: [Message.system("note"), *messages],
    "adds one": lambda messages: [*messages, Message.system("note")],
    "changes the prompt": lambda messages: [*messages[:-1], Message.user("[redacted]")],
    "changes nothing": lambda messages: messages,
}


@pytest.mark.parametrize("rewrite", REWRITES)
async def test_c27_what_a_hook_made_of_the_messages_is_what_the_thread_holds(
    rewrite: str, thread: str
) -> None:
    await ran(inline("one"), "first", thread_id=thread)
    hook = Rewrites(REWRITES[rewrite])
    second = await ran(inline("two", hooks=[hook]), "second", thread_id=thread)
    assert list(standing(await records_of(thread)).state.messages) == list(second.ok.messages)
    third = await ran(inline("three"), "third", thread_id=thread)
    assert list(third.ok.messages[:-2]) == list(second.ok.messages)


async def test_c29_a_run_refused_before_it_began_leaves_no_prompt_in_the_thread(
    agent: Agent, thread: str
) -> None:
    plan = {"puppet": {"on_before_invocation": ["raise"]}}
    refused = await ran(agent, script("a secret"), thread_id=thread, metadata=plan)
    assert isinstance(refused.failure, HookTrouble)
    run = await ran(agent, script("hi"), thread_id=thread)
    assert spoken(run.ok.messages) == [("user", script("hi")), ("assistant", "hi")]


async def test_c29_the_final_record_of_a_refused_run_is_written(thread: str) -> None:
    plan = {"puppet": {"on_before_invocation": ["raise"]}}
    await ran(inline("x", hooks=[Puppet()]), "x", thread_id=thread, metadata=plan)
    last = (await records_of(thread))[-1]
    assert isinstance(last, RunEnded)
    assert (last.stop_reason, last.reason) == ("error", "error")


# C12


async def test_c12_of_two_runs_at_once_on_a_thread_one_is_refused(
    agent: Agent, thread: str, path: str
) -> None:
    prompt = script([["last", {"path": path}]], "done")
    handles = [agent.start(prompt, thread_id=thread) for _ in range(2)]
    runs = [await followed(handle) for handle in handles]
    # which of two that start in the same moment comes first is not promised
    (done,) = [run for run in runs if run.failure is None]
    (refused,) = [run for run in runs if run.failure is not None]
    assert done.ok.message == "done"
    assert isinstance(refused.failure, ThreadBusy)
    assert [type(event) for event in refused.events] == [TerminateEvent]
    assert refused.end.stop_reason == "error"


async def test_c12_the_refused_run_changed_nothing(thread: str) -> None:
    go = asyncio.Event()

    async def waits(messages: Sequence[Message], tools: object) -> str:
        await go.wait()
        return "done"

    agent = inline(model=FunctionModel(waits))
    first = agent.start("first", thread_id=thread)
    refused = await followed(agent.start("second", thread_id=thread))
    assert isinstance(refused.failure, ThreadBusy)
    go.set()
    await first.result()
    run = await ran(agent, "third", thread_id=thread)
    assert [content for _, content in spoken(run.ok.messages)] == ["first", "done", "third", "done"]


async def test_c12_runs_of_different_threads_never_see_one_another(
    agent: Agent, thread: str
) -> None:
    prompts = [script([["say", {"text": str(n)}]], f"done {n}") for n in range(5)]
    for turn in range(2):
        handles = [agent.start(p, thread_id=f"{thread} {n}") for n, p in enumerate(prompts)]
        for n, handle in enumerate(handles):
            run = await followed(handle)
            said = [content for role, content in spoken(run.ok.messages) if role != "assistant"]
            assert said == [prompts[n], str(n)] * (turn + 1)
