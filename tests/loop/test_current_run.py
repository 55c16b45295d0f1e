"""C27, C26: `current_run()` inside a tool, in any process and thread, on both runtimes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.loop.support import Run, followed, inline, mark, marks, performer, ran, script
from tests.runtime.support import eventually, exists, within
from tulip_actors import (
    Agent,
    AgentState,
    CausalNodeEvent,
    ConfigError,
    EventBus,
    HookProvider,
    Message,
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolContext,
    ToolStartEvent,
    TulipEvent,
    current_run,
    tool,
)
from tulip_actors.core.current import current_context
from tulip_actors.testing import ScriptedModel, text, tool_call
from tulip_actors.testing.doubles import ModelRequest


def node(name: str) -> CausalNodeEvent:
    return CausalNodeEvent(node_id=name, label=name)


def known() -> dict[str, Any]:
    """What code in a tool knows of the run."""
    run = current_run()
    assert run is not None
    return {
        "run_id": run.run_id,
        "thread_id": run.thread_id,
        "agent_id": run.agent_id,
        "metadata": dict(run.metadata),
        "principal": run.principal,
        "whole": current_context() is not None,
    }


def tell(name: str) -> None:
    """Emit an event and set an entry, both named so."""
    run = current_run()
    assert run is not None
    run.emit(node(name))
    run.set_metadata(name, {"by": name})


@tool
def plain_knows() -> dict[str, Any]:
    """What a plain body knows."""
    return known()


@tool
async def async_knows() -> dict[str, Any]:
    """What a coroutine knows."""
    return known()


@tool
async def thread_knows() -> dict[str, Any]:
    """What a thread of a coroutine knows."""
    return await asyncio.to_thread(known)


@tool
def plain_tells(name: str) -> None:
    """Tell from a plain body."""
    tell(name)


@tool
async def async_tells(name: str) -> None:
    """Tell from a coroutine."""
    tell(name)


@tool
async def thread_tells(name: str) -> None:
    """Tell from a thread of a coroutine."""
    await asyncio.to_thread(tell, name)


@tool
def context_tells(name: str, ctx: ToolContext) -> None:
    """Tell from a thread that knows nothing but the context."""

    def work() -> None:
        ctx.emit(node(name))
        ctx.set_metadata(name, {"by": name})

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@tool
def many_tell(threads: int, each: int, ctx: ToolContext) -> None:
    """Emit from many threads at once, each one in order."""

    def work(number: int) -> None:
        for n in range(each):
            ctx.emit(CausalNodeEvent(node_id=str(number), label=str(n)))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


@tool
async def tells_and_waits(path: str) -> str:
    """Emit, then wait until the file `path` is there."""
    tell("early")
    await eventually(lambda: exists(path), "the test lets go")
    return "waited"


@tool
def blocks_after(path: str, ctx: ToolContext) -> None:
    """Emit, wait in a plain body until the file `path.go` is there, emit again, leave a mark."""
    ctx.emit(node("before"))
    until = threading.Event()
    while not exists(f"{path}.go"):
        until.wait(0.01)
    ctx.emit(node("after"))
    mark(path)


@tool
async def child_tells(ctx: ToolContext) -> None:
    """Let a child tell."""
    tell("parent")
    await ctx.call(plain_tells, "child")


@tool
def metadata_now(ctx: ToolContext) -> dict[str, Any]:
    """The metadata as of this call."""
    return dict(ctx.metadata)


WRONG: Mapping[str, Any] = {
    "text": lambda ctx: ctx.emit("done"),
    "class": lambda ctx: ctx.emit(ThinkEvent),
    "last": lambda ctx: ctx.emit(TerminateEvent(reason="x", stop_reason="complete")),
    "object": lambda ctx: ctx.set_metadata("client", {"inner": [object()]}),
    "number": lambda ctx: ctx.set_metadata(3, "x"),
    "principal": lambda ctx: ctx.set_metadata("principal", "root"),
}


@tool
def does_wrong(what: str, ctx: ToolContext) -> str:
    """Misuse the run; says what was raised, here, and goes on."""
    try:
        WRONG[what](ctx)
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"
    return "nothing was raised"


KNOWERS = [plain_knows, async_knows, thread_knows]
TELLERS = [plain_tells, async_tells, thread_tells, context_tells]
OTHERS = [many_tell, tells_and_waits, blocks_after, child_tells, metadata_now, does_wrong]


class Watches(HookProvider):
    """Adds to the state's metadata whose run it was in which an event was seen."""

    def on_event(self, event: TulipEvent) -> None:
        if isinstance(event, CausalNodeEvent) and event.node_id == "async_tells":
            run = current_run()
            assert run is not None
            run.set_metadata("watched", run.run_id)


@pytest.fixture(scope="module")
def teller(runtime: str) -> Any:
    """An agent with every tool of this file."""
    tools = [*KNOWERS, *TELLERS, *OTHERS]
    made = Agent(performer(), tools, name="teller", runtime=runtime, hooks=[Watches()])
    yield made
    asyncio.run(made.stop())


def returned(result: str | None) -> Any:
    """What a tool returned, of the text that the model sees."""
    return json.loads(result or "")


def let_go(path: str) -> None:
    Path(path).touch()


def named(run: Run) -> list[str]:
    """The nodes that were emitted, and the starts and completes of tools, in order."""
    told = []
    for event in run.events:
        match event:
            case CausalNodeEvent(node_id=name):
                told.append(name)
            case ToolStartEvent(tool_name=name):
                told.append(f"start {name}")
            case ToolCompleteEvent(tool_name=name, error=None):
                told.append(f"complete {name}")
    return told


@pytest.mark.parametrize("name", [one.name for one in KNOWERS])
async def test_c27_a_tool_knows_its_run(teller: Agent, thread: str, name: str) -> None:
    metadata = {"tenant": 7, "principal": "ada"}
    run = await ran(teller, script([[name, {}]], "ok"), thread_id=thread, metadata=metadata)
    assert returned(run.ok.tool_executions[0].result) == {
        "run_id": run.ok.run_id,
        "thread_id": thread,
        "agent_id": teller.id,
        "metadata": metadata,
        "principal": "ada",
        "whole": False,
    }


@pytest.mark.parametrize("name", [one.name for one in TELLERS])
async def test_c27_what_a_tool_tells_is_in_the_stream_and_in_the_state(
    teller: Agent, name: str
) -> None:
    run = await ran(teller, script([[name, {"name": name}]], "ok"))
    assert named(run) == [f"start {name}", name, f"complete {name}"]
    (told,) = run.of(CausalNodeEvent)
    assert told.source is not None
    assert (told.source.run_id, told.source.agent) == (run.ok.run_id, "teller")
    assert run.ok.state.metadata[name] == {"by": name}


async def test_c27_a_watching_hook_sees_what_a_tool_emits_as_its_run(teller: Agent) -> None:
    run = await ran(teller, script([["async_tells", {"name": "async_tells"}]], "ok"))
    assert run.ok.state.metadata["watched"] == run.ok.run_id


async def test_c26_what_a_tool_emits_is_seen_while_it_runs(teller: Agent, path: str) -> None:
    handle = teller.start(script([["tells_and_waits", {"path": path}]], "ok"))
    events = handle.events()

    async def seen() -> TulipEvent:
        async for event in events:
            if isinstance(event, CausalNodeEvent):
                return event
        raise AssertionError("the run ended without it")

    assert (await within(seen())).source is not None
    let_go(path)
    assert (await followed(handle)).ok.message == "ok"


async def test_c26_what_a_tool_emits_is_on_the_bus(teller: Agent, runtime: str) -> None:
    run = await ran(teller, script([["plain_tells", {"name": "cause"}]], "ok"))
    bus = EventBus.connect(runtime=runtime)

    async def held() -> AsyncIterator[TulipEvent]:
        async for record in bus.subscribe(run_id=run.ok.run_id, follow=False):
            yield record.event

    assert [event async for event in held()] == run.events


async def test_c27_many_threads_of_a_tool_tell_at_once_and_nothing_is_lost(teller: Agent) -> None:
    run = await ran(teller, script([["many_tell", {"threads": 5, "each": 40}]], "ok"))
    told = [(event.node_id, event.label) for event in run.of(CausalNodeEvent)]
    assert len(told) == 200
    for number in range(5):
        assert [n for of, n in told if of == str(number)] == [str(n) for n in range(40)]


async def test_c27_what_a_child_call_tells_stands_between_its_start_and_its_end(
    teller: Agent,
) -> None:
    run = await ran(teller, script([["child_tells", {}]], "ok"))
    assert named(run) == [
        *("start child_tells", "parent", "start plain_tells", "child"),
        *("complete plain_tells", "complete child_tells"),
    ]
    assert set(run.ok.state.metadata) == {"parent", "child"}


async def test_c27_what_a_tool_set_is_read_by_the_tools_of_the_next_turn(teller: Agent) -> None:
    turns = [["plain_tells", {"name": "a"}], ["metadata_now", {}]], [["metadata_now", {}]]
    run = await ran(teller, script(*turns, "ok"), metadata={"x": 1})
    values = [returned(c.result) for c in run.completes if c.tool_name == "metadata_now"]
    assert values == [{"x": 1}, {"x": 1, "a": {"by": "a"}}]


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("text", "TypeError: emit() takes an event object such as CausalNodeEvent(...), not str"),
        (
            "class",
            "TypeError: emit() takes an event object such as CausalNodeEvent(...), not the cl",
        ),
        ("last", "ConfigError: a TerminateEvent ends the stream"),
        ("object", "NotSerialisable: metadata.client.inner[0] is a builtins.object"),
        ("number", "NotSerialisable: metadata has the key 3 of type int"),
        ("principal", "ConfigError: metadata.principal says on whose behalf"),
    ],
)
async def test_c27_misuse_of_the_run_in_a_tool_is_an_error_where_it_is_made(
    teller: Agent, what: str, told: str
) -> None:
    run = await ran(teller, script([["does_wrong", {"what": what}]], "ok"))
    assert str(run.ok.tool_executions[0].result).startswith(told)
    assert run.ok.message == "ok"
    assert not run.of(CausalNodeEvent)


async def test_c27_what_a_body_tells_after_its_run_was_cancelled_is_dropped(
    teller: Agent, path: str
) -> None:
    handle = teller.start(script([["blocks_after", {"path": path}]], "ok"))
    async for event in handle.events():
        if isinstance(event, CausalNodeEvent):
            handle.cancel()
    let_go(f"{path}.go")
    if teller.runtime == "inline":  # on Ray the body was stopped
        await eventually(lambda: marks(path) == 1, "the abandoned body has ended")
    run = await followed(teller.attach(handle.run_id))
    assert [event.node_id for event in run.of(CausalNodeEvent)] == ["before"]
    assert run.end.reason == "cancelled"


# who the run is for


@pytest.mark.parametrize(("given", "principal"), [("ada", "ada"), (7, None), (None, None)])
async def test_c27_the_principal_is_the_entry_of_the_metadata_when_that_is_text(
    given: object, principal: str | None
) -> None:
    seen: list[str | None] = []

    class Asks(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            run = current_run()
            assert run is not None
            seen.append(run.principal)

    metadata = {} if given is None else {"principal": given}
    await ran(inline("hi", hooks=[Asks()]), "x", metadata=metadata)
    assert seen == [principal]


async def test_c27_a_hook_cannot_change_the_principal() -> None:
    class Sets(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            run = current_run()
            assert run is not None
            run.set_metadata("principal", "root")

    run = await ran(inline("hi", hooks=[Sets()]), "x", metadata={"principal": "ada"})
    assert "metadata.principal" in str(run.failure)


async def test_c27_an_agent_that_is_a_tool_works_for_the_same_principal(runtime: str) -> None:
    inner = Agent(
        ScriptedModel([tool_call("plain_knows"), text("ok")]),
        [plain_knows],
        name="inner",
        runtime=runtime,
    )
    outer = Agent(
        ScriptedModel([tool_call("inner", prompt="go"), text("ok")]),
        [inner.as_tool()],
        runtime=runtime,
    )
    async with inner, outer:
        await outer.arun("x", metadata={"principal": "ada"})
        requests = cast(Sequence[ModelRequest], await inner.model_trace())
    assert '"principal":"ada"' in requests[-1].messages[-1].content


async def test_c27_what_is_no_event_is_refused_in_a_hook_too() -> None:
    class Emits(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            run = current_run()
            assert run is not None
            run.emit("hello")  # type: ignore[arg-type]

    run = await ran(inline("hi", hooks=[Emits()]), "x")
    assert isinstance(run.failure, TypeError)
    assert run.end.reason == "error"


async def test_c27_outside_of_a_run_there_is_none() -> None:
    agent = inline(Message.assistant("hi"))
    await agent.arun("x")
    assert current_run() is None
    assert current_context() is None


async def test_c27_a_hook_may_emit_from_a_thread_of_its_own() -> None:
    class Tells(HookProvider):
        async def on_before_invocation(self, prompt: str, state: AgentState) -> None:
            run = current_run()
            assert run is not None
            for n in range(20):
                event = CausalNodeEvent(node_id=str(n), label="from a thread")
                await asyncio.to_thread(run.emit, event)

    run = await ran(inline("done", hooks=[Tells()]), "x")
    told = [event.node_id for event in run.of(CausalNodeEvent)]
    assert told == [str(n) for n in range(20)]


async def test_c7_a_hook_cannot_end_the_stream() -> None:
    class Ends(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            run = current_run()
            assert run is not None
            run.emit(TerminateEvent(reason="fake"))

    run = await ran(inline("done", hooks=[Ends()]), "x")
    assert isinstance(run.failure, ConfigError)
    assert run.end.reason == "error"
