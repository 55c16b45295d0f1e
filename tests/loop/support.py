"""What the loop tests share: a model that plays its prompt, tools that leave marks, and hooks.

Kept apart from the test files, and free of pytest, because workers import it. The script of a run
travels in its prompt and what its hooks do in its metadata, so that one agent, and on Ray one
actor, serves many tests.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.runtime.support import LONG_S, assert_well_formed, within
from tulip_actors import (
    Agent,
    AgentResult,
    AgentState,
    CausalNodeEvent,
    HookProvider,
    Message,
    ModelResponse,
    ReflectEvent,
    Role,
    RunHandle,
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
    current_run,
    interrupt,
    tool,
)
from tulip_actors.agent.runtimes import runtime_named
from tulip_actors.core.current import current_context
from tulip_actors.core.messages import ToolCall
from tulip_actors.core.runs import Record
from tulip_actors.hooks import (
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
)
from tulip_actors.host.inline import InlineRuntime
from tulip_actors.testing import FunctionModel, ScriptedModel

EventT = TypeVar("EventT", bound=TulipEvent)

CALLBACKS = (
    "on_before_invocation",
    "on_after_invocation",
    "on_iteration_start",
    "on_iteration_end",
    "on_before_model_call",
    "on_after_model_call",
    "on_before_tool_call",
    "on_after_tool_call",
)
"""The page's eight."""


class HookTrouble(Exception):
    """What a hook raises."""


class ModelTrouble(Exception):
    """What a model raises."""


# the model


def script(*turns: object) -> str:
    """A prompt that `perform` plays.

    A turn is text, a list of calls `(tool, arguments)` or `(tool, arguments, call_id)`, or a
    mapping with some of `text`, `calls`, `reasoning`, `usage` (prompt and completion tokens) and
    `raise`. The script "heard" alone answers with the contents of all the model was shown.
    """
    return json.dumps(turns)


def perform(messages: Sequence[Message], tools: object) -> ModelResponse:
    """The turn of the newest script that comes next; the last one is played for ever."""
    run = current_context()
    assert run is not None
    turns = json.loads(run.request.input)
    if turns == ["heard"]:
        return as_turn(json.dumps([message.content for message in messages]))
    return as_turn(turns[min(run.responses_recorded, len(turns) - 1)])


def as_turn(turn: Any) -> ModelResponse:
    """A scripted turn as the model's answer; see `script`."""
    if isinstance(turn, str):
        return ModelResponse(Message.assistant(turn))
    if isinstance(turn, ModelResponse):
        return turn
    if isinstance(turn, list):
        return ModelResponse(Message.assistant("", _calls(turn)))
    if "raise" in turn:
        raise ModelTrouble(turn["raise"])
    usage = turn.get("usage")
    return ModelResponse(
        Message.assistant(
            turn.get("text", ""), _calls(turn.get("calls", ())), reasoning=turn.get("reasoning")
        ),
        usage and {"prompt_tokens": usage[0], "completion_tokens": usage[1]},
    )


def _calls(calls: Sequence[Sequence[Any]]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(one[2] if len(one) > 2 else f"call_{slot}", one[0], one[1])
        for slot, one in enumerate(calls)
    )


def performer() -> FunctionModel:
    """A model that plays its prompt."""
    return FunctionModel(perform)


# tools


def mark(path: str) -> int:
    """Add a mark to a file; the number of marks it holds now. One byte, so workers do not mix."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, b"x")
        return os.lseek(file, 0, os.SEEK_CUR)  # after our own byte, whoever else writes
    finally:
        os.close(file)


def marks(path: object) -> int:
    """How many marks a file holds."""
    file = Path(str(path))
    return file.stat().st_size if file.exists() else 0


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def fails(message: str) -> str:
    """Raise."""
    raise ValueError(message)


@tool
async def say(text: str) -> str:
    """Say it back."""
    return text


@tool(idempotent=True)
async def refund(path: str, amount: Any = 1, currency: str = "EUR") -> str:
    """Refund, once; the receipt tells how often the body ran."""
    return f"RF-{mark(path)}"


@tool(idempotent=True)
async def refund_on_second_try(path: str) -> str:
    """Fail the first time."""
    if mark(path) == 1:
        raise ValueError("the bank is closed")
    return "RF"


@tool
async def count(path: str) -> int:
    """How often this was called with that path."""
    return mark(path)


@tool
async def last(path: str) -> int:
    """The same, but it yields before it answers, so that its siblings end before it."""
    for _ in range(200):
        await asyncio.sleep(0)
    return mark(path)


@tool
async def finish_up(answer: str) -> str:
    """A terminal tool; it fails on an empty answer."""
    if not answer:
        raise ValueError("nothing to finish with")
    return answer


@tool
async def ask(question: str) -> str:
    """Ask a human."""
    return str(interrupt(question))


@tool
async def wait() -> str:
    """Wait for the end of the run."""
    await asyncio.sleep(LONG_S)
    return "never said"


TOOLS = [add, fails, say, refund, refund_on_second_try, count, last, finish_up, ask, wait]


# hooks


def _as_it_is(value: Any) -> Any:
    return value


_READ: Mapping[str, Callable[[Any], Any]] = {
    "response": as_turn,
    "messages": lambda said: [Message.user(one) for one in said],
}


class Puppet(HookProvider):
    """Does what the run's metadata says, and tells every callback as an event.

    `metadata["puppet"]` maps a callback's name to a list of steps, one per time it is called in
    the run: "raise", a mapping of fields to assign, or None. The number of times is kept per run
    in the puppet, which serves many runs at once. `metadata["note"]` is added to the state as a
    system message before the first turn.
    """

    def __init__(self, name: str = "puppet", priority: int = 50) -> None:
        self.name = name
        self.priority = priority
        self.times: dict[tuple[str, str], int] = {}

    def act(self, callback: str, told: str, event: object = None) -> None:
        """One callback was called."""
        run = current_run()
        assert run is not None
        key = (run.run_id, callback)
        time = self.times[key] = self.times.get(key, 0) + 1
        run.emit(CausalNodeEvent(node_id=callback, label=told, node_type=self.name))
        plan = cast(Mapping[str, Any], run.metadata.get(self.name, {})).get(callback, ())
        step = plan[time - 1] if time <= len(plan) else None
        if step == "raise":
            raise HookTrouble(f"{callback} of {self.name}")
        for field, value in (step or {}).items():
            setattr(event, field, _READ.get(field, _as_it_is)(value))

    async def on_before_invocation(self, prompt: str, state: AgentState) -> AgentState | None:
        self.act("on_before_invocation", prompt)
        note = current_run().metadata.get("note")  # type: ignore[union-attr]
        return None if note is None else state.with_message(Message.system(str(note)))

    def on_after_invocation(self, state: AgentState, success: bool) -> None:
        self.act("on_after_invocation", f"{state.iteration} {success}")

    async def on_iteration_start(self, iteration: int, state: AgentState) -> None:
        self.act("on_iteration_start", f"{iteration} {state.iteration}")

    def on_iteration_end(self, iteration: int, state: AgentState) -> None:
        self.act("on_iteration_end", f"{iteration} {state.iteration}")

    async def on_before_model_call(self, event: BeforeModelCallEvent) -> None:
        roles = ",".join(message.role for message in event.messages)
        self.act("on_before_model_call", f"{event.iteration} {roles}", event)

    def on_after_model_call(self, event: AfterModelCallEvent) -> None:
        told = f"{event.iteration} {event.attempt} {event.response.message.content}"
        self.act("on_after_model_call", told, event)

    async def on_before_tool_call(self, event: BeforeToolCallEvent) -> None:
        told = f"{event.iteration} {event.tool_name} {event.tool_call_id} {dict(event.arguments)}"
        self.act("on_before_tool_call", told, event)

    def on_after_tool_call(self, event: AfterToolCallEvent) -> None:
        told = f"{event.iteration} {event.tool_name} {event.attempt} {event.result} {event.error}"
        self.act("on_after_tool_call", told, event)


def told_by(events: Sequence[TulipEvent], hook: str = "puppet") -> list[tuple[str, str]]:
    """The callbacks of a `Puppet`, in order, each with what it was told."""
    return [
        (event.node_id, event.label)
        for event in events
        if isinstance(event, CausalNodeEvent) and event.node_type == hook
    ]


class Watcher(HookProvider):
    """Marks the file `metadata["watch"]` once per event."""

    def on_event(self, event: TulipEvent) -> None:
        run = current_run()
        watch = run and run.metadata.get("watch")
        if watch:
            mark(str(watch))


class Keeper(HookProvider):
    """Inline: keeps each run's last state and success. Put it last, so that it is told first."""

    def __init__(self) -> None:
        self.states: dict[str, AgentState] = {}
        self.successes: dict[str, bool] = {}

    def on_after_invocation(self, state: AgentState, success: bool) -> None:
        self.states[state.run_id] = state
        self.successes[state.run_id] = success


class Calls(HookProvider):
    """Inline: gathers (callback, arguments) of every callback, in order, in a shared list."""

    def __init__(self, log: list[tuple[str, str]] | None = None, name: str = "") -> None:
        self.log = [] if log is None else log
        self.name = name


def _gathers(callback: str) -> Callable[..., None]:
    def gather(self: Calls, *arguments: object) -> None:
        self.log.append((self.name, callback))

    return gather


for _callback in CALLBACKS:
    setattr(Calls, _callback, _gathers(_callback))


def plain_id(value: object) -> str | None:
    """The id of a test's parameter: its repr, where that is short and the same every time."""
    told = repr(value)
    return told if len(told) <= 60 and " at 0x" not in told else None


# runs


@dataclass
class Run:
    """A run as its caller saw it: every event, and the result or what was raised."""

    events: list[TulipEvent]
    result: AgentResult | None = None
    failure: BaseException | None = None

    @property
    def end(self) -> TerminateEvent:
        """The last event."""
        last = self.events[-1]
        assert isinstance(last, TerminateEvent)
        return last

    def of(self, kind: type[EventT]) -> list[EventT]:
        """Its events of a class."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def thinks(self) -> list[ThinkEvent]:
        return self.of(ThinkEvent)

    @property
    def starts(self) -> list[ToolStartEvent]:
        return self.of(ToolStartEvent)

    @property
    def completes(self) -> list[ToolCompleteEvent]:
        return self.of(ToolCompleteEvent)

    @property
    def reflections(self) -> list[ReflectEvent]:
        return self.of(ReflectEvent)

    @property
    def ok(self) -> AgentResult:
        """The result of a run that has one."""
        assert self.result is not None, f"the run raised {self.failure!r}"
        return self.result

    @property
    def ending(self) -> tuple[str, str | None, str]:
        """`reason`, `condition`, `stop_reason` of the last event."""
        return self.end.reason, self.end.condition, self.end.stop_reason


async def ran(agent: Agent, prompt: str, **options: Any) -> Run:
    """A run to its end, followed; its stream is well formed whatever happened."""
    return await followed(agent.start(prompt, **options))


async def followed(handle: RunHandle[AgentResult]) -> Run:
    """A run that was started, to its end."""
    events: list[TulipEvent] = []

    async def follow() -> BaseException | None:
        try:
            async for event in handle.events():
                events.append(event)  # noqa: PERF401  # those before a failure count
        except Exception as raised:
            return raised
        return None

    failure = await within(follow())
    assert_well_formed(events)
    run = Run(events, failure=failure)
    if failure is None:
        run.result = await within(handle.result())
        assert run.result.stop_reason == run.end.stop_reason
        assert run.result.final_message == run.end.final_message
    return run


def inline(*turns: Any, model: Any = None, tools: Sequence[Any] = TOOLS, **options: Any) -> Agent:
    """An agent in this process, with a script for all its runs unless it has another model."""
    made = [as_turn(turn) if isinstance(turn, list | dict) else turn for turn in turns]
    model = model or ScriptedModel(made, repeat_last=True)
    return Agent(model, tools, runtime="inline", **options)


def texts(messages: Sequence[Message], role: Role) -> list[str]:
    """What somebody said."""
    return [message.content for message in messages if message.role is role]


async def records_of(thread_id: str) -> Sequence[Record]:
    """What the store of this process holds of a thread."""
    runtime = runtime_named("inline")
    assert isinstance(runtime, InlineRuntime)
    return await runtime.records.read(thread_id)


async def gathered(*work: Awaitable[Any], seconds: float = 60) -> list[Any]:
    """All results, in order, by a deadline."""
    return await within(asyncio.gather(*work), seconds)
