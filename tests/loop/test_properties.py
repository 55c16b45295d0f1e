"""What holds for every run, whatever model, tools, hooks and callers do. Random scripts, inline."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgpack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.loop.support import (
    CALLBACKS,
    HookTrouble,
    Keeper,
    ModelTrouble,
    Puppet,
    Run,
    followed,
    performer,
    ran,
    records_of,
    script,
)
from tulip_actors import (
    Agent,
    AgentResult,
    AgentState,
    HookProvider,
    Message,
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolContext,
    TulipEvent,
    current_run,
    tool,
)
from tulip_actors.core.calls import CallKey
from tulip_actors.core.codec import pack_event, pack_record, unpack_event, unpack_record
from tulip_actors.core.runs import (
    Checkpointed,
    Record,
    RunEnded,
    RunRequest,
    RunStarted,
    ToolFinished,
    ToolIntents,
)
from tulip_actors.core.termination import SUCCESSES, MaxIterations, TokenLimit, ToolCalled
from tulip_actors.memory.backends import MemoryCheckpointer
from tulip_actors.memory.fold import standing

PROPERTY = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@tool
async def quick(n: int = 0) -> int:
    """Answer at once."""
    return n


@tool
async def late(n: int = 0) -> int:
    """Answer after its siblings."""
    for _ in range(5):
        await asyncio.sleep(0)
    return n


@tool(idempotent=True)
async def once(n: int = 0) -> int:
    """Answer late, once per number."""
    for _ in range(3):
        await asyncio.sleep(0)
    return n


@tool(idempotent=True)
async def moody(n: int = 0) -> int:
    """Fail on odd numbers."""
    if n % 2:
        raise ValueError(f"odd {n}")
    return n


@tool
async def parent(ctx: ToolContext, n: int = 0) -> Any:
    """Call another."""
    return await ctx.call(moody, {"n": n})


TOOLS = [quick, late, once, moody, parent]
calls = st.tuples(
    st.sampled_from([*[one.name for one in TOOLS], "unknown"]),
    st.sampled_from([{}, {"n": 0}, {"n": 1}, {"n": "2"}, {"n": "x"}, {"m": 1}]),
    st.sampled_from(["a", "b", "c"]),
).map(list)
turns: st.SearchStrategy[Any] = st.one_of(
    st.lists(calls, min_size=1, max_size=4),
    st.text(max_size=3),
    st.builds(
        lambda text, made, usage: {"text": text, "calls": made, "usage": usage},
        st.text(max_size=3),
        st.lists(calls, max_size=3),
        st.tuples(st.integers(0, 9), st.integers(0, 9)),
    ),
    st.just({"raise": "the model fails"}),
)
scripts = st.lists(turns, min_size=1, max_size=4)
steps: dict[str, st.SearchStrategy[Any]] = {
    "on_before_tool_call": st.sampled_from(
        [None, None, "raise", {"cancel": True}, {"arguments": {"n": 0}}, {"arguments": {"x": 1}}]
    ),
    "on_after_tool_call": st.sampled_from(
        [None, None, "raise", {"retry": True}, {"result": "redacted"}]
    ),
    "on_after_model_call": st.sampled_from(
        [None, None, "raise", {"retry": True}, {"response": "redacted"}]
    ),
    "on_before_model_call": st.sampled_from([None, "raise", {"messages": ["x"]}]),
}
plans = st.fixed_dictionaries(
    {},
    optional={
        callback: st.lists(steps.get(callback, st.sampled_from([None, "raise"])), max_size=4)
        for callback in CALLBACKS
    }
    | {"bomb": st.integers(1, 12)},
)
options = st.fixed_dictionaries(
    {"max_iterations": st.integers(1, 4)},
    optional={
        "reflexion": st.booleans(),
        "tool_execution": st.sampled_from(["concurrent", "sequential"]),
        "terminal_tools": st.just(["once"]),
        "tool_loop_threshold": st.just(2),
        "tool_loop_compare": st.just("calls+results"),
        "token_budget": st.integers(1, 20),
        "output_key": st.just("answer"),
        "termination": st.sampled_from(
            [MaxIterations(2), ToolCalled("quick"), TokenLimit(9) | ToolCalled("moody")]
        ),
        "system_prompt": st.just("Play."),
    },
)


class Bomb(HookProvider):
    """Raises on the run's n-th event, if its metadata say so; the last event is spared."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def on_event(self, event: TulipEvent) -> None:
        run = current_run()
        assert run is not None
        self.seen[run.run_id] += 1
        plan: Any = run.metadata["puppet"]
        is_due = self.seen[run.run_id] == plan.get("bomb")
        if is_due and not isinstance(event, TerminateEvent):
            raise HookTrouble("on_event")


class Shrinks(HookProvider):
    """Compares each state it is handed with the run's last one."""

    def __init__(self) -> None:
        self.last: dict[str, AgentState] = {}

    def look(self, state: AgentState) -> None:
        before = self.last.get(state.run_id)
        if before is not None:
            assert list(state.messages[: len(before.messages)]) == list(before.messages)
            assert len(state.tool_executions) >= len(before.tool_executions)
            assert state.iteration in (before.iteration, before.iteration + 1)
            assert state.total_tokens_used >= before.total_tokens_used
            assert state.calls_made >= before.calls_made
        self.last[state.run_id] = state

    def on_iteration_start(self, iteration: int, state: AgentState) -> None:
        assert iteration == state.iteration
        self.look(state)

    on_iteration_end = on_iteration_start

    def on_before_model_call(self, event: Any) -> None:
        self.look(event.state)

    def on_before_tool_call(self, event: Any) -> None:
        self.look(event.state)

    def on_after_invocation(self, state: AgentState, success: bool) -> None:
        self.look(state)


number = iter(range(10**9))


async def played(
    prompts: Sequence[str],
    plan: Sequence[Any],
    made: dict[str, Any],
    cancel_at: int | None = None,
    stream: bool = False,
) -> tuple[list[Run], list[AgentState], Sequence[Record]]:
    """Runs one after the other on a thread of their own; their last states, and the records."""
    keeper, thread = Keeper(), f"property {next(number)}"
    agent = Agent(
        performer(), TOOLS, runtime="inline", hooks=[Puppet(), Shrinks(), Bomb(), keeper], **made
    )
    runs: list[Run] = []
    for prompt, one in zip(prompts, plan, strict=True):
        handle = agent.start(
            prompt, thread_id=thread, metadata={"puppet": one}, stream_tokens=stream
        )
        if cancel_at is not None:
            for _ in range(cancel_at):
                await asyncio.sleep(0)
            handle.cancel()
        runs.append(await followed(handle))
    await agent.stop()
    return runs, list(keeper.states.values()), await records_of(thread)


def play(*arguments: Any, **more: Any) -> tuple[list[Run], list[AgentState], Sequence[Record]]:
    return asyncio.run(asyncio.wait_for(played(*arguments, **more), 20))


def assert_valid_for_a_provider(messages: Sequence[Message]) -> None:
    """Every call is answered, once, right after its message, in call order."""
    waiting: list[str] = []
    for message in messages:
        if message.tool_call_id is not None:
            assert message.tool_call_id == waiting.pop(0)
        else:
            assert not waiting
            waiting = [call.id for call in message.tool_calls]
    assert not waiting


def assert_whole(run: Run, state: AgentState, cap: int) -> None:
    """What one run says of itself hangs together. `followed` has looked at its stream already."""
    end = run.end
    assert end.iterations_used == state.iteration <= cap
    assert end.total_tool_calls == state.calls_made
    assert [think.iteration for think in run.thinks] == list(range(len(run.thinks)))
    for complete in run.of(ToolCompleteEvent):
        assert (complete.result is None) != (complete.error is None)
    if run.failure is None:
        assert end.reason != "error"
        assert run.ok.success is (end.stop_reason in SUCCESSES)
        assert run.ok.metrics.tool_calls == end.total_tool_calls
        assert_valid_for_a_provider(run.ok.messages)
    else:
        assert (end.reason, end.stop_reason) == ("error", "error")
        assert isinstance(run.failure, HookTrouble | ModelTrouble)


@PROPERTY
@given(scripts, plans, options, st.booleans())
def test_c7_exactly_one_terminate_event_last_and_every_start_has_its_complete(
    turns: list[Any], plan: dict[str, Any], made: dict[str, Any], stream: bool
) -> None:
    runs, states, records = play([script(*turns)], [plan], made, stream=stream)
    assert_whole(runs[0], states[0], made["max_iterations"])
    assert [type(one) for one in records].count(RunEnded) == 1
    assert isinstance(records[-1], RunEnded)
    assert records[-1].stop_reason == runs[0].end.stop_reason


@PROPERTY
@given(scripts, plans, options, st.integers(0, 30))
def test_c7_a_run_cancelled_anywhere_is_whole_too(
    turns: list[Any], plan: dict[str, Any], made: dict[str, Any], at: int
) -> None:
    runs, states, records = play([script(*turns)], [plan], made, cancel_at=at)
    if states:
        assert_whole(runs[0], states[0], made["max_iterations"])
    assert isinstance(records[-1], RunEnded)


@PROPERTY
@given(st.lists(st.tuples(scripts, plans), min_size=1, max_size=3), options)
def test_c44_the_fold_of_a_threads_records_is_what_its_runs_left(
    played_runs: list[tuple[list[Any], dict[str, Any]]], made: dict[str, Any]
) -> None:
    prompts = [script(*turns) for turns, _ in played_runs]
    runs, states, records = play(prompts, [plan for _, plan in played_runs], made)
    assert_same_conversation(runs, states, records)


@PROPERTY
@given(st.lists(st.tuples(scripts, plans), min_size=1, max_size=3), options, st.integers(0, 30))
def test_c44_so_is_that_of_runs_that_were_cancelled(
    played_runs: list[tuple[list[Any], dict[str, Any]]], made: dict[str, Any], at: int
) -> None:
    prompts = [script(*turns) for turns, _ in played_runs]
    runs, states, records = play(prompts, [plan for _, plan in played_runs], made, cancel_at=at)
    assert_same_conversation(runs, states, records)


def assert_same_conversation(
    runs: Sequence[Run], states: Sequence[AgentState], records: Sequence[Record]
) -> None:
    by_run = {state.run_id: state for state in states}
    for position, run in enumerate(runs):
        assert run.events[0].source is not None
        run_id = run.events[0].source.run_id
        last = max(n for n, record in enumerate(records) if record.run_id == run_id)
        conversation = standing(records[: last + 1]).state
        assert_valid_for_a_provider(conversation.messages)
        state = by_run.get(run_id)
        if state is None or not any(
            record.kind == "opened" and record.run_id == run_id for record in records
        ):
            continue  # it was refused, or cancelled, before it began: nothing was added
        kept = to_compare(conversation)
        assert kept == to_compare(state), f"run {position}"


def to_compare(state: AgentState) -> dict[str, Any]:
    """A state without what is set after the last hook, and without the time of its last turn."""
    plain = state.to_checkpoint()
    return {k: v for k, v in plain.items() if k not in ("updated_at", "errors", "metadata")}


def without_times(state: AgentState) -> dict[str, Any]:
    """A state without what another process cannot repeat: times, and its own id."""
    plain: Any = state.to_checkpoint()
    for execution in plain["tool_executions"]:
        execution["timestamp"] = execution["duration_ms"] = None
    return {**plain, "updated_at": None, "agent_id": None}


async def uninterrupted(
    turns: list[Any], made: dict[str, Any]
) -> tuple[Run, str, Sequence[Record]]:
    thread = f"whole {next(number)}"
    checkpointer = MemoryCheckpointer()
    agent = Agent(performer(), TOOLS, runtime="inline", checkpointer=checkpointer, **made)
    await ran(agent, script("before"), thread_id=thread)
    run = await ran(agent, script(*turns), thread_id=thread)
    records = await checkpointer.store.read(thread)
    await agent.stop()
    return run, thread, records


good_turns = turns.filter(lambda turn: turn != {"raise": "the model fails"})


@PROPERTY
@given(st.lists(good_turns, min_size=1, max_size=4), options, st.data())
def test_a_run_resumed_from_any_checkpoint_ends_like_the_uninterrupted_one(
    turns: list[Any], made: dict[str, Any], data: st.DataObject
) -> None:
    made = {**made, "checkpoint_every_n_iterations": 1}

    async def compare() -> None:
        whole, thread, records = await uninterrupted(turns, made)
        begun = max(n for n, one in enumerate(records) if isinstance(one, RunStarted))
        places = [n for n, one in enumerate(records) if n > begun and isinstance(one, Checkpointed)]
        # beside those: any place, as a crash would choose it, where no call's outcome is unknown
        anywhere = [n for n in range(begun, len(records) - 1) if not open_calls(records[: n + 1])]
        places.append(data.draw(st.sampled_from(anywhere), label="crash after record"))
        for place in places:
            await ends_alike(records[: place + 1], records[begun].run_id, thread, made, whole)

    asyncio.run(asyncio.wait_for(compare(), 30))


def open_calls(records: Sequence[Record]) -> set[CallKey]:
    """The calls that were about to be made and have no result."""
    made = {
        one.key for record in records if isinstance(record, ToolIntents) for one in record.intents
    }
    return made - {record.key for record in records if isinstance(record, ToolFinished)}


@PROPERTY
@given(st.lists(good_turns, min_size=1, max_size=4), options, st.data())
def test_f8_f20_a_call_whose_outcome_a_crash_made_unknown_is_reported_and_not_made_again(
    turns: list[Any], made: dict[str, Any], data: st.DataObject
) -> None:
    """Wherever the process died between a call's intent and its result."""

    async def look() -> None:
        _, thread, records = await uninterrupted(turns, made)
        begun = max(n for n, one in enumerate(records) if isinstance(one, RunStarted))
        open_ = [n for n in range(begun, len(records)) if open_calls(records[: n + 1])]
        if not open_:
            return
        cut = records[: data.draw(st.sampled_from(open_), label="crash after record") + 1]
        unknown = open_calls(cut)
        result = await taken_up(cut, records[begun].run_id, thread, made)
        errors = [one.error for one in result.state.tool_executions if one.error]
        assert sum("may have happened" in error for error in errors) >= len(unknown)
        assert_valid_for_a_provider(result.state.messages)

    asyncio.run(asyncio.wait_for(look(), 30))


def test_a_run_that_stopped_between_two_questions_of_a_turn_is_not_judged_in_between() -> None:
    """Its budget was used up by the first of them; the run that went on asked the second."""
    made: dict[str, Any] = {"system_prompt": "Play.", "token_budget": 1}
    silent = {"text": "", "calls": [], "usage": (0, 1)}

    async def compare() -> None:
        whole, thread, records = await uninterrupted([silent], made)
        begun = max(n for n, one in enumerate(records) if isinstance(one, RunStarted))
        asked = next(n for n, one in enumerate(records) if n > begun and one.kind == "model_turn")
        await ends_alike(records[: asked + 1], records[begun].run_id, thread, made, whole)

    asyncio.run(asyncio.wait_for(compare(), 30))


async def taken_up(
    records: Sequence[Record], run_id: str, thread: str, made: dict[str, Any]
) -> AgentResult:
    """The result of a run that goes on from these records."""
    checkpointer = MemoryCheckpointer()
    epoch = await checkpointer.store.acquire(thread, run_id, 60)
    await checkpointer.store.append(thread, epoch, records)
    agent = Agent(performer(), TOOLS, runtime="inline", checkpointer=checkpointer, **made)
    result = await agent.begin(RunRequest(run_id, thread, "", continued=True)).result()
    await agent.stop()
    return result


async def ends_alike(
    records: Sequence[Record], run_id: str, thread: str, made: dict[str, Any], whole: Run
) -> None:
    checkpointer = MemoryCheckpointer()
    epoch = await checkpointer.store.acquire(thread, run_id, 60)
    await checkpointer.store.append(thread, epoch, records)
    agent = Agent(performer(), TOOLS, runtime="inline", checkpointer=checkpointer, **made)
    handle = agent.begin(RunRequest(run_id, thread, "", continued=True))
    again = Run([event async for event in handle.events()], await handle.result())
    await agent.stop()
    assert again.ending == whole.ending
    assert without_times(again.ok.state) == without_times(whole.ok.state)


@PROPERTY
@given(scripts, plans, options)
def test_state_events_and_records_survive_their_bytes(
    turns: list[Any], plan: dict[str, Any], made: dict[str, Any]
) -> None:
    runs, states, records = play([script(*turns)], [plan], made, stream=True)
    for event in runs[0].events:
        assert unpack_event(pack_event(event)) == event
        assert type(event).model_validate_json(event.model_dump_json()) == event
        packed = msgpack.packb(event.model_dump(mode="json"))
        assert type(event).model_validate(msgpack.unpackb(packed)) == event
    for record in records:
        assert unpack_record(pack_record(record)) == record
    for state in states:
        checkpoint = state.to_checkpoint()
        assert AgentState.from_checkpoint(json.loads(json.dumps(checkpoint))) == state
        assert AgentState.from_checkpoint(msgpack.unpackb(msgpack.packb(checkpoint))) == state


@PROPERTY
@given(scripts, options)
def test_c20_an_idempotent_call_runs_once_per_arguments_whatever_the_script(
    turns: list[Any], made: dict[str, Any]
) -> None:
    runs, states, _ = play([script(*turns)] * 2, [{}, {}], made)
    fresh: Counter[tuple[str, str]] = Counter(
        (one.tool_name, json.dumps(dict(one.arguments), sort_keys=True))
        for one in states[-1].tool_executions
        if one.tool_name in {"once", "moody"} and one.success and not one.idempotent_cache_hit
    )
    assert not [call for call, times in fresh.items() if times > 1]
    assert len(runs) == 2


@PROPERTY
@given(scripts, options)
def test_c19_each_call_has_one_result_in_call_order(turns: list[Any], made: dict[str, Any]) -> None:
    (run,), (state,), _ = play([script(*turns)], [{}], made)
    asked = [call for think in run.of(ThinkEvent) for call in think.tool_calls]
    answered = [message for message in state.messages if message.tool_call_id is not None]
    assert [(call.id, call.name) for call in asked] == [
        (message.tool_call_id, message.name) for message in answered
    ]
    own = [one for one in run.completes if one.parent_call_id is None]
    assert len(own) == len(asked)
    assert Counter((one.tool_call_id, one.result or f"Error: {one.error}") for one in own) == (
        Counter((message.tool_call_id, message.content) for message in answered)
    )
