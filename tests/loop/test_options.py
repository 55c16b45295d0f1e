"""What an agent can be told beside model and tools, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.loop.support import (
    TOOLS,
    Puppet,
    Run,
    inline,
    marks,
    performer,
    plain_id,
    ran,
    records_of,
    script,
)
from tulip_actors import (
    ActorOptions,
    Agent,
    ConfigError,
    HookProvider,
    ReflexionConfig,
    Role,
    tool,
)
from tulip_actors.core.events import TulipEvent
from tulip_actors.core.runs import RunEnded, ToolIntents
from tulip_actors.hooks import HookPriority
from tulip_actors.hooks.builtin import LoggingHook, StructuredLoggingHook
from tulip_actors.testing import ScriptedModel

ADDS: Any = [["add", {"a": 1, "b": 2}]]


# tool_execution


class Watched:
    """A tool that tells how many of its bodies ran at once."""

    def __init__(self) -> None:
        self.running = self.most = 0

        @tool
        async def step(n: int) -> int:
            """Take a few turns of the event loop."""
            self.running += 1
            self.most = max(self.most, self.running)
            for _ in range(5):
                await asyncio.sleep(0)
            self.running -= 1
            return n

        self.tool = step


STEPS: Any = [["step", {"n": n}] for n in range(4)]


@pytest.mark.parametrize(("order", "most"), [("concurrent", 4), ("sequential", 1)])
async def test_tool_execution_says_how_many_bodies_run_at_once(order: str, most: int) -> None:
    watched = Watched()
    run = await ran(inline(STEPS, "done", tools=[watched.tool], tool_execution=order), "x")
    assert watched.most == most
    assert [one.result for one in run.ok.tool_executions] == ["0", "1", "2", "3"]


async def test_sequential_calls_start_and_complete_one_after_the_other(path: str) -> None:
    turn = [["last", {"path": path}], *ADDS, ["fails", {"message": "x"}], *ADDS]
    run = await ran(inline(turn, "done", tool_execution="sequential"), "x")
    assert [event.event_type for event in run.events[1:9]] == ["tool_start", "tool_complete"] * 4
    assert [one.tool_name for one in run.completes] == ["last", "add", "fails", "add"]


async def test_sequential_calls_store_their_intent_one_by_one(thread: str) -> None:
    agent = inline(STEPS[:2], "done", tools=[Watched().tool], tool_execution="sequential")
    await ran(agent, "x", thread_id=thread)
    intents = [one for one in await records_of(thread) if isinstance(one, ToolIntents)]
    assert [len(one.intents) for one in intents] == [1, 1]


async def test_a_failing_call_does_not_keep_the_next_sequential_one_from_running() -> None:
    turn = [["fails", {"message": "x"}], *ADDS]
    run = await ran(inline(turn, "done", tool_execution="sequential"), "x")
    assert [one.success for one in run.ok.tool_executions] == [False, True]


async def test_c29_a_hook_that_raises_keeps_later_sequential_calls_from_running(path: str) -> None:
    counts: Any = ["count", {"path": path}]
    agent = inline([counts, counts, counts], tool_execution="sequential", hooks=[Puppet()])
    run = await ran(agent, "x", metadata={"puppet": {"on_after_tool_call": ["raise"]}})
    assert marks(path) == 1
    assert run.end.reason == "error"
    assert [one.result for one in run.completes] == ["1", None, None]
    assert all("not run" in str(one.error) for one in run.completes[1:])


async def test_c18_sequential_calls_are_admitted_one_after_the_other() -> None:
    log: list[str] = []

    @tool
    async def step(n: int) -> int:
        """Tell."""
        log.append(f"body {n}")
        return n

    class Tells(HookProvider):
        def on_before_tool_call(self, event: Any) -> None:
            log.append(f"before {event.arguments['n']}")

        def on_after_tool_call(self, event: Any) -> None:
            log.append(f"after {event.arguments['n']}")

    hooks = [Tells()]
    await ran(
        inline(STEPS[:2], "done", tools=[step], hooks=hooks, tool_execution="sequential"), "x"
    )
    assert [line for line in log if not line.startswith("before")] == [
        *("body 0", "after 0", "body 1", "after 1")
    ]
    assert log.index("before 1") < log.index("body 1")


# system_prompt


async def test_a_system_prompt_may_be_a_function_of_the_runs_metadata() -> None:
    def prompt(metadata: Mapping[str, object]) -> str:
        return f"Speak {metadata['language']}."

    agent = inline("hi", system_prompt=prompt)
    for language in ("Tamil", "Basque"):
        run = await ran(agent, "x", metadata={"language": language})
        assert run.ok.messages[0].role is Role.SYSTEM
        assert run.ok.messages[0].content == f"Speak {language}."


@pytest.mark.parametrize("empty", ["", None])
async def test_a_system_prompt_that_gives_nothing_adds_no_message(empty: Any) -> None:
    run = await ran(inline("hi", system_prompt=lambda metadata: empty), "x")
    assert [message.role for message in run.ok.messages] == [Role.USER, Role.ASSISTANT]


async def test_c7_a_system_prompt_that_raises_ends_the_run_like_any_other_failure(
    thread: str,
) -> None:
    def prompt(metadata: Mapping[str, object]) -> str:
        raise LookupError("no such language")

    run = await ran(inline("hi", system_prompt=prompt), "x", thread_id=thread)
    assert isinstance(run.failure, LookupError)
    assert (run.end.reason, run.end.iterations_used) == ("error", 0)
    last = (await records_of(thread))[-1]
    assert isinstance(last, RunEnded)


async def test_a_system_prompt_that_returns_no_text_says_so() -> None:
    run = await ran(inline("hi", system_prompt=lambda metadata: 3), "x")
    assert run.end.reason == "error"
    assert "system_prompt" in str(run.failure)
    assert "int" in str(run.failure)


async def test_a_system_prompt_may_be_an_async_function() -> None:
    async def prompt(metadata: Mapping[str, object]) -> str:
        return f"Greet {metadata['name']}."

    run = await ran(inline("hi", system_prompt=prompt), "x", metadata={"name": "Ada"})
    assert run.ok.messages[0].content == "Greet Ada."


# output_key


async def test_output_key_puts_the_final_text_into_the_metadata() -> None:
    agent = inline(ADDS, "three", output_key="answer")
    run = await ran(agent, "x", metadata={"a": 1})
    assert run.ok.state.metadata == {"a": 1, "answer": "three"}


async def test_output_key_holds_the_summary_at_the_cap_and_of_task_complete() -> None:
    run = await ran(inline(ADDS, "so far", output_key="answer", max_iterations=1), "x")
    assert run.ok.state.metadata == {"answer": "so far"}
    done: Any = [["task_complete", {"summary": "done"}]]
    run = await ran(inline(done, output_key="answer", completion_mode="explicit"), "x")
    assert run.ok.state.metadata == {"answer": "done"}


async def test_without_output_key_the_metadata_are_the_callers() -> None:
    assert (await ran(inline("hi"), "x", metadata={"a": 1})).ok.state.metadata == {"a": 1}


# options reach the actor


async def test_options_hold_on_both_runtimes(runtime: str, path: str) -> None:
    agent = Agent(
        performer(),
        TOOLS,
        runtime=runtime,
        completion_mode="explicit",
        tool_execution="sequential",
        output_key="answer",
        reflexion=True,
        system_prompt=greet,
        token_budget=1000,
        time_budget_seconds=1000,
    )
    count: Any = ["count", {"path": path}]
    done: Any = ["task_complete", {"summary": "done"}]
    run: Run = await ran(agent, script([count, count], "hm", [done]), metadata={"name": "Ada"})
    assert (run.end.reason, run.ok.message, run.end.iterations_used) == ("complete", "done", 3)
    assert run.ok.messages[0].content == "Greet Ada."
    assert run.ok.state.metadata["answer"] == "done"
    assert [one.result for one in run.ok.tool_executions] == ["1", "2", "done"]
    assert [one.iteration for one in run.reflections] == [0, 2]
    await agent.stop()


def greet(metadata: Mapping[str, object]) -> str:
    return f"Greet {metadata['name']}."


# what is refused when the agent is made


class NamedPriority(HookProvider):
    priority = "high"  # type: ignore[assignment]


class AsyncWatcher(HookProvider):
    async def on_event(self, event: TulipEvent) -> None:  # type: ignore[override]
        """Would never be awaited."""


REFUSED: list[tuple[str, Any]] = [
    *[("completion_mode", value) for value in ("manual", None, True, 1, ["auto"])],
    *[("tool_execution", value) for value in ("parallel", None, 2)],
    *[("tool_loop_compare", value) for value in ("results", None, ["calls"])],
    *[("tool_loop_threshold", value) for value in (1, 0, -3, 2.5, "3", None, True)],
    *[("token_budget", value) for value in (0, -1, 1.5, "100", True)],
    *[
        ("time_budget_seconds", value)
        for value in (0, -1, "3", True, float("nan"), float("inf"), [1])
    ],
    *[("output_key", value) for value in ("", 3, b"x", ["a"])],
    *[("terminal_tools", value) for value in ("add", 3, [3], {"add": 1}, None, ["nowhere"])],
    ("terminal_tools", [["add"]]),
    *[("reflexion", 1), ("reflexion", "yes"), ("reflexion", 0)],
    *[("reflexion", ReflexionConfig), ("reflexion", [])],
    *[("hooks", None), ("hooks", "x"), ("hooks", LoggingHook()), ("hooks", LoggingHook)],
    *[("hooks", [LoggingHook]), ("hooks", [object()]), ("hooks", [None])],
    ("hooks", [NamedPriority()]),
    ("hooks", [AsyncWatcher()]),
    *[("system_prompt", value) for value in (3, b"x", ["x"])],
    *[("max_iterations", value) for value in (0, 1.5, "3", None, True)],
    *[("termination", value) for value in (3, "MaxIterations", lambda state: True)],
    ("maximum_iterations", 3),
]


@pytest.mark.parametrize(("field", "value"), REFUSED, ids=plain_id)
def test_a_bad_option_is_refused_by_name_when_the_agent_is_made(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{field}: ") as refused:
        inline("hi", **{field: value})
    assert "\n" not in str(refused.value)


def test_a_refusal_says_what_would_be_right() -> None:
    with pytest.raises(ConfigError, match=r"the tools are: add, fails, say"):
        inline("hi", terminal_tools=["nowhere"])
    with pytest.raises(ConfigError, match=r"the options are: .*completion_mode"):
        inline("hi", maximum_iterations=3)
    with pytest.raises(ConfigError, match=r"give 'auto' or 'explicit', not 'manual'"):
        inline("hi", completion_mode="manual")


def test_several_bad_options_are_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"max_iterations: .*; .*token_budget: "):
        inline("hi", max_iterations=0, token_budget=0)


def test_a_tool_of_ones_own_cannot_be_named_like_the_one_of_explicit_mode() -> None:
    @tool
    def task_complete(summary: str) -> str:
        """Mine."""
        return summary

    with pytest.raises(ConfigError, match="task_complete"):
        inline("hi", tools=[task_complete], completion_mode="explicit")
    inline("hi", tools=[task_complete])


@pytest.mark.parametrize(
    "bad",
    [
        {"evaluate_every_n_iterations": 0},
        {"evaluate_every_n_iterations": "2"},
        {"evaluate_every_n_iterations": True},
        {"include_guidance": "no"},
        {"every": 2},
    ],
    ids=plain_id,
)
def test_a_bad_reflexion_config_is_refused_by_name(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        ReflexionConfig(**bad)


GOOD: list[tuple[str, Any]] = [
    *[("reflexion", True), ("reflexion", False), ("reflexion", None)],
    ("reflexion", ReflexionConfig(evaluate_every_n_iterations=2)),
    *[("terminal_tools", []), ("terminal_tools", ("add",)), ("terminal_tools", {"add", "say"})],
    *[("hooks", []), ("hooks", ()), ("hooks", [LoggingHook(), StructuredLoggingHook()])],
    *[("time_budget_seconds", value) for value in (None, 1, 0.5)],
    *[("token_budget", value) for value in (None, 1)],
    *[("output_key", value) for value in (None, "answer")],
]


@pytest.mark.parametrize(("field", "value"), GOOD, ids=plain_id)
def test_what_is_right_is_taken(field: str, value: Any) -> None:
    inline("hi", **{field: value})


def test_the_defaults_are_the_pages() -> None:
    config = inline("hi").config
    assert (config.max_iterations, config.tool_loop_threshold) == (20, 3)
    assert (config.completion_mode, config.tool_execution) == ("auto", "concurrent")
    assert (config.tool_loop_compare, config.reflexion, config.termination) == ("calls", None, None)
    assert (config.token_budget, config.time_budget_seconds, config.output_key) == (None,) * 3
    assert ReflexionConfig() == ReflexionConfig(
        evaluate_every_n_iterations=1, include_guidance=True, diminishing_returns=True
    )


def test_priorities_have_names_in_their_order() -> None:
    assert list(HookPriority) == sorted(HookPriority)
    assert HookProvider.priority == HookPriority.NORMAL


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"namespace": 5}, "namespace: give text"),
        ({"namespace": " "}, "namespace: give text"),
        ({"runtime": 0}, "runtime: 0 is not one of"),
        ({"runtime": []}, "runtime: .* is not one of"),
        ({"output_key": "principal"}, "output_key: 'principal'"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Agent(ScriptedModel([]), **{"runtime": "inline", **options})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"num_cpus": "x"}, "num_cpus is a number from 0"),
        ({"num_cpus": -1}, "num_cpus is a number from 0"),
        ({"num_gpus": float("nan")}, "num_gpus is a number from 0"),
        ({"memory": "1GB"}, "memory is a whole number of bytes"),
        ({"resources": 5}, "resources is a dict"),
        ({"resources": {"a": "b"}}, "a is a number from 0"),
        ({"max_restarts": "x"}, "max_restarts is a whole number"),
    ],
)
def test_actor_options_that_make_no_sense_are_refused_by_name(options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"actor: {problem}"):
        ActorOptions(**options)


def test_a_reflexion_config_that_makes_no_sense_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"ReflexionConfig: evaluate_every_n_iterations: .*not 0"):
        ReflexionConfig(evaluate_every_n_iterations=0)
