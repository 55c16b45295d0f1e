"""What an Agent refuses when it is made, how it shows itself, and its loop in small. Inline."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import pytest

from tulip_actors import (
    ActorOptions,
    Agent,
    AgentConfig,
    AgentResult,
    ConfigError,
    EventBus,
    Message,
    ModelResponse,
    TerminateEvent,
    ThreadBusy,
    ToolCompleteEvent,
    TulipEvent,
    current_run,
    tool,
)
from tulip_actors.core.termination import MaxIterations, ToolCalled
from tulip_actors.hooks.builtin import LoggingHook, StructuredLoggingHook
from tulip_actors.testing import FunctionModel, ScriptedModel, text, tool_call


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def a_model(*turns: Any, **options: Any) -> ScriptedModel:
    return ScriptedModel(turns or ["hi"], **options)


ADDS = tool_call("add", a=1, b=1)


# refusals


@pytest.mark.parametrize("model", [None, 3, object(), ScriptedModel, lambda: None])
def test_a_model_that_is_none_is_refused(model: Any) -> None:
    with pytest.raises(ConfigError, match=r"model: give 'provider:name' or an object with"):
        Agent(model)


@pytest.mark.parametrize("tools", [None, "add", {"add": add}, add, 3])
def test_tools_that_are_no_list_are_refused(tools: Any) -> None:
    with pytest.raises(ConfigError, match="tools: give a list of tools"):
        Agent(a_model(), tools)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tools are named 'add'"):
        Agent(a_model(), [add, add])


@pytest.mark.parametrize("prompt", [3, b"x", ["x"]])
def test_a_system_prompt_that_is_no_text_is_refused(prompt: Any) -> None:
    with pytest.raises(ConfigError, match="system_prompt: give text"):
        Agent(a_model(), system_prompt=prompt)


@pytest.mark.parametrize("cap", [0, -1, 1.5, True, "3", None])
def test_max_iterations_that_is_no_number_of_turns_is_refused(cap: Any) -> None:
    with pytest.raises(ConfigError, match="max_iterations: give"):
        Agent(a_model(), max_iterations=cap)


@pytest.mark.parametrize("condition", [3, MaxIterations, lambda state: True, "MaxIterations"])
def test_a_termination_that_is_no_condition_is_refused(condition: Any) -> None:
    with pytest.raises(ConfigError, match="termination: give a condition"):
        Agent(a_model(), termination=condition)


@pytest.mark.parametrize("name", ["", "  ", 3, b"x"])
def test_a_name_that_is_no_label_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="name: give a label"):
        Agent(a_model(), name=name)


def test_an_unknown_runtime_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="runtime: 'rai' is not one of ray, inline"):
        Agent(a_model(), runtime="rai")


def test_actor_options_of_another_kind_are_refused() -> None:
    with pytest.raises(ConfigError, match="actor: give ActorOptions"):
        Agent(a_model(), actor={"num_cpus": 1})  # type: ignore[arg-type]


def test_the_runtime_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TULIP_RUNTIME", "inline")
    assert Agent(a_model()).runtime == "inline"
    monkeypatch.setenv("TULIP_RUNTIME", "wrong")
    with pytest.raises(ConfigError, match="'wrong' is not one of"):
        Agent(a_model())


def test_c35_ray_is_the_default_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TULIP_RUNTIME")
    assert Agent(a_model()).runtime == "ray"


def test_f40_an_agent_for_ray_is_made_without_ray_while_all_of_it_can_travel() -> None:
    """The guard of these tests refuses an import of Ray."""
    rates, here = {"EUR": 1.0}, threading.Lock()

    @tool
    def rate(currency: str) -> float:
        """The rate of a currency."""
        return rates[currency]

    agent = Agent(
        a_model(ADDS),
        [add, rate],
        lambda metadata: f"Speak {metadata['language']}.",
        runtime="ray",
        hooks=[LoggingHook(), StructuredLoggingHook()],
        termination=MaxIterations(3) | ToolCalled("rate"),
        reflexion=True,
        callback_handler=lambda event: here.locked(),
    )
    assert agent.runtime == "ray"


def test_a_refusal_is_also_a_value_error() -> None:
    with pytest.raises(ValueError, match="model"):
        Agent(None)  # type: ignore[arg-type]


def test_the_config_has_the_fields_that_were_given() -> None:
    agent = Agent(a_model(), [add], "Be brief.", name="bob", max_iterations=3)
    config = agent.config
    assert isinstance(config, AgentConfig)
    assert (config.name, config.system_prompt, config.max_iterations) == ("bob", "Be brief.", 3)
    assert list(config.tools) == ["add"]


def test_c35_actor_options_have_the_defaults_of_the_contract() -> None:
    options = ActorOptions()
    assert (options.num_cpus, options.num_gpus, options.memory) == (0, 0, None)
    assert (options.resources, options.max_restarts, options.detached) == ({}, -1, False)


# how it shows itself


def test_the_repr_of_an_agent_says_what_it_is_made_of() -> None:
    agent = Agent(a_model(), [add], name="bob")
    assert repr(agent) == (
        f"Agent('bob', model='ScriptedModel', tools=[add], runtime='inline', id='{agent.id}')"
    )
    assert "model='openai:gpt-4o-mini', tools=[none]" in repr(Agent("openai:gpt-4o-mini"))


async def test_the_repr_of_a_result_says_how_it_went() -> None:
    result = await Agent(a_model(ADDS, "x" * 100), [add]).arun("x")
    assert repr(result) == (
        f"AgentResult('{'x' * 57}...', stop_reason='complete', iterations=2, tool_calls=1, "
        f"tokens=0, run_id='{result.run_id}')"
    )


def test_c35_the_name_is_a_label_and_the_id_is_the_identity() -> None:
    one, two = Agent(a_model(), name="bob"), Agent(a_model(), name="bob")
    assert one.name == two.name
    assert one.id != two.id


def test_c35_a_handle_pickled_before_the_start_keeps_its_identity() -> None:
    agent = Agent(a_model(), [add], name="bob")
    copy: Agent = pickle.loads(pickle.dumps(agent))
    assert (copy.id, copy.name, copy.runtime) == (agent.id, agent.name, agent.runtime)
    assert copy.run_sync("x").message == "hi"


# the loop


async def test_the_natural_end_is_an_answer_without_calls() -> None:
    result = await Agent(a_model(ADDS, "two"), [add]).arun("x")
    assert (result.stop_reason, result.success, result.iterations) == ("complete", True, 2)


async def test_the_models_first_request_is_prompt_and_system_prompt() -> None:
    agent = Agent(a_model(), system_prompt="Be brief.")
    await agent.arun("hello")
    asked: Any = (await agent.model_trace())[0]
    assert list(asked.messages) == [Message.system("Be brief."), Message.user("hello")]


async def test_without_tools_the_model_is_offered_none() -> None:
    seen: list[object] = []
    await Agent(FunctionModel(lambda messages, tools: seen.append(tools) or "hi")).arun("x")  # type: ignore[func-returns-value]
    assert seen == [None]


async def events_of(agent: Agent, prompt: str = "x") -> list[TulipEvent]:
    return [event async for event in agent.run(prompt)]


async def test_c10_at_the_cap_a_last_answer_is_asked_for_without_tools() -> None:
    agent = Agent(a_model(ADDS, ADDS, "what I know"), [add], max_iterations=2)
    events = await events_of(agent)
    end = events[-1]
    assert isinstance(end, TerminateEvent)
    assert (end.reason, end.stop_reason) == ("MaxIterations", "max_iterations")
    assert (end.iterations_used, end.final_message) == (2, "what I know")
    assert end.condition == "MaxIterations(2)"
    assert sum(event.event_type == "think" for event in events) == 2, "the summary is no turn"
    trace: Any = await agent.model_trace()
    assert [len(asked.tools) for asked in trace] == [1, 1, 0]


async def test_c10_the_summary_is_kept_in_the_messages_and_its_usage_counted() -> None:
    def response(message: Message) -> ModelResponse:
        return ModelResponse(message, {"prompt_tokens": 10, "completion_tokens": 1})

    model = a_model(response(ADDS), response(text("what I know")))
    result = await Agent(model, [add], max_iterations=1).arun("x")
    assert result.messages[-1] == Message.assistant("what I know")
    assert result.message == "what I know"
    assert result.metrics.prompt_tokens == 20
    assert (result.success, result.stop_reason) == (False, "max_iterations")


async def test_c10_a_condition_of_the_users_asks_for_no_summary() -> None:
    agent = Agent(a_model(ADDS, "never"), [add], termination=MaxIterations(1))
    events = await events_of(agent)
    end = events[-1]
    assert isinstance(end, TerminateEvent)
    assert (end.reason, end.condition) == ("MaxIterations", "MaxIterations(1)")
    assert len(await agent.model_trace()) == 1
    assert end.final_message is None


async def test_c10_the_cap_holds_beside_a_termination() -> None:
    agent = Agent(
        a_model(ADDS, repeat_last=True), [add], max_iterations=2, termination=MaxIterations(50)
    )
    assert (await agent.arun("x")).iterations == 2


async def test_c10_an_answer_within_the_cap_needs_no_summary() -> None:
    agent = Agent(a_model(ADDS, "two"), [add], max_iterations=2)
    assert (await agent.arun("x")).stop_reason == "complete"


async def test_c10_a_summary_that_calls_tools_leaves_no_call_unanswered() -> None:
    result = await Agent(a_model(ADDS, repeat_last=True), [add], max_iterations=1).arun("x")
    answered = {message.tool_call_id for message in result.messages if message.tool_call_id}
    asked = [call.id for message in result.messages for call in message.tool_calls]
    assert len(asked) == 1
    assert set(asked) <= answered


async def test_usage_is_summed_over_the_turns() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    agent = Agent(a_model(ModelResponse(ADDS, usage), ModelResponse(text("x"), usage)), [add])
    events = await events_of(agent)
    end = events[-1]
    assert isinstance(end, TerminateEvent)
    assert end.usage == {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24}


async def test_reasoning_of_a_separate_channel_is_the_thought() -> None:
    model = a_model(Message.assistant("said", reasoning="thought"))
    events = await events_of(Agent(model))
    assert getattr(events[0], "reasoning") == "thought"  # noqa: B009
    assert getattr(events[-1], "final_message") == "said"  # noqa: B009


async def test_f41_a_second_run_on_a_busy_thread_is_refused() -> None:
    go = asyncio.Event()

    async def waits(messages: Sequence[Message], tools: object) -> str:
        await go.wait()
        return "done"

    agent = Agent(FunctionModel(waits))
    first = agent.start("x", thread_id="t")
    await asyncio.sleep(0)
    with pytest.raises(ThreadBusy, match="'t' is in use"):
        await agent.arun("x", thread_id="t")
    go.set()
    assert (await first.result()).message == "done"
    assert (await agent.arun("x", thread_id="t")).message == "done"


async def test_current_run_is_the_run_that_asks_the_model() -> None:
    def names_the_run(messages: Sequence[Message], tools: object) -> str:
        run = current_run()
        return run.run_id if run else "none"

    agent = Agent(FunctionModel(names_the_run))
    result = await agent.arun("x")
    assert result.message == result.run_id
    assert current_run() is None


async def test_a_metadata_change_after_the_start_is_not_seen() -> None:
    metadata: dict[str, Any] = {"a": [1]}
    handle = Agent(a_model()).start("x", metadata=metadata)
    metadata["a"].append(2)
    assert (await handle.result()).state.metadata == {"a": [1]}


# run_sync, event loops


def test_run_sync_works_twice_in_a_row() -> None:
    agent = Agent(a_model(ADDS, "two"), [add])
    assert [agent.run_sync("x").message for _ in range(2)] == ["two", "two"]


async def test_f45_run_sync_works_under_a_running_event_loop() -> None:
    assert Agent(a_model()).run_sync("x").message == "hi"


def test_f45_run_sync_works_in_threads_at_once() -> None:
    agent = Agent(a_model(ADDS, "two"), [add])
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda: said.append(agent.run_sync("x").message)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert said == ["two"] * 8


class LoopBound:
    """A model with a lock and a semaphore that belong to the loop that used them first."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = asyncio.Semaphore(1)

    async def complete(
        self, messages: Sequence[Message], tools: object = None, **settings: object
    ) -> ModelResponse:
        async with self.lock, self.waiting:
            await asyncio.sleep(0.001)
        return ModelResponse(text("hi"))


async def both(agent: Agent) -> tuple[AgentResult, AgentResult]:
    return await asyncio.gather(agent.arun("x"), agent.arun("y"))


def test_f41_a_model_bound_to_an_event_loop_serves_every_run_sync() -> None:
    agent = Agent(LoopBound())

    def many() -> list[str]:
        threads = [threading.Thread(target=agent.run_sync, args=("x",)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return [agent.run_sync("x").message for _ in range(2)]

    assert many() == ["hi", "hi"]
    assert many() == ["hi", "hi"]


def test_f41_one_agent_serves_one_event_loop_after_another() -> None:
    agent = Agent(a_model(ADDS, "two"), [add])
    for _ in range(3):
        assert [result.message for result in asyncio.run(both(agent))] == ["two", "two"]
    assert agent.run_sync("x").message == "two"


def test_f41_loops_that_are_over_are_not_kept() -> None:
    agent = Agent(a_model(ADDS, "two"), [add])
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def run() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await agent.arun("x")

    for _ in range(3):
        asyncio.run(run())
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1


def test_start_works_without_an_event_loop_of_ones_own() -> None:
    handle = Agent(a_model(ADDS, "two"), [add]).start("x")
    assert asyncio.run(handle.result()).message == "two"
    assert handle.done


def test_a_handle_can_be_read_on_another_loop_than_it_was_started_on() -> None:
    handle = Agent(a_model(ADDS, "two"), [add]).start("x")

    async def read() -> list[str]:
        return [event.event_type async for event in handle.events()]

    for _ in range(2):
        assert asyncio.run(asyncio.wait_for(read(), 10))[-1] == "terminate"


async def test_run_sync_inside_a_plain_tool_works() -> None:
    inner = Agent(a_model("inner"))

    @tool
    def asks() -> str:
        """Ask another agent."""
        return inner.run_sync("x").message

    result = await Agent(a_model(tool_call("asks"), "outer"), [asks]).arun("x")
    assert result.tool_executions[0].result == "inner"


def test_run_sync_inside_a_model_that_runs_on_the_portal_says_what_to_do() -> None:
    inner = Agent(a_model("inner"))

    def asks(messages: Sequence[Message], tools: object) -> str:
        return inner.run_sync("x").message

    with pytest.raises(RuntimeError, match="use the async form"):
        Agent(FunctionModel(asks)).run_sync("x")


def test_f45_a_subscriber_on_one_loop_hears_a_run_on_another() -> None:
    agent = Agent(a_model(), name="heard elsewhere")

    async def hears() -> list[str]:
        heard = []
        async for record in EventBus.connect().subscribe(agent="heard elsewhere"):
            heard.append(record.event.event_type)
            if heard[-1] == "terminate":
                break
        return heard

    async def main() -> list[str]:
        hearing = asyncio.create_task(hears())
        await asyncio.sleep(0)
        await asyncio.to_thread(agent.run_sync, "x")
        return await asyncio.wait_for(hearing, 10)

    assert asyncio.run(main()) == ["think", "terminate"]


async def test_a_tool_that_ends_the_process_ends_only_its_call() -> None:
    @tool
    def leaves() -> str:
        """Exit."""
        raise SystemExit(3)

    events = await events_of(Agent(a_model(tool_call("leaves"), "went on"), [leaves]))
    complete = next(event for event in events if isinstance(event, ToolCompleteEvent))
    assert "SystemExit" in (complete.error or "")
