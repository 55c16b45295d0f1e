"""F10: a value that cannot be stored is named by key path and type, and the run is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.loop.support import inline, performer, ran, records_of, script
from tests.runtime.support import within
from tulip_actors import (
    Agent,
    AgentState,
    HookProvider,
    NotSerialisable,
    current_run,
    interrupt,
    tool,
)
from tulip_actors.core.runs import RunEnded
from tulip_actors.hooks import BeforeToolCallEvent


class Client:
    """What nobody can store."""


@tool
async def asks_about_a_client() -> str:
    """Ask a human, with something that cannot be shown to one."""
    return str(interrupt("who?", None, {"who": [Client()]}))


@tool
async def asks() -> str:
    """Ask a human."""
    return str(interrupt("who?"))


class Keeps(HookProvider):
    """Keeps a client where the run's metadata say."""

    def at(self, place: str) -> bool:
        run = current_run()
        assert run is not None
        return run.metadata.get("keep at") == place

    def on_before_invocation(self, prompt: str, state: AgentState) -> AgentState | None:
        if self.at("on_before_invocation"):
            return state.with_metadata("pool", {"first": Client()})
        return None

    def on_iteration_end(self, iteration: int, state: AgentState) -> None:
        if self.at("on_iteration_end"):
            run = current_run()
            assert run is not None
            run.set_metadata("pool", {"first": Client()})

    def on_before_tool_call(self, event: BeforeToolCallEvent) -> None:
        if self.at("on_before_tool_call"):
            event.arguments = {"text": {"first": Client()}}  # type: ignore[dict-item]


@tool
async def say(text: str) -> str:
    """Say it back."""
    return text


TOOLS = [asks_about_a_client, asks, say]


@pytest.fixture(scope="module")
def keeper(runtime: str) -> Iterator[Agent]:
    """An agent whose hook and tools keep what cannot be stored."""
    made = Agent(performer(), TOOLS, hooks=[Keeps()], runtime=runtime)
    yield made
    asyncio.run(made.stop())


def names_it(told: object, path: str) -> bool:
    """Whether an error says where, what it was and what would be right."""
    text = str(told)
    return path in text and "Client" in text and "store text, numbers, lists" in text


@pytest.mark.parametrize("option", ["metadata", "model_kwargs"])
def test_f10_an_option_of_a_run_is_refused_before_anything_starts(option: str) -> None:
    given: Any = {option: {"user": {"client": Client()}}}
    with pytest.raises(NotSerialisable) as refused:
        inline("hi").start("x", **given)
    assert refused.value.path == f"{option}.user.client"
    assert names_it(refused.value, f"{option}.user.client")


@pytest.mark.parametrize("place", ["on_before_invocation", "on_iteration_end"])
async def test_f10_what_a_hook_keeps_in_the_metadata_ends_the_run_whole(
    place: str, keeper: Agent, thread: str
) -> None:
    """The error comes to the caller; the thread can be continued."""
    prompt = script([["say", {"text": "x"}]], "done")
    run = await ran(keeper, prompt, thread_id=thread, metadata={"keep at": place})
    assert run.end.reason == "error"
    assert isinstance(run.failure, NotSerialisable)
    assert run.failure.path == "metadata.pool.first"
    assert names_it(run.failure, "metadata.pool.first")
    if keeper.runtime == "inline":
        assert isinstance((await records_of(thread))[-1], RunEnded)
    later = await within(keeper.arun(script("still here"), thread_id=thread))
    assert later.text == "still here"
    assert ("x" in [one.result for one in later.tool_executions]) is (place == "on_iteration_end")


async def test_f10_arguments_that_a_hook_assigned_are_an_error_for_the_model(
    keeper: Agent,
) -> None:
    prompt = script([["say", {"text": "x"}]], "done")
    run = await ran(keeper, prompt, metadata={"keep at": "on_before_tool_call"})
    assert names_it(run.completes[0].error, "arguments of say.text.first")
    assert run.ok.text == "done"


async def test_f10_a_question_that_cannot_be_stored_is_the_tools_error(keeper: Agent) -> None:
    run = await ran(keeper, script([["asks_about_a_client", {}]], "done"))
    assert names_it(run.completes[0].error, "metadata of interrupt().who[0]")
    assert run.ok.stop_reason == "complete"


async def test_f10_an_answer_that_cannot_be_stored_leaves_the_question_open(keeper: Agent) -> None:
    paused = await within(keeper.arun(script([["asks", {}]], "done")))
    (question,) = paused.interrupts
    with pytest.raises(NotSerialisable) as refused:
        await keeper.aresume({"client": Client()}, question.interrupt_id)
    assert names_it(refused.value, "response.client")
    result = await within(keeper.aresume("Ada", question.interrupt_id))
    assert [one.result for one in result.tool_executions] == ["Ada"]
