"""Runs as a caller sees them: results, streams, handles, cursors. Both runtimes."""

from __future__ import annotations

import asyncio
import os
import pickle

import pytest

from tests.runtime.support import (
    DEADLINE_S,
    ModelTrouble,
    assert_well_formed,
    collected,
    eventually,
    script,
    types,
    within,
)
from tulip_actors import (
    Agent,
    AgentResult,
    ConfigError,
    ModelChunkEvent,
    ModelNotFound,
    NotSerialisable,
    RunNotFound,
    RunStream,
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
)

TWO_TURNS = script([("add", {"a": 1, "b": 2})], "it is three")


async def idle(agent: Agent) -> bool:
    """True when the agent has no active run."""
    return (await agent.observe()).active_runs == 0


async def test_c35_arun_gives_the_result(agent: Agent) -> None:
    result = await within(agent.arun(TWO_TURNS))
    assert isinstance(result, AgentResult)
    assert (result.message, result.stop_reason, result.iterations) == (
        "it is three",
        "complete",
        2,
    )
    assert result.success
    assert [(one.tool_name, one.result) for one in result.tool_executions] == [("add", "3")]
    assert [message.role for message in result.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_a_run_tells_its_events_in_order(agent: Agent) -> None:
    events = await collected(agent.run(TWO_TURNS))
    assert types(events) == ["think", "tool_start", "tool_complete", "think", "terminate"]
    assert_well_formed(events)


async def test_the_events_say_what_happened(agent: Agent) -> None:
    think, start, complete, answer, end = await collected(agent.run(TWO_TURNS))
    assert isinstance(think, ThinkEvent)
    assert (think.iteration, think.reasoning) == (0, None)
    assert [call.name for call in think.tool_calls] == ["add"]
    assert isinstance(start, ToolStartEvent)
    assert (start.tool_name, start.arguments) == ("add", {"a": 1, "b": 2})
    assert isinstance(complete, ToolCompleteEvent)
    assert (complete.tool_call_id, complete.result) == (start.tool_call_id, "3")
    assert complete.error is None
    assert complete.worker_pid
    assert complete.node_id
    assert isinstance(answer, ThinkEvent)
    assert (answer.iteration, answer.content) == (1, "it is three")
    assert isinstance(end, TerminateEvent)
    assert (end.reason, end.stop_reason, end.iterations_used) == ("complete", "complete", 2)
    assert (end.total_tool_calls, end.final_message, end.usage) == (1, "it is three", None)


async def test_every_event_says_where_it_comes_from(agent: Agent) -> None:
    status = await agent.observe()
    events = await collected(agent.run(TWO_TURNS, thread_id="a-thread"))
    for seq, event in enumerate(events):
        source = event.source
        assert source is not None
        assert (source.seq, source.agent, source.thread_id) == (seq, "player", "a-thread")
        assert source.parent_run_id is None
        assert source.specialist_id is None
        assert (source.pid, source.node_id) == (status.pid, status.node_id)
    assert len({event.source.run_id for event in events if event.source}) == 1


async def test_two_runs_have_ids_of_their_own(agent: Agent) -> None:
    one, two = await within(asyncio.gather(agent.arun(script("a")), agent.arun(script("b"))))
    assert one.run_id != two.run_id
    assert one.thread_id == one.run_id


async def test_fifty_runs_at_once_on_one_agent_do_not_mix(agent: Agent) -> None:
    prompts = [script([("add", {"a": n, "b": n})], f"answer {n}") for n in range(50)]
    results = await within(asyncio.gather(*[agent.arun(prompt) for prompt in prompts]), 60)
    assert [result.message for result in results] == [f"answer {n}" for n in range(50)]
    assert [result.tool_executions[0].result for result in results] == [
        str(2 * n) for n in range(50)
    ]


async def test_a_nap_of_one_run_does_not_hold_up_another(agent: Agent) -> None:
    slow = agent.start(script([("naps", {"seconds": 300})], "late"))
    try:
        assert (await within(agent.arun(script("early")))).message == "early"
        assert not slow.done
    finally:
        slow.cancel()
        await within(slow.result())


async def test_tokens_are_streamed_when_they_are_asked_for(agent: Agent) -> None:
    """C35: `stream_tokens=`."""
    answer = "a long answer that takes several chunks 🌷"
    events = await collected(agent.run(script(answer), stream_tokens=True))
    chunks = [event for event in events if isinstance(event, ModelChunkEvent)]
    assert len(chunks) > 2
    assert "".join(chunk.content or "" for chunk in chunks) == answer
    assert [chunk.done for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert types(events)[len(chunks) :] == ["think", "terminate"]
    assert_well_formed(events)


async def test_streamed_tool_calls_are_made_like_whole_ones(agent: Agent) -> None:
    prompt = script([("add", {"a": 1, "b": 2}), ("echo", {"text": '"ü"\n'})], "done")
    events = await collected(agent.run(prompt, stream_tokens=True))
    results = {e.tool_name: e.result for e in events if isinstance(e, ToolCompleteEvent)}
    assert results == {"add": "3", "echo": '"ü"\n'}


async def test_without_stream_tokens_there_are_no_chunks(agent: Agent) -> None:
    assert "model_chunk" not in types(await collected(agent.run(TWO_TURNS)))


async def test_metadata_reaches_tools_and_state(agent: Agent) -> None:
    """C35: `metadata=`."""
    metadata = {"user": {"id": 7}, "tags": ["a"]}
    result = await within(agent.arun(script([("where", {})], "done"), metadata=metadata))
    assert result.state.metadata == metadata
    assert '"metadata":{"user":{"id":7},"tags":["a"]}' in (result.tool_executions[0].result or "")


async def test_a_tool_knows_the_call_it_serves(agent: Agent) -> None:
    import json

    handle = agent.start(script([("echo", {"text": "x"})], [("where", {})], "done"), thread_id="t1")
    result = await within(handle.result())
    known = json.loads(result.tool_executions[1].result or "")
    assert (known["run_id"], known["thread_id"]) == (handle.run_id, "t1")
    assert (known["agent"], known["iteration"]) == ("player", 1)
    assert known["key"] == f"{handle.run_id}:1.0"


async def test_metadata_that_json_cannot_hold_is_refused_with_its_path(agent: Agent) -> None:
    """F10, C1: by path and type, before anything starts."""
    with pytest.raises(NotSerialisable, match=r"metadata\.user\.socket is a builtins\.object"):
        agent.start("x", metadata={"user": {"socket": object()}})


async def test_a_prompt_that_is_not_text_is_refused(agent: Agent) -> None:
    with pytest.raises(ConfigError, match="prompt: give text, not int"):
        agent.run(7)  # type: ignore[arg-type]


async def test_a_prompt_that_utf8_cannot_hold_is_refused_by_name(agent: Agent) -> None:
    with pytest.raises(NotSerialisable, match="prompt"):
        await within(agent.arun("\ud800"))


async def test_an_empty_thread_id_is_refused(agent: Agent) -> None:
    with pytest.raises(ConfigError, match="thread_id"):
        agent.start("x", thread_id="")


# start, attach, cursors


async def test_a_started_run_goes_on_when_its_events_are_left(agent: Agent) -> None:
    """C35: `start` gives a handle on a run that needs nobody."""
    handle = agent.start(script([("naps", {"seconds": 0.2})], "done"))
    async for event in handle.events():
        if isinstance(event, ToolStartEvent):
            break
    assert (await within(handle.result())).message == "done"


async def test_a_started_run_needs_no_reader(agent: Agent) -> None:
    handle = agent.start(TWO_TURNS)
    await eventually(lambda: handle.done, "the run ends by itself")
    assert (await within(handle.result())).message == "it is three"


async def test_a_handles_events_begin_at_the_start_however_late_they_are_read(
    agent: Agent,
) -> None:
    """C35: `after=None` is the start."""
    handle = agent.start(TWO_TURNS)
    await within(handle.result())
    assert_well_formed(await collected(handle.events()))


async def test_a_cursor_continues_without_gap_or_repeat(agent: Agent) -> None:
    """C35: `cursor` stands after the event last yielded; `events(after=...)` takes it."""
    prompt = script(*[[("add", {"a": n, "b": 1})] for n in range(6)], "done")
    handle = agent.start(prompt)
    seen: list[TulipEvent] = []
    cursor: str | None = None
    while not seen or not isinstance(seen[-1], TerminateEvent):
        events = handle.events(after=cursor)
        for _ in range(3):
            event = await within(anext(events, None))
            if event is None:
                break
            seen.append(event)
        cursor = handle.cursor
    assert_well_formed(seen)
    assert len(seen) == 6 * 3 + 2


async def test_a_cursor_works_on_a_handle_that_was_attached(agent: Agent) -> None:
    handle = agent.start(TWO_TURNS)
    await within(handle.result())
    events = handle.events()
    first = [await within(anext(events)) for _ in range(2)]
    rest = await collected(agent.attach(handle.run_id).events(after=handle.cursor))
    assert_well_formed([*first, *rest])


async def test_c35_attach_takes_a_cursor(agent: Agent) -> None:
    handle = agent.start(TWO_TURNS)
    await within(handle.result())
    events = handle.events()
    first = [await within(anext(events)) for _ in range(2)]
    attached = agent.attach(handle.run_id, after=handle.cursor)
    assert_well_formed([*first, *await collected(attached.events())])


async def test_two_readers_of_one_handle_both_see_everything(agent: Agent) -> None:
    handle = agent.start(script([("naps", {"seconds": 0.1})], "done"))
    one, two = await asyncio.gather(collected(handle.events()), collected(handle.events()))
    assert_well_formed(one)
    assert types(two) == types(one)


async def test_attaching_to_a_run_leaves_its_first_reader_whole(agent: Agent) -> None:
    handle = agent.start(script([("naps", {"seconds": 0.3})], "done"))
    events = handle.events()
    first = await within(anext(events))
    attached = await collected(agent.attach(handle.run_id).events())
    assert_well_formed(attached)
    assert_well_formed([first, *await collected(events)])


async def test_attaching_to_a_run_leaves_its_result_to_who_awaits_it(agent: Agent) -> None:
    handle = agent.start(script([("naps", {"seconds": 0.3})], "done"))
    waiting = asyncio.create_task(handle.result())
    await within(anext(handle.events()))
    assert (await within(agent.attach(handle.run_id).result())).message == "done"
    assert (await within(waiting)).message == "done"


async def test_a_run_nobody_knows_cannot_be_attached_to(agent: Agent) -> None:
    with pytest.raises(RunNotFound, match="run_never"):
        await within(agent.attach("run_never").result())


@pytest.mark.parametrize("cursor", ["nonsense", "cjE6", "ü", "YjE6Mw=="])
async def test_a_cursor_that_is_none_is_refused(agent: Agent, cursor: str) -> None:
    handle = agent.start(script("hi"))
    with pytest.raises(ConfigError, match="cursor"):
        await collected(handle.events(after=cursor))
    await within(handle.result())


async def test_a_closed_stream_cannot_be_read_any_further(agent: Agent) -> None:
    stream = agent.run(script([("naps", {"seconds": 300})], "never"))
    await within(anext(stream))
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await within(anext(stream))


async def test_a_stream_that_was_closed_before_it_began_starts_nothing(agent: Agent) -> None:
    stream = agent.run(script("never"))
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await within(anext(stream))
    await eventually(lambda: idle(agent), "nothing runs")


# failures of the model


async def told_before(failure: type[Exception], stream: RunStream[AgentResult]) -> list[TulipEvent]:
    """The events of a stream that has to end by raising `failure`."""
    events: list[TulipEvent] = []
    while True:
        try:
            events.append(await within(anext(stream)))
        except failure:
            return events


async def test_a_model_error_ends_the_stream_and_is_then_raised(agent: Agent) -> None:
    events = await told_before(ModelTrouble, agent.run(script({"raise": "out of order"})))
    assert types(events) == ["terminate"]
    end = events[0]
    assert isinstance(end, TerminateEvent)
    assert (end.reason, end.stop_reason) == ("error", "error")


async def test_a_model_error_after_a_turn_keeps_what_was_told(agent: Agent) -> None:
    prompt = script([("add", {"a": 1, "b": 1})], {"raise": "late"})
    events = await told_before(ModelTrouble, agent.run(prompt))
    assert types(events) == ["think", "tool_start", "tool_complete", "terminate"]
    assert_well_formed(events)


async def test_arun_raises_what_the_model_raised(agent: Agent) -> None:
    with pytest.raises(ModelTrouble, match="broken"):
        await within(agent.arun(script({"raise": "broken"})))


async def test_a_handles_result_raises_what_the_model_raised_each_time(agent: Agent) -> None:
    handle = agent.start(script({"raise": "broken"}))
    for _ in range(2):
        with pytest.raises(ModelTrouble, match="broken"):
            await within(handle.result())


async def test_an_unknown_model_prefix_is_named_and_the_known_ones_listed(runtime: str) -> None:
    async with Agent("acme:large", runtime=runtime) as agent:
        with pytest.raises(ModelNotFound, match=r"'acme:large'.*openai"):
            await within(agent.arun("hi"))


# observing and ending


async def test_observe_tells_who_and_where(agent: Agent) -> None:
    """C35: `AgentStatus`."""
    await eventually(lambda: idle(agent), "no other test's run is left")
    handle = agent.start(script([("naps", {"seconds": 300})], "never"))
    await within(anext(handle.events()))
    status = await agent.observe()
    assert (status.name, status.id, status.restarts) == ("player", agent.id, 0)
    assert status.active_runs == 1
    assert (status.pid == os.getpid()) == (agent.runtime == "inline")
    handle.cancel()
    await within(handle.result())
    await eventually(lambda: idle(agent), "an ended run is no longer active")


async def test_breaking_off_at_the_last_event_leaves_nothing_active(agent: Agent) -> None:
    for _ in range(20):
        async for event in agent.run(script("hi")):
            if isinstance(event, TerminateEvent):
                break
    await eventually(lambda: idle(agent), "ended runs are no longer active")


async def test_a_handle_shows_whether_its_run_has_ended(agent: Agent) -> None:
    handle = agent.start(script("hi"))
    await within(handle.result())
    assert repr(handle) == f"RunHandle({handle.run_id!r}, ended)"


async def test_leaving_async_with_cancels_what_runs(runtime: str) -> None:
    """C35: `async with`."""
    from tests.runtime.support import naps
    from tulip_actors.testing import ScriptedModel, tool_call

    model = ScriptedModel([tool_call("naps", seconds=60), "never"])
    async with Agent(model, [naps], runtime=runtime) as agent:
        handle = agent.start("x")
        async for event in handle.events():
            if isinstance(event, ToolStartEvent):
                break
    result = await within(handle.result(), DEADLINE_S)
    assert result.stop_reason == "cancelled"


async def test_stop_lets_runs_end_that_are_quick_enough(runtime: str) -> None:
    """C35: `stop(drain_s)`."""
    from tests.runtime.support import naps
    from tulip_actors.testing import ScriptedModel, tool_call

    agent = Agent(ScriptedModel([tool_call("naps", seconds=0.3), "done"]), [naps], runtime=runtime)
    handle = agent.start("x")
    await within(anext(handle.events()))
    await within(agent.stop(drain_s=DEADLINE_S), 2 * DEADLINE_S)
    assert (await within(handle.result())).message == "done"


async def test_a_stopped_agent_starts_anew_with_its_next_run(runtime: str) -> None:
    from tulip_actors.testing import ScriptedModel

    agent = Agent(ScriptedModel(["hi"]), runtime=runtime)
    first = agent.start("x")
    await within(first.result())
    await within(agent.stop())
    assert (await within(agent.arun("x"))).message == "hi"
    await within(agent.stop())


async def test_a_pickled_handle_works_like_the_original(agent: Agent) -> None:
    copy: Agent = pickle.loads(pickle.dumps(agent)) if agent.runtime == "ray" else agent
    assert copy.id == agent.id
    assert (await within(copy.arun(script("hi")))).message == "hi"
    assert (await copy.observe()).pid == (await agent.observe()).pid


async def test_model_trace_tells_what_the_double_was_asked(runtime: str) -> None:
    """C34; C33: `model_kwargs` are the settings of `complete`."""
    from tulip_actors.testing import ModelRequest, ScriptedModel

    async with Agent(ScriptedModel(["hi"]), system_prompt="Be brief.", runtime=runtime) as agent:
        await within(agent.arun("hello", model_kwargs={"temperature": 0}))
        (asked,) = await within(agent.model_trace())
        assert isinstance(asked, ModelRequest)
        assert [message.content for message in asked.messages] == ["Be brief.", "hello"]
        assert asked.settings == {"temperature": 0}


async def test_several_agents_run_at_once(runtime: str) -> None:
    from tulip_actors.testing import ScriptedModel

    agents = [Agent(ScriptedModel([f"I am {n}"]), name=f"a{n}", runtime=runtime) for n in range(3)]
    results = await within(asyncio.gather(*[agent.arun("who?") for agent in agents]), 40)
    assert [result.message for result in results] == ["I am 0", "I am 1", "I am 2"]
    statuses = await asyncio.gather(*[agent.observe() for agent in agents])
    if runtime == "ray":
        assert len({status.pid for status in statuses}) == 3
    await asyncio.gather(*[agent.stop() for agent in agents])
