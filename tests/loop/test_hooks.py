"""C27-C29: every callback, at the right time, with the right arguments; what it may change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.loop.support import (
    CALLBACKS,
    Calls,
    HookTrouble,
    Keeper,
    Puppet,
    followed,
    inline,
    mark,
    marks,
    plain_id,
    ran,
    records_of,
    script,
    told_by,
)
from tulip_actors import (
    Agent,
    AgentState,
    CausalNodeEvent,
    HookProvider,
    Message,
    ReflectEvent,
    Role,
    RunCancelled,
    TerminateEvent,
    ToolArgumentsInvalid,
    ToolContext,
    ToolError,
    ToolVetoed,
    current_run,
    tool,
)
from tulip_actors.core.events import TulipEvent
from tulip_actors.core.runs import RunEnded, ToolFinished
from tulip_actors.hooks import (
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
)
from tulip_actors.memory.fold import standing
from tulip_actors.testing import ScriptedModel

ADD: Any = ["add", {"a": 1, "b": 2}]


def plan(**steps: Any) -> dict[str, Any]:
    """Metadata for the puppet."""
    return {"puppet": steps}


# when, and with what


async def test_c27_every_callback_is_called_at_its_time_with_its_arguments(agent: Agent) -> None:
    prompt = script({"text": "let me see", "calls": [ADD]}, "three")
    run = await ran(agent, prompt)
    assert told_by(run.events) == [
        ("on_before_invocation", prompt),
        ("on_iteration_start", "0 0"),
        ("on_before_model_call", "0 user"),
        ("on_after_model_call", "0 1 let me see"),
        ("on_before_tool_call", "0 add call_0 {'a': 1, 'b': 2}"),
        ("on_after_tool_call", "0 add 1 3 None"),
        ("on_iteration_end", "0 0"),
        ("on_iteration_start", "1 1"),
        ("on_before_model_call", "1 user,assistant,tool"),
        ("on_after_model_call", "1 1 three"),
        ("on_iteration_end", "1 1"),
        ("on_after_invocation", "2 True"),
    ]


async def test_c27_callbacks_stand_between_the_events_they_belong_to(agent: Agent) -> None:
    run = await ran(agent, script([ADD], "three"))
    seen = [
        event.node_id if isinstance(event, CausalNodeEvent) else event.event_type
        for event in run.events
    ]
    assert seen[3:9] == [
        *("on_after_model_call", "think", "on_before_tool_call", "tool_start"),
        *("on_after_tool_call", "tool_complete"),
    ]
    assert seen[-2:] == ["on_after_invocation", "terminate"]


async def test_c27_current_run_in_a_callback_is_the_run_that_calls(agent: Agent) -> None:
    run = await ran(agent, script([ADD], "three"), metadata={"a": 1})
    told = run.of(CausalNodeEvent)
    assert len(told) == 12
    assert {event.source.run_id for event in told if event.source} == {run.ok.run_id}


async def test_c27_failed_calls_are_shown_with_their_error(agent: Agent) -> None:
    run = await ran(agent, script([["fails", {"message": "x"}]], "went on"))
    assert ("on_after_tool_call", "0 fails 1 None ValueError: x") in told_by(run.events)


async def test_c27_on_event_sees_every_event(agent: Agent, path: str) -> None:
    prompt = script([ADD], [["fails", {"message": "x"}]], "a longer answer")
    run = await ran(agent, prompt, metadata={"watch": path}, stream_tokens=True)
    assert marks(path) == len(run.events)


async def test_c27_on_event_is_handed_the_very_events_of_the_stream() -> None:
    class Sees(HookProvider):
        def __init__(self) -> None:
            self.seen: list[TulipEvent] = []

        def on_event(self, event: TulipEvent) -> None:
            self.seen.append(event)

    hook = Sees()
    run = await ran(inline([ADD], "three", hooks=[hook], reflexion=True), "x", stream_tokens=True)
    assert hook.seen == run.events


async def test_c27_what_a_run_is_known_by_can_be_read_in_a_callback() -> None:
    told: list[tuple[Any, ...]] = []

    class Asks(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            run = current_run()
            assert run is not None
            told.append((run.run_id, run.thread_id, run.agent_id, dict(run.metadata)))

    agent = inline("hi", hooks=[Asks()])
    run = await ran(agent, "x", thread_id="t27", metadata={"user": "ada"})
    assert told == [(run.ok.run_id, "t27", agent.id, {"user": "ada"})]


@pytest.mark.parametrize("callback", [*CALLBACKS, "a tool"])
async def test_c27_set_metadata_is_folded_into_the_state(callback: str) -> None:
    def sets(*_: object) -> None:
        run = current_run()
        assert run is not None
        run.set_metadata("seen", {"by": callback})

    @tool
    async def sets_it() -> None:
        """Set an entry."""
        sets()

    hook = type("Sets", (HookProvider,), {callback: sets})()
    agent = inline([["sets_it", {}]], "done", tools=[sets_it])
    if callback != "a tool":
        agent = inline([ADD], "done", hooks=[hook])
    run = await ran(agent, "x", metadata={"a": 1})
    assert run.ok.state.metadata == {"a": 1, "seen": {"by": callback}}


async def test_c27_metadata_set_in_a_turn_is_read_by_the_next_one() -> None:
    seen: list[Mapping[str, object]] = []

    class Counts(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            seen.append(dict(state.metadata))

        def on_iteration_end(self, iteration: int, state: AgentState) -> None:
            run = current_run()
            assert run is not None
            run.set_metadata("turns", iteration + 1)

    await ran(inline([ADD], [ADD], "three", hooks=[Counts()]), "x")
    assert seen == [{}, {"turns": 1}, {"turns": 2}]


async def test_c27_metadata_that_json_cannot_hold_is_refused_where_it_is_set() -> None:
    class Sets(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            run = current_run()
            assert run is not None
            run.set_metadata("client", object())

    run = await ran(inline("hi", hooks=[Sets()]), "x")
    assert run.end.reason == "error"
    assert "metadata.client" in str(run.failure)


# order


async def test_c27_before_in_order_after_in_reverse() -> None:
    log: list[tuple[str, str]] = []
    agent = inline("hi", hooks=[Calls(log, "a"), Calls(log, "b")])
    await ran(agent, "x")
    assert [f"{name} {callback[3:]}" for name, callback in log] == [
        "a before_invocation",
        "b before_invocation",
        "a iteration_start",
        "b iteration_start",
        "a before_model_call",
        "b before_model_call",
        "b after_model_call",
        "a after_model_call",
        "b iteration_end",
        "a iteration_end",
        "b after_invocation",
        "a after_invocation",
    ]


async def test_c27_priority_sorts_and_the_list_decides_among_equals() -> None:
    log: list[tuple[str, str]] = []
    hooks = [Calls(log, name) for name in ("late", "a", "first", "b")]
    hooks[0].priority, hooks[2].priority = 80, 1
    await ran(inline([ADD], "three", hooks=hooks), "x")
    order = ["first", "a", "b", "late"]
    for callback in CALLBACKS:
        called = [name for name, which in log if which == callback][:4]
        forward = callback.endswith("_start") or "before" in callback
        assert called == (order if forward else order[::-1]), callback


async def test_c27_each_callback_may_be_plain_or_async() -> None:
    log: list[str] = []

    def plain(name: str) -> Any:
        return lambda self, *arguments: log.append(f"plain {name}")

    def slow(name: str) -> Any:
        async def callback(self: object, *arguments: object) -> None:
            await asyncio.sleep(0)
            log.append(f"async {name}")

        return callback

    hooks = [
        type("Plain", (HookProvider,), {name: plain(name) for name in CALLBACKS})(),
        type("Async", (HookProvider,), {name: slow(name) for name in CALLBACKS})(),
    ]
    assert (await ran(inline([ADD], "three", hooks=hooks), "x")).ok.message == "three"
    for name in CALLBACKS:
        assert log.count(f"plain {name}") == log.count(f"async {name}") >= 1


async def test_c27_one_hook_may_stand_in_the_list_twice() -> None:
    hook = Calls()
    await ran(inline("hi", hooks=[hook, hook]), "x")
    assert hook.log.count(("", "on_iteration_start")) == 2


# on_before_invocation


async def test_c27_on_before_invocation_may_return_a_new_state(agent: Agent) -> None:
    run = await ran(agent, script("heard"), metadata={"note": "Be kind."})
    assert json.loads(run.ok.message) == [script("heard"), "Be kind."]
    assert [message.content for message in run.ok.messages[:2]] == [script("heard"), "Be kind."]


async def test_c27_each_hook_is_handed_the_state_of_the_one_before() -> None:
    class Adds(HookProvider):
        def __init__(self, text: str) -> None:
            self.text = text

        async def on_before_invocation(self, prompt: str, state: AgentState) -> AgentState:
            return state.with_message(Message.system(f"{self.text} {len(state.messages)}"))

    run = await ran(inline("hi", hooks=[Adds("a"), Adds("b")]), "x")
    assert [message.content for message in run.ok.messages] == ["x", "a 1", "b 2", "hi"]


async def test_c27_metadata_of_a_returned_state_reaches_the_tools() -> None:
    @tool
    async def who(ctx: ToolContext) -> str:
        """Who asks."""
        return str(ctx.metadata["user"])

    class Knows(HookProvider):
        def on_before_invocation(self, prompt: str, state: AgentState) -> AgentState:
            return state.with_metadata("user", "ada")

    run = await ran(inline([["who", {}]], "done", tools=[who], hooks=[Knows()]), "x")
    assert run.completes[0].result == "ada"


@pytest.mark.parametrize("answer", ["text", 3, {"a": 1}, Message.user("x")], ids=plain_id)
async def test_c27_a_hook_that_returns_something_else_says_so(answer: Any) -> None:
    class Wrong(HookProvider):
        def on_before_invocation(self, prompt: str, state: AgentState) -> Any:
            return answer

    run = await ran(inline("hi", hooks=[Wrong()]), "x")
    assert run.end.reason == "error"
    assert type(answer).__name__ in str(run.failure)
    assert "AgentState" in str(run.failure)


async def test_c27_a_state_of_another_run_is_refused_or_becomes_this_runs() -> None:
    class Restores(HookProvider):
        """Returns what it kept of an earlier run."""

        def on_before_invocation(self, prompt: str, state: AgentState) -> AgentState:
            kept = AgentState("an earlier run", "an earlier thread", "another agent")
            return kept.with_messages(*state.messages)

    run = await ran(inline([ADD], "three", hooks=[Restores()]), "x")
    assert run.events[-1].source is not None
    if run.failure is not None:
        assert "run_id" in str(run.failure)
    else:
        assert run.ok.run_id == run.events[-1].source.run_id
        assert (run.end.total_tool_calls, run.ok.metrics.tool_calls) == (1, 1)


# the model's two events


async def test_c27_messages_assigned_change_what_the_model_sees_alone(agent: Agent) -> None:
    steps = [{"messages": ["something else"]}]
    run = await ran(agent, script("heard"), metadata=plan(on_before_model_call=steps))
    assert json.loads(run.ok.message) == ["something else"]
    assert run.ok.messages[0].content == script("heard")
    assert len(run.ok.messages) == 2


async def test_c27_messages_assigned_hold_for_one_turn() -> None:
    steps = [{"messages": ["something else"]}]
    agent = inline([ADD], "three", hooks=[Puppet()])
    await ran(agent, "x", metadata=plan(on_before_model_call=steps))
    first, second = await agent.model_trace()
    assert [message.content for message in first.messages] == ["something else"]  # type: ignore[attr-defined]
    assert second.messages[0].content == "x"  # type: ignore[attr-defined]


async def test_c27_a_later_hook_sees_the_messages_of_an_earlier_one() -> None:
    first, second = Puppet("first"), Puppet("second")
    steps = {"first": {"on_before_model_call": [{"messages": ["a", "b"]}]}}
    run = await ran(inline("hi", hooks=[first, second]), "x", metadata=steps)
    assert ("on_before_model_call", "0 user,user") in told_by(run.events, "second")


async def test_c28_a_response_assigned_is_what_everybody_sees(agent: Agent, thread: str) -> None:
    steps = [{"response": "redacted"}]
    prompt = script("my secret")
    metadata = plan(on_after_model_call=steps)
    run = await ran(agent, prompt, metadata=metadata, thread_id=thread)
    assert (run.ok.message, run.end.final_message) == ("redacted", "redacted")
    assert run.thinks[0].reasoning == "redacted"
    later = await ran(agent, script("heard"), thread_id=thread)
    assert "redacted" in json.loads(later.ok.message)
    assert "my secret" not in json.loads(later.ok.message)


async def test_c28_a_response_assigned_may_call_tools(agent: Agent) -> None:
    steps = [{"response": {"calls": [ADD]}}]
    run = await ran(agent, script("x", "three"), metadata=plan(on_after_model_call=steps))
    assert [one.result for one in run.ok.tool_executions] == ["3"]


async def test_c28_what_the_model_cost_is_counted_when_its_answer_was_replaced() -> None:
    answer: Any = {"text": "my secret", "usage": [10, 2]}
    agent = inline(answer, hooks=[Puppet()])
    run = await ran(agent, "x", metadata=plan(on_after_model_call=[{"response": "redacted"}]))
    assert run.end.usage == {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}


async def test_c28_an_answer_that_a_hook_emptied_is_asked_for_once_more(agent: Agent) -> None:
    steps = [{"response": ""}]
    run = await ran(agent, script("one", "two"), metadata=plan(on_after_model_call=steps))
    assert run.ok.message == "two"


async def test_c28_retry_asks_the_model_again(agent: Agent) -> None:
    steps = [{"retry": True}, {"retry": True}, None]
    turns = [{"text": str(n), "usage": [n, 0]} for n in (1, 2, 3)]
    run = await ran(agent, script(*turns), metadata=plan(on_after_model_call=steps))
    assert (run.ok.message, len(run.thinks), run.end.iterations_used) == ("3", 1, 1)
    assert run.ok.metrics.prompt_tokens == 6
    told = [label for name, label in told_by(run.events) if name == "on_after_model_call"]
    assert told == ["0 1 1", "0 2 2", "0 3 3"]


async def test_c28_the_model_is_asked_again_at_most_five_times(agent: Agent) -> None:
    steps = [{"retry": True}] * 9
    run = await ran(agent, script(*"123456789"), metadata=plan(on_after_model_call=steps))
    assert run.ok.message == "6"
    assert [name for name, _ in told_by(run.events)].count("on_after_model_call") == 6


async def test_c28_each_turn_has_its_own_five_retries() -> None:
    steps = [{"retry": True}] * 12
    turns: list[Any] = [[ADD]] * 6 + ["three"] * 6
    agent = inline(*turns, hooks=[Puppet()])
    run = await ran(agent, "x", metadata=plan(on_after_model_call=steps))
    assert (run.ok.message, run.end.iterations_used) == ("three", 2)
    assert len(await agent.model_trace()) == 12


@pytest.mark.parametrize("response", ["text", None, Message.assistant("x"), 3], ids=plain_id)
async def test_c27_a_response_of_another_kind_is_taken_for_its_text_or_refused_by_name(
    response: Any,
) -> None:
    class Assigns(HookProvider):
        def on_after_model_call(self, event: AfterModelCallEvent) -> None:
            event.response = response

    run = await ran(inline("hi", hooks=[Assigns()]), "x")
    if run.failure is None:
        assert run.ok.message in {"text", "x"}
    else:
        assert "response" in str(run.failure)
        assert "ModelResponse" in str(run.failure)


# the tools' two events


async def test_c27_arguments_assigned_are_what_the_body_gets(agent: Agent) -> None:
    steps = [{"arguments": {"a": 10, "b": "20"}}]
    run = await ran(agent, script([ADD], "done"), metadata=plan(on_before_tool_call=steps))
    assert run.starts[0].arguments == {"a": 10, "b": 20}, "validated and coerced again"
    assert run.ok.tool_executions[0].arguments == {"a": 10, "b": 20}
    assert run.completes[0].result == "30"


@pytest.mark.parametrize("arguments", [{}, {"a": 1}, {"a": "x", "b": 1}, {"a": 1, "b": 1, "c": 1}])
async def test_c27_arguments_assigned_that_are_not_valid_refuse_the_call(
    agent: Agent, arguments: Any
) -> None:
    steps = [{"arguments": arguments}]
    run = await ran(agent, script([ADD], "went on"), metadata=plan(on_before_tool_call=steps))
    assert run.ok.message == "went on"
    assert "arguments of add are not valid" in str(run.completes[0].error)
    assert run.end.total_tool_calls == 0


async def test_c27_arguments_that_json_cannot_hold_refuse_the_call() -> None:
    class Assigns(HookProvider):
        def on_before_tool_call(self, event: BeforeToolCallEvent) -> None:
            event.arguments = {"a": object(), "b": 1}  # type: ignore[dict-item]

    run = await ran(inline([ADD], "went on", hooks=[Assigns()]), "x")
    assert run.ok.message == "went on"
    assert "object" in str(run.completes[0].error)


async def test_c27_arguments_cannot_be_changed_in_place() -> None:
    class Changes(HookProvider):
        def on_before_tool_call(self, event: BeforeToolCallEvent) -> None:
            event.arguments["a"] = 5  # type: ignore[index]

    run = await ran(inline([ADD], hooks=[Changes()]), "x")
    assert isinstance(run.failure, TypeError)
    assert run.end.reason == "error"


@pytest.mark.parametrize("cancel", [True, "refunds need a manager"])
async def test_c27_a_cancelled_call_is_an_error_for_the_model_and_counts_neither_way(
    agent: Agent, path: str, cancel: bool | str
) -> None:
    steps = [{"cancel": cancel}]
    prompt = script([["count", {"path": path}], ADD], "went on")
    run = await ran(agent, prompt, metadata=plan(on_before_tool_call=steps))
    assert marks(path) == 0
    assert (run.ok.message, run.end.total_tool_calls) == ("went on", 1)
    assert [one.tool_name for one in run.ok.tool_executions] == ["add"]
    told = next(message for message in run.ok.messages if message.role is Role.TOOL)
    assert told.is_error
    assert str(cancel) in told.content or cancel is True
    assert run.completes[0].error
    assert run.ok.metrics.tool_errors == 0
    assert [n for n, _ in told_by(run.events)].count("on_after_tool_call") == 1


async def test_c23_a_vetoed_call_counts_neither_way_for_reflexion() -> None:
    agent = inline([ADD, ADD], "done", hooks=[Puppet()], reflexion=True)
    run = await ran(agent, "x", metadata=plan(on_before_tool_call=[{"cancel": True}]))
    assert [one.new_confidence for one in run.reflections] == [0.15]


async def test_c28_a_result_assigned_is_what_everybody_sees(agent: Agent, thread: str) -> None:
    steps = [{"result": "redacted"}]
    call = ["say", {"text": "my secret"}]
    metadata = plan(on_after_tool_call=steps)
    run = await ran(agent, script([call], "done"), metadata=metadata, thread_id=thread)
    assert run.completes[0].result == "redacted"
    assert run.ok.tool_executions[0].result == "redacted"
    assert run.ok.messages[2].content == "redacted"
    later = await ran(agent, script("heard"), thread_id=thread)
    assert json.loads(later.ok.message)[2] == "redacted"
    assert later.ok.tool_executions[0].result == "redacted"


async def test_c28_a_result_assigned_is_the_only_one_the_store_ever_sees(thread: str) -> None:
    agent = inline([["say", {"text": "x"}]], "done", hooks=[Puppet()])
    metadata = plan(on_after_tool_call=[{"result": "redacted"}])
    await ran(agent, "x", metadata=metadata, thread_id=thread)
    finished = [one for one in await records_of(thread) if isinstance(one, ToolFinished)]
    assert [one.execution.result for one in finished] == ["redacted"]


async def test_c28_a_result_assigned_makes_a_success_of_an_error(agent: Agent) -> None:
    steps = [{"result": "never mind"}]
    prompt = script([["fails", {"message": "x"}]], "done")
    run = await ran(agent, prompt, metadata=plan(on_after_tool_call=steps))
    execution = run.ok.tool_executions[0]
    assert (execution.result, execution.error) == ("never mind", None)
    assert not run.ok.messages[2].is_error


@pytest.mark.parametrize(
    ("value", "text"), [({"a": 1}, '{"a":1}'), (3, "3"), ([1, "x"], '[1,"x"]'), (None, "null")]
)
async def test_c28_a_result_that_is_no_text_is_written_like_a_tools_own(
    value: Any, text: str
) -> None:
    class Assigns(HookProvider):
        def on_after_tool_call(self, event: AfterToolCallEvent) -> None:
            event.result = value

    run = await ran(inline([ADD], "done", hooks=[Assigns()]), "x")
    assert run.ok.tool_executions[0].result == text
    assert (run.completes[0].result, run.completes[0].error) == (text, None)
    assert run.ok.messages[2].content == text


async def test_c28_retry_runs_the_body_again(agent: Agent, path: str) -> None:
    steps = [{"retry": True}, {"retry": True}, None]
    prompt = script([["count", {"path": path}]], "done")
    run = await ran(agent, prompt, metadata=plan(on_after_tool_call=steps))
    assert (marks(path), run.completes[0].result) == (3, "3")
    assert (len(run.starts), len(run.completes), run.end.total_tool_calls) == (1, 1, 1)
    told = [label for name, label in told_by(run.events) if name == "on_after_tool_call"]
    assert told == [f"0 count {n} {n} None" for n in (1, 2, 3)]


async def test_c28_a_call_is_run_again_at_most_five_times(agent: Agent, path: str) -> None:
    steps = [{"retry": True}] * 9
    prompt = script([["count", {"path": path}]], "done")
    run = await ran(agent, prompt, metadata=plan(on_after_tool_call=steps))
    assert (marks(path), run.completes[0].result) == (6, "6")


async def test_c28_a_retry_drops_the_result_that_was_assigned_with_it(path: str) -> None:
    steps = [{"retry": True, "result": "first"}, None]
    agent = inline([["count", {"path": path}]], "done", hooks=[Puppet()])
    run = await ran(agent, "x", metadata=plan(on_after_tool_call=steps))
    assert run.completes[0].result == "2"


async def test_c28_one_of_several_calls_is_run_again_alone(path: str) -> None:
    class RetriesFailures(HookProvider):
        def on_after_tool_call(self, event: AfterToolCallEvent) -> None:
            event.retry = event.error is not None

    retried: Any = ["refund_on_second_try", {"path": path}]
    run = await ran(inline([ADD, retried, ADD], "done", hooks=[RetriesFailures()]), "x")
    assert [one.result for one in run.ok.tool_executions] == ["3", "RF", "3"]
    assert marks(path) == 2


async def test_c27_a_later_hook_sees_what_an_earlier_one_assigned() -> None:
    a, b = Puppet("a"), Puppet("b")
    steps: Any = {
        "a": {"on_before_tool_call": [{"arguments": {"a": 5, "b": 5}}]},
        "b": {"on_after_tool_call": [{"result": "redacted"}]},
    }
    run = await ran(inline([ADD], "done", hooks=[a, b]), "x", metadata=steps)
    before = [label for name, label in told_by(run.events, "b") if name == "on_before_tool_call"]
    after = [label for name, label in told_by(run.events, "a") if name == "on_after_tool_call"]
    assert "'a': 5" in before[0]
    assert after == ["0 add 1 redacted None"]


# C29


@pytest.mark.parametrize("callback", CALLBACKS)
async def test_c29_raising_from_any_callback_ends_the_run_with_error(
    agent: Agent, callback: str, thread: str
) -> None:
    """C7: also from `on_before_invocation`."""
    run = await ran(
        agent,
        script([ADD, ADD], "done"),
        metadata=plan(**{callback: ["raise"]}),
        thread_id=thread,
    )
    assert (run.end.reason, run.end.stop_reason) == ("error", "error")
    assert isinstance(run.failure, HookTrouble)
    assert str(run.failure) == f"{callback} of puppet"
    name, told = told_by(run.events)[-1]
    assert name == "on_after_invocation"
    assert told.endswith(str(callback == "on_after_invocation"))
    with pytest.raises(HookTrouble):
        await agent.arun(script([ADD], "x"), metadata=plan(**{callback: ["raise"]}))
    again = await ran(agent, script("hi"), thread_id=thread)
    assert again.ok.message == "hi", "the thread is free, and its history valid"


@pytest.mark.parametrize("callback", CALLBACKS)
async def test_c29_the_final_record_is_always_written(callback: str, thread: str) -> None:
    agent = inline([ADD, ADD], "done", hooks=[Puppet()])
    await ran(agent, "x", metadata=plan(**{callback: ["raise"]}), thread_id=thread)
    records = await records_of(thread)
    assert [type(one) for one in records].count(RunEnded) == 1
    last = records[-1]
    assert isinstance(last, RunEnded)
    assert (last.stop_reason, last.reason) == ("error", "error")


@pytest.mark.parametrize(
    "trouble",
    [
        ToolError("budget"),
        ToolVetoed("no"),
        ToolArgumentsInvalid("no"),
        TimeoutError("x"),
        AssertionError("x"),
        ExceptionGroup("both", [ValueError("x")]),
    ],
    ids=lambda trouble: type(trouble).__name__,
)
@pytest.mark.parametrize("callback", CALLBACKS)
async def test_c29_whatever_kind_of_exception_it_is(callback: str, trouble: Exception) -> None:
    def raises(*_: object) -> None:
        raise trouble

    hook = type("Raises", (HookProvider,), {callback: raises})()
    run = await ran(inline([ADD], "done", hooks=[hook]), "x")
    assert run.end.reason == "error"
    assert run.failure is trouble


async def test_c29_a_cancelled_run_of_someone_else_is_an_error_like_any_other() -> None:
    class AsksAJudge(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            raise RunCancelled("the judge's run was cancelled", run_id="the judge's run")

    agent = inline("hi", hooks=[AsksAJudge()])
    run = await ran(agent, "x")
    assert run.end.reason == "error"
    assert isinstance(run.failure, RunCancelled)
    with pytest.raises(RunCancelled):
        await agent.arun("x")


async def test_c29_siblings_that_had_started_run_to_their_end_and_are_recorded(
    agent: Agent, path: str, thread: str
) -> None:
    prompt = script([ADD, ["last", {"path": path}], ["fails", {"message": "x"}]], "done")
    metadata = plan(on_after_tool_call=["raise"])
    run = await ran(agent, prompt, metadata=metadata, thread_id=thread)
    assert isinstance(run.failure, HookTrouble)
    assert marks(path) == 1
    outcomes = {one.tool_name: (one.result, one.error) for one in run.completes}
    assert outcomes == {
        "add": ("3", None),
        "last": ("1", None),
        "fails": (None, "ValueError: x"),
    }
    assert run.end.total_tool_calls == 3
    later = await ran(agent, script("hi"), thread_id=thread)
    executions = later.ok.tool_executions
    assert [one.tool_name for one in executions] == ["add", "last", "fails"]


async def test_c29_after_a_hook_raised_no_other_body_starts(agent: Agent, path: str) -> None:
    count = ["count", {"path": path}]
    metadata = plan(on_before_tool_call=[None, "raise"])
    run = await ran(agent, script([count, count, count]), metadata=metadata)
    assert marks(path) == 0
    assert len(run.starts) == len(run.completes) == 3
    assert all(one.error for one in run.completes)


async def test_c29_a_retry_asked_for_beside_a_failure_is_not_made(path: str) -> None:
    counts: Any = [["count", {"path": path}], ["last", {"path": f"{path} of another"}]]
    metadata = plan(on_after_tool_call=[{"retry": True}, "raise"])
    run = await ran(inline(counts, hooks=[Puppet()]), "x", metadata=metadata)
    assert run.end.reason == "error"
    assert marks(path) == 1
    assert [one.error for one in run.completes] == [None, None]


async def test_c29_the_first_of_several_failures_is_raised() -> None:
    metadata = plan(on_after_tool_call=["raise"], on_after_invocation=["raise"])
    run = await ran(inline([ADD], hooks=[Puppet()]), "x", metadata=metadata)
    assert str(run.failure) == "on_after_tool_call of puppet"


async def test_c29_other_hooks_are_still_told_of_the_end() -> None:
    keeper = Keeper()
    agent = inline([ADD], hooks=[Puppet(), keeper])
    run = await ran(agent, "x", metadata=plan(on_iteration_start=["raise"]))
    assert list(keeper.successes.values()) == [False]
    assert run.end.reason == "error"


@pytest.mark.parametrize(
    "event_type", ["think", "tool_start", "tool_complete", "reflect", "model_chunk"]
)
async def test_c29_on_event_that_raises_ends_the_run_with_error(
    event_type: str, path: str, thread: str
) -> None:
    class Raises(HookProvider):
        def on_event(self, event: TulipEvent) -> None:
            if event.event_type == event_type:
                raise HookTrouble(event_type)

    keeper = Keeper()
    turn: Any = [ADD, ["last", {"path": path}]]
    agent = inline(turn, "done", hooks=[Raises(), keeper], reflexion=True)
    run = await ran(agent, "x", stream_tokens=True, thread_id=thread)
    assert run.end.reason == "error"
    assert isinstance(run.failure, HookTrouble)
    assert len(await agent.model_trace()) == 1, "nothing more is paid for"
    assert marks(path) == len(run.completes) / 2, "what had started ran to its end"
    assert all(one.error is None for one in run.completes)
    assert run.end.total_tool_calls == len(run.completes)
    (state,) = keeper.states.values()
    conversation = standing(await records_of(thread)).state
    assert list(state.messages) == list(conversation.messages)
    assert list(state.tool_executions) == list(conversation.tool_executions)


async def test_c29_on_event_that_raises_on_the_last_event_does_not_contradict_it() -> None:
    class Raises(HookProvider):
        def on_event(self, event: TulipEvent) -> None:
            if isinstance(event, TerminateEvent):
                raise HookTrouble("too late")

    run = await ran(inline("hi", hooks=[Raises()]), "x")
    assert (run.failure is None) == (run.end.reason == "complete")


async def test_c29_a_cancel_during_the_last_callbacks_is_a_cancel() -> None:
    class Waits(HookProvider):
        def __init__(self) -> None:
            self.there = asyncio.Event()

        async def on_after_invocation(self, state: AgentState, success: bool) -> None:
            self.there.set()
            await asyncio.Event().wait()

    hook = Waits()
    agent = inline("hi", hooks=[hook])
    handle = agent.start("x")
    await hook.there.wait()
    handle.cancel()
    run = await followed(handle)
    assert run.end.reason == "cancelled"


@pytest.mark.parametrize("callback", [one for one in CALLBACKS if one != "on_after_invocation"])
async def test_c7_a_cancel_that_meets_a_waiting_callback_ends_the_run_whole(callback: str) -> None:
    there = asyncio.Event()

    async def waits(*_: object) -> None:
        there.set()
        await asyncio.Event().wait()

    hook = type("Waits", (HookProvider,), {callback: waits})()
    keeper = Keeper()
    handle = inline([ADD, ADD], "done", hooks=[hook, keeper]).start("x")
    await there.wait()
    handle.cancel()
    run = await followed(handle)
    assert (run.end.reason, run.failure) == ("cancelled", None)
    assert list(keeper.successes.values()) == [False]


# many runs, one hook


async def test_c27_one_hook_serves_fifty_runs_at_once() -> None:
    class Counts(HookProvider):
        """Keeps a list per run, under the id that `current_run()` says."""

        def __init__(self) -> None:
            self.calls: dict[str, list[str]] = {}

        def note(self, what: str, run_id: str) -> None:
            run = current_run()
            assert run is not None
            assert run.run_id == run_id
            self.calls.setdefault(run_id, []).append(what)

        async def on_before_model_call(self, event: BeforeModelCallEvent) -> None:
            await asyncio.sleep(0)
            self.note(f"model {event.iteration}", event.state.run_id)

        async def on_after_tool_call(self, event: AfterToolCallEvent) -> None:
            await asyncio.sleep(0)
            self.note(f"tool {event.result}", event.state.run_id)
            event.result = f"{event.result} of {event.state.metadata['number']}"

        def on_event(self, event: TulipEvent) -> None:
            assert event.source is not None
            self.note(event.event_type, event.source.run_id)

    hook = Counts()
    agent = inline([ADD], "three", hooks=[hook], reflexion=True)
    handles = [agent.start("x", metadata={"number": n}) for n in range(50)]
    runs = [await followed(handle) for handle in handles]
    for n, run in enumerate(runs):
        assert run.completes[0].result == f"3 of {n}"
        assert hook.calls[run.ok.run_id] == [
            *("model 0", "think", "tool_start", "tool 3", "tool_complete", "reflect"),
            *("model 1", "think", "terminate"),
        ]


async def test_c27_one_hook_serves_runs_at_once_with_different_plans(
    agent: Agent, path: str
) -> None:
    plans: list[Mapping[str, Any]] = [
        {},
        {"on_after_tool_call": [{"result": "redacted"}]},
        {"on_before_tool_call": [{"cancel": True}]},
        {"on_after_tool_call": [{"retry": True}]},
        {"on_iteration_end": ["raise"]},
    ]
    prompt = script([["say", {"text": "x"}]], "done")
    handles = [agent.start(prompt, metadata=plan(**one)) for one in plans * 2]
    runs = [await followed(handle) for handle in handles]
    told = [
        (run.completes[0].result, [n for n, _ in told_by(run.events)].count("on_after_tool_call"))
        for run in runs
    ]
    assert told == [("x", 1), ("redacted", 1), (None, 0), ("x", 2), ("x", 1)] * 2
    assert [run.end.reason for run in runs] == (["complete"] * 4 + ["error"]) * 2


async def test_c16_on_ray_a_hook_is_copied_and_inline_it_is_shared(runtime: str, path: str) -> None:
    hook = MarksStart(path)
    agent = Agent(ScriptedModel(["hi"]), [], runtime=runtime, hooks=[hook])
    assert (await ran(agent, "x")).ok.message == "hi"
    assert marks(path) == 1
    assert hook.times == (1 if runtime == "inline" else 0)
    await agent.stop()


class MarksStart(HookProvider):
    """Counts in itself and in a file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.times = 0

    def on_iteration_start(self, iteration: int, state: AgentState) -> None:
        self.times += 1
        mark(self.path)


async def test_c23_reflections_are_events_that_hooks_see() -> None:
    seen: list[TulipEvent] = []
    hook = type("Sees", (HookProvider,), {"on_event": lambda self, event: seen.append(event)})()
    await ran(inline([ADD], "three", hooks=[hook], reflexion=True), "x")
    assert [type(event) for event in seen].count(ReflectEvent) == 1


async def test_c1_the_state_a_hook_is_handed_is_frozen() -> None:
    class Changes(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            state.iteration = 7  # type: ignore[misc]

    run = await ran(inline("hi", hooks=[Changes()]), "x")
    assert isinstance(run.failure, AttributeError)
