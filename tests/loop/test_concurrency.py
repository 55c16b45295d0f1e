"""Many runs on one agent do not see each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.loop.support import (
    Keeper,
    Run,
    followed,
    inline,
    ran,
    script,
    told_by,
)
from tests.runtime.support import eventually
from tulip_actors import (
    Agent,
    AgentState,
    HookProvider,
    Message,
    ModelResponse,
    Role,
    ToolContext,
    current_run,
    tool,
)
from tulip_actors.core.defaults import SystemClock
from tulip_actors.hooks import AfterToolCallEvent, BeforeModelCallEvent
from tulip_actors.testing import FunctionModel, text, tool_call

RUNS = 200


@tool
async def whose(number: int, ctx: ToolContext) -> str:
    """Whose call this is, in the end."""
    for _ in range(number % 7):
        await asyncio.sleep(0)
    run = current_run()
    assert run is not None
    assert run.run_id == ctx.run_id
    return f"{number} {ctx.metadata['number']} {ctx.thread_id}"


def number_of(messages: Sequence[Message]) -> int:
    """The number a run was started with, as its prompt says."""
    said = [message.content for message in messages if message.role is Role.USER]
    return int(said[-1])


async def answers(messages: Sequence[Message], tools: object) -> Message | ModelResponse:
    """Call the tool `number % 3` times, then say the number; never in step with the others."""
    number = number_of(messages)
    for _ in range(number % 5):
        await asyncio.sleep(0)
    turn = sum(message.role is Role.ASSISTANT for message in messages)
    if turn < number % 3:
        return ModelResponse(tool_call("whose", number=number), {"prompt_tokens": number})
    return ModelResponse(text(f"I am {number}"), {"prompt_tokens": number})


class Marks(HookProvider):
    """Marks what passes with the run it belongs to."""

    async def on_before_invocation(self, prompt: str, state: AgentState) -> AgentState:
        await asyncio.sleep(0)
        return state.with_metadata("prompt", prompt)

    async def on_before_model_call(self, event: BeforeModelCallEvent) -> None:
        await asyncio.sleep(0)
        event.messages = [Message.system(event.state.run_id), *event.messages]

    async def on_after_tool_call(self, event: AfterToolCallEvent) -> None:
        await asyncio.sleep(0)
        run = current_run()
        assert run is not None
        assert run.run_id == event.state.run_id
        event.result = f"{event.result} {event.state.metadata['prompt']}"


def many(**options: Any) -> Agent:
    return inline(model=FunctionModel(answers), tools=[whose], **options)


async def started(agent: Agent) -> list[Run]:
    handles = [
        agent.start(str(n), thread_id=f"conversation {id(agent)} {n}", metadata={"number": n})
        for n in range(RUNS)
    ]
    return [await followed(handle) for handle in handles]


async def test_c12_two_hundred_runs_on_one_agent_do_not_see_each_other() -> None:
    keeper = Keeper()
    agent = many(hooks=[Marks(), keeper], reflexion=True, output_key="answer")
    runs = await started(agent)
    for n, run in enumerate(runs):
        thread = f"conversation {id(agent)} {n}"
        assert run.ok.message == f"I am {n}"
        assert (run.end.iterations_used, run.end.total_tool_calls) == (n % 3 + 1, n % 3)
        assert [one.result for one in run.completes] == [f"{n} {n} {thread} {n}"] * (n % 3)
        assert run.ok.metrics.prompt_tokens == n * (n % 3 + 1)
        assert run.ok.state.metadata == {"number": n, "prompt": str(n), "answer": f"I am {n}"}
        assert {event.source.run_id for event in run.events if event.source} == {run.ok.run_id}
        assert {event.source.thread_id for event in run.events if event.source} == {thread}
        assert keeper.states[run.ok.run_id].run_id == run.ok.run_id
        assert len(run.reflections) == n % 3
    assert len({run.ok.run_id for run in runs}) == RUNS
    for request in await agent.model_trace():
        assert request.messages[0].content == request.run_id  # type: ignore[attr-defined]
    assert (await agent.observe()).active_runs == 0


async def test_c12_cancelling_every_third_of_two_hundred_leaves_the_others_alone() -> None:
    go = asyncio.Event()
    waiting: set[str] = set()

    class Waits(HookProvider):
        async def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            waiting.add(state.run_id)
            await go.wait()

    agent = many(hooks=[Waits()])
    handles = [agent.start(str(n), metadata={"number": n}) for n in range(RUNS)]
    await eventually(lambda: len(waiting) == RUNS, "all runs are in their first turn")
    for n, handle in enumerate(handles):
        if n % 3 == 0:
            handle.cancel()
        if n % 3 == 1:
            agent.cancel(run_id=handle.run_id)
    go.set()
    runs = [await followed(handle) for handle in handles]
    assert [run.end.reason for run in runs[2::3]] == ["complete"] * (RUNS // 3)
    assert [run.end.reason for run in runs[0::3]] == ["cancelled"] * (RUNS // 3 + 1)
    assert [run.end.reason for run in runs[1::3]] == ["cancelled"] * (RUNS // 3 + 1)
    assert [run.end.iterations_used for run in runs[1::3]] == [1] * (RUNS // 3 + 1)


async def test_c12_a_failure_in_every_other_run_is_that_runs_alone() -> None:
    class FailsOdd(HookProvider):
        def on_iteration_end(self, iteration: int, state: AgentState) -> None:
            if state.metadata["number"] % 2:  # type: ignore[operator]
                raise LookupError(state.run_id)

    runs = await started(many(hooks=[FailsOdd()]))
    for n, run in enumerate(runs):
        assert run.end.reason == ("error" if n % 2 else "complete")
        if n % 2:
            assert run.events[0].source is not None
            assert str(run.failure) == run.events[0].source.run_id


async def test_c12_each_run_has_its_own_clock(monkeypatch: Any) -> None:
    now = [0.0]
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda self: now[0])
    agent = many(time_budget_seconds=50)
    early = agent.start("2", metadata={"number": 2})
    await anext(early.events())
    now[0] += 100
    late = await ran(agent, "2", metadata={"number": 2})
    assert late.end.reason == "complete"
    assert (await followed(early)).end.stop_reason == "time_budget"


async def test_c12_runs_at_once_on_either_runtime_keep_apart(agent: Agent) -> None:
    handles = [
        agent.start(script([["say", {"text": str(n)}]], f"I am {n}"), metadata={"note": f"n{n}"})
        for n in range(5)
    ]
    for n, handle in enumerate(handles):
        run = await followed(handle)
        assert (run.ok.message, run.completes[0].result) == (f"I am {n}", str(n))
        assert run.ok.messages[1].content == f"n{n}"
        assert len(told_by(run.events)) == 12
