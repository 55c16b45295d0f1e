"""C44 and the page's `checkpointer=`: what is kept of threads, where, and what goes on from it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.loop.interrupting import ask_twice, asking
from tests.loop.support import TOOLS, inline, marks, performer, ran, script
from tulip_actors import (
    Agent,
    AgentResult,
    AgentState,
    ConfigError,
    HookProvider,
    InterruptNotPending,
    NotSerialisable,
    Role,
    RunLost,
    RunNotFound,
    ThreadBusy,
)
from tulip_actors.core.runs import RunRequest
from tulip_actors.core.termination import MaxIterations
from tulip_actors.memory.backends import FileCheckpointer, MemoryCheckpointer, SQLiteBackend
from tulip_actors.memory.checkpointer import BaseCheckpointer

ADD: Any = ["add", {"a": 1, "b": 1}]
TURNS: list[Any] = [[["add", {"a": 1, "b": 1}]], [["add", {"a": 2, "b": 2}]], "done"]


class Folder(BaseCheckpointer):
    """A user's own: one JSON file per checkpoint, and nothing but the four methods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def save(
        self, state: AgentState, thread_id: str, checkpoint_id: str | None = None
    ) -> str:
        number = len(self._files(thread_id))
        name = checkpoint_id or f"saved {number}"
        path = self.folder / f"{thread_id}.{number:04}.json"
        path.write_text(json.dumps({"id": name, "state": state.to_checkpoint()}))
        return name

    async def load(self, thread_id: str, checkpoint_id: str | None = None) -> AgentState | None:
        for path in self._files(thread_id):
            kept = json.loads(path.read_text())
            if checkpoint_id in (None, kept["id"]):
                return AgentState.from_checkpoint(kept["state"])
        return None

    async def list_checkpoints(self, thread_id: str, limit: int | None = None) -> Sequence[str]:
        return [json.loads(path.read_text())["id"] for path in self._files(thread_id)][:limit]

    async def delete(self, thread_id: str) -> bool:
        files = self._files(thread_id)
        for path in files:
            path.unlink()
        return bool(files)

    def _files(self, thread_id: str) -> list[Path]:
        return sorted(self.folder.glob(f"{thread_id}.*.json"), reverse=True)


@pytest.fixture(params=["memory", "file", "sqlite", "own"])
def checkpointer(request: pytest.FixtureRequest, tmp_path: Path) -> BaseCheckpointer:
    """Each kind; nothing of it is shared with other tests."""
    made: dict[str, BaseCheckpointer] = {
        "memory": MemoryCheckpointer(),
        "file": FileCheckpointer(tmp_path / "threads"),
        "sqlite": SQLiteBackend(tmp_path / "runs.db"),
        "own": Folder(tmp_path),
    }
    return made[request.param]


def again(checkpointer: BaseCheckpointer) -> BaseCheckpointer:
    """The same threads as another process would open them; those in memory are where they are."""
    if isinstance(checkpointer, MemoryCheckpointer):
        return checkpointer
    if isinstance(checkpointer, SQLiteBackend):
        return SQLiteBackend(checkpointer.path)
    return type(checkpointer)(checkpointer.folder)  # type: ignore[call-arg,attr-defined]


def player(checkpointer: BaseCheckpointer, **options: Any) -> Agent:
    return Agent(
        performer(),
        [*TOOLS, asking, ask_twice],
        runtime="inline",
        checkpointer=checkpointer,
        **options,
    )


async def test_a_conversation_goes_on_after_a_restart(checkpointer: BaseCheckpointer) -> None:
    first = await ran(player(checkpointer), script(*TURNS), thread_id="t")
    second = await ran(player(again(checkpointer)), script("again"), thread_id="t")
    kept = list(second.ok.messages[: len(first.ok.messages)])
    assert kept == list(first.ok.messages)
    assert second.ok.iterations == 1, "counters are fresh"
    assert second.ok.metrics.tool_calls == 0


async def test_c20_an_idempotent_call_is_served_after_a_restart(
    checkpointer: BaseCheckpointer, path: str
) -> None:
    prompt = script([["refund", {"path": path}]], "refunded")
    await ran(player(checkpointer), prompt, thread_id="t")
    second = await ran(player(again(checkpointer)), prompt, thread_id="t")
    (execution,) = [one for one in second.ok.tool_executions if one.run_id == second.ok.run_id]
    assert execution.result == "RF-1"
    assert execution.idempotent_cache_hit


async def test_c21_a_paused_run_goes_on_after_a_restart(
    checkpointer: BaseCheckpointer, path: str
) -> None:
    prompt = script([["asking", {"path": path}], ["count", {"path": path + "2"}]], "over")
    paused = await player(checkpointer).arun(prompt, thread_id="t", metadata={"who": "ann"})
    assert paused.stop_reason == "interrupted"
    (question,) = paused.interrupts
    other = player(again(checkpointer))
    ended = await other.aresume("yes", question.interrupt_id, "t")
    assert ended.stop_reason == "complete"
    assert ended.run_id == paused.run_id
    assert ended.state.metadata == {"who": "ann"}
    assert [one.result for one in ended.tool_executions] == ["asking: yes", "1"]
    with pytest.raises(InterruptNotPending):
        await other.aresume("yes", question.interrupt_id, "t")


async def test_c21_after_a_restart_the_thread_is_enough_to_answer(
    checkpointer: BaseCheckpointer, path: str
) -> None:
    prompt = script([["asking", {"path": path}]], "over")
    paused = await player(checkpointer).arun(prompt, thread_id="t")
    other = player(again(checkpointer))
    events = [event async for event in other.resume("yes", thread_id="t")]
    assert events[-1].source is not None
    assert events[-1].source.run_id == paused.run_id
    with pytest.raises(RunNotFound, match="no run on thread 'nowhere'"):
        await other.aresume("yes", thread_id="nowhere")


async def test_c21_of_two_answers_in_one_body_the_second_may_come_after_a_restart(
    checkpointer: BaseCheckpointer,
) -> None:
    paused = await player(checkpointer).arun(script([["ask_twice", {}]], "over"), thread_id="t")
    (first,) = paused.interrupts
    paused_again = await player(again(checkpointer)).aresume("a", first.interrupt_id, "t")
    (second,) = paused_again.interrupts
    ended = await player(again(checkpointer)).aresume("b", second.interrupt_id, "t")
    assert [one.result for one in ended.tool_executions] == ["a and b"]


async def test_c21_an_answer_to_a_run_whose_thread_has_gone_on_is_refused(
    checkpointer: BaseCheckpointer, path: str
) -> None:
    agent = player(checkpointer)
    paused = await agent.arun(script([["asking", {"path": path}]], "over"), thread_id="t")
    later = await ran(agent, script("something else"), thread_id="t")
    assert [m.content for m in later.ok.messages if m.role is Role.TOOL] == [
        "it asked a question that nobody answered, and did not go on from there"
    ]
    (question,) = paused.interrupts
    with pytest.raises(InterruptNotPending, match="has continued its thread 't' meanwhile"):
        await agent.aresume("yes", question.interrupt_id)
    after = await ran(agent, script("still there"), thread_id="t")
    assert after.ok.text == "still there"


async def test_there_is_a_checkpoint_at_the_end_of_a_run_and_every_n_turns(
    checkpointer: BaseCheckpointer,
) -> None:
    agent = player(checkpointer, checkpoint_every_n_iterations=1)
    run = await ran(agent, script(*TURNS), thread_id="t")
    ids = await checkpointer.list_checkpoints("t")
    assert len(ids) == len(set(ids)) == 3, "after two turns, and at the end"
    assert list(ids[:2]) == list(await checkpointer.list_checkpoints("t", limit=2))
    states = [await checkpointer.load("t", one) for one in ids]
    assert [state and state.iteration for state in states] == [3, 2, 1]
    assert [len(state.messages) for state in states if state] == [6, 5, 3]
    newest = await checkpointer.load("t")
    assert newest == states[0]
    assert newest is not None
    assert list(newest.messages) == list(run.ok.messages)
    assert list(newest.tool_executions) == list(run.ok.tool_executions)


async def test_without_the_interval_there_is_one_at_the_end_alone(
    checkpointer: BaseCheckpointer,
) -> None:
    await ran(player(checkpointer), script(*TURNS), thread_id="t")
    assert len(await checkpointer.list_checkpoints("t")) == 1


async def test_what_nobody_kept_is_not_there(checkpointer: BaseCheckpointer) -> None:
    assert await checkpointer.load("t") is None
    assert list(await checkpointer.list_checkpoints("t")) == []
    assert not await checkpointer.delete("t")
    await ran(player(checkpointer), script("hi"), thread_id="t")
    assert await checkpointer.load("t", "no such checkpoint") is None


async def test_agents_that_share_a_checkpointer_continue_each_others_conversation(
    checkpointer: BaseCheckpointer,
) -> None:
    one, two, three = player(checkpointer), player(checkpointer), player(again(checkpointer))
    for agent in (one, two, three, one):
        run = await ran(agent, script("said"), thread_id="t")
    assert [m.role for m in run.ok.messages].count(Role.USER) == 4


async def test_c21_of_two_agents_that_take_one_answer_at_once_one_goes_on(
    checkpointer: BaseCheckpointer, path: str
) -> None:
    """The other is refused before anything is run: what was asked about is done once."""
    one, two = player(checkpointer), player(checkpointer)
    paused = await one.arun(script([["asking", {"path": path}]], "over"), thread_id="t")
    (question,) = paused.interrupts
    told = await asyncio.gather(
        one.aresume("yes", question.interrupt_id, "t"),
        two.aresume("no", question.interrupt_id, "t"),
        return_exceptions=True,
    )
    (went_on,) = [one for one in told if isinstance(one, AgentResult)]
    (refused,) = [one for one in told if isinstance(one, BaseException)]
    assert isinstance(refused, ThreadBusy | InterruptNotPending)
    assert marks(path) == 2, "the body ran until it asked, and once more with the answer"
    state = await one.get_state("t")
    assert state is not None
    assert list(state.tool_executions) == list(went_on.tool_executions)


async def test_a_thread_is_free_after_its_store_failed(tmp_path: Path) -> None:
    class Fails(Folder):
        failing = False

        async def save(
            self, state: AgentState, thread_id: str, checkpoint_id: str | None = None
        ) -> str:
            if self.failing:
                raise OSError("no space left")
            return await super().save(state, thread_id, checkpoint_id)

    checkpointer = Fails(tmp_path)
    agent = player(checkpointer)
    checkpointer.failing = True
    run = await ran(agent, script("one"), thread_id="t")
    assert isinstance(run.failure, OSError)
    assert run.end.reason == "error", "nobody is told of a success that is not stored"
    checkpointer.failing = False
    assert (await ran(agent, script("two"), thread_id="t")).ok.success


async def test_what_is_no_state_is_refused_by_the_checkpointers_name(tmp_path: Path) -> None:
    class Junk(Folder):
        async def load(self, thread_id: str, checkpoint_id: str | None = None) -> Any:
            return "junk"

    with pytest.raises(ConfigError, match=r"checkpointer: Junk\.load returned str"):
        await player(Junk(tmp_path)).arun(script("x"), thread_id="t")


async def test_a_deleted_thread_begins_anew(checkpointer: BaseCheckpointer) -> None:
    await ran(player(checkpointer), script("hi"), thread_id="t")
    assert await checkpointer.delete("t")
    run = await ran(player(again(checkpointer)), script("hi"), thread_id="t")
    assert len(run.ok.messages) == 2


async def test_a_run_goes_on_from_a_state_that_was_saved_by_hand(
    checkpointer: BaseCheckpointer,
) -> None:
    await ran(player(checkpointer), script("hi"), thread_id="t")
    state = await checkpointer.load("t")
    assert state is not None
    name = await checkpointer.save(state, "copy")
    assert list(await checkpointer.list_checkpoints("copy")) == [name]
    run = await ran(player(again(checkpointer)), script("again"), thread_id="copy")
    assert [m.content for m in run.ok.messages if m.role is Role.ASSISTANT] == ["hi", "again"]


async def test_nothing_is_saved_into_a_thread_that_a_run_holds(tmp_path: Path) -> None:
    checkpointer = FileCheckpointer(tmp_path)
    await checkpointer.acquire("t", "run_1", 60)
    with pytest.raises(ThreadBusy):
        await checkpointer.save(AgentState("r", "t", "a"), "t")


async def test_f9_a_cancelled_run_is_flushed_before_it_ends(
    checkpointer: BaseCheckpointer,
) -> None:
    agent = player(checkpointer)
    handle = agent.start(script([["add", {"a": 1, "b": 1}]]), thread_id="t")
    await agent.acancel()
    async for _ in handle.events():
        pass
    state = await checkpointer.load("t")
    assert state is not None
    assert list(state.messages) == list((await handle.result()).messages)


async def test_the_metadata_a_run_set_is_in_its_checkpoints(
    checkpointer: BaseCheckpointer,
) -> None:
    agent = player(checkpointer, output_key="answer")
    run = await ran(agent, script("forty-two"), thread_id="t", metadata={"a": 1})
    state = await checkpointer.load("t")
    assert state is not None
    assert state.metadata == {"a": 1, "answer": "forty-two"} == run.ok.state.metadata


async def test_c35_get_state_tells_where_a_thread_stands(runtime: str, tmp_path: Path) -> None:
    agent = Agent(
        performer(),
        TOOLS,
        runtime=runtime,
        checkpointer=FileCheckpointer(tmp_path),
        checkpoint_every_n_iterations=1,
    )
    async with agent:
        assert await agent.get_state("t") is None
        assert list(await agent.get_state_history("t")) == []
        run = await ran(agent, script(*TURNS), thread_id="t")
        state = await agent.get_state("t")
        assert state is not None
        assert list(state.messages) == list(run.ok.messages)
        assert state.run_id == run.ok.run_id
        history = await agent.get_state_history("t")
        assert [one.iteration for one in history] == [3, 2, 1]
        assert list(await agent.get_state_history("t", limit=1)) == [history[0]]


async def test_c35_get_state_works_without_a_checkpointer(agent: Agent, thread: str) -> None:
    run = await ran(agent, script([ADD], "two"), thread_id=thread)
    state = await agent.get_state(thread)
    assert state is not None
    assert list(state.messages) == list(run.ok.messages)
    without_thread = await ran(agent, script("x"))
    assert await agent.get_state(without_thread.ok.run_id) is not None


async def test_c16_a_memory_checkpointer_is_a_handle_that_agents_share(runtime: str) -> None:
    checkpointer = MemoryCheckpointer()
    agents = [
        Agent(performer(), TOOLS, name=name, runtime=runtime, checkpointer=checkpointer)
        for name in ("one", "two")
    ]
    async with agents[0], agents[1]:
        await ran(agents[0], script("from one"), thread_id="t")
        run = await ran(agents[1], script("from two"), thread_id="t")
        assert len(run.ok.messages) == 4
        state = await checkpointer.load("t")
        assert state is not None
        assert len(state.messages) == 4
        other = MemoryCheckpointer()
        stranger = Agent(performer(), TOOLS, runtime=runtime, checkpointer=other)
        async with stranger:
            run = await ran(stranger, script("alone"), thread_id="t")
            assert len(run.ok.messages) == 2


def test_a_memory_checkpointer_cannot_be_in_two_places() -> None:
    checkpointer = MemoryCheckpointer()
    inline("x", checkpointer=checkpointer)
    with pytest.raises(ConfigError, match="keeps its threads in this process already, not"):
        Agent(performer(), runtime="ray", checkpointer=checkpointer)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"checkpointer": "folder"}, "checkpointer: 'folder' has none of the schemes sqlite://"),
        ({"checkpointer": MemoryCheckpointer}, "checkpointer: give a URL .* MemoryCheckpointer"),
        ({"checkpoint_every_n_iterations": 0}, "checkpoint_every_n_iterations: give a whole"),
    ],
)
def test_what_is_no_checkpointer_is_refused_by_name(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        inline("x", **options)


def test_f41_a_memory_checkpointer_is_read_on_any_event_loop(runtime: str) -> None:
    checkpointer = MemoryCheckpointer()
    agent = Agent(performer(), TOOLS, runtime=runtime, checkpointer=checkpointer)
    agent.run_sync(script("hi"), thread_id="t")
    for copy in ("one", "two"):
        state = asyncio.run(checkpointer.load("t"))
        assert state is not None
        asyncio.run(checkpointer.save(state, copy))
    assert asyncio.run(checkpointer.delete("one"))
    assert asyncio.run(checkpointer.load("two")) is not None
    asyncio.run(agent.stop())


async def test_a_checkpointed_turn_writes_as_much_at_any_length(tmp_path: Path) -> None:
    """What a turn adds, not what the conversation has grown to: counters may gain a digit."""
    sizes: list[int] = []

    class Measures(HookProvider):
        def on_iteration_start(self, iteration: int, state: AgentState) -> None:
            sizes.append(sum(file.stat().st_size for file in tmp_path.glob("*.thread")))

    turns = [[["add", {"a": 1000 + n, "b": 1}]] for n in range(120)]
    agent = inline(
        *turns,
        "done",
        checkpointer=FileCheckpointer(tmp_path),
        checkpoint_every_n_iterations=1,
        max_iterations=200,
        hooks=[Measures()],
    )
    await ran(agent, "x", thread_id="t")
    written = [after - before for before, after in pairwise(sizes)]
    early, late = statistics.median(written[5:15]), statistics.median(written[105:115])
    assert early < late < early + 30


async def test_c21_two_answers_at_once_are_both_taken(checkpointer: BaseCheckpointer) -> None:
    agent = player(checkpointer)
    turn: Any = [["ask_twice", {}, "one"], ["ask_twice", {}, "two"]]
    paused = await agent.arun(script(turn, "over"), thread_id="t")
    one, two = (question.interrupt_id for question in paused.interrupts)
    await asyncio.gather(agent.aresume("a", one), agent.aresume("c", two))
    state = await agent.get_state("t")
    assert state is not None
    paused_again = await agent.aresume("b", one.removesuffix("/0") + "/1")
    assert len(paused_again.interrupts) == 1
    ended = await agent.aresume("d", two.removesuffix("/0") + "/1")
    assert [one.result for one in ended.tool_executions] == ["a and b", "c and d"]


async def test_c21_of_two_answers_to_one_question_the_second_is_refused(
    checkpointer: BaseCheckpointer, path: str
) -> None:
    agent = player(checkpointer)
    paused = await agent.arun(script([["asking", {"path": path}]], "over"), thread_id="t")
    (question,) = paused.interrupts
    first, second = await asyncio.gather(
        agent.aresume("yes", question.interrupt_id),
        agent.aresume("no", question.interrupt_id),
        return_exceptions=True,
    )
    assert isinstance(first, AgentResult)
    assert [one.result for one in first.tool_executions] == ["asking: yes"]
    assert isinstance(second, InterruptNotPending)


async def test_c21_an_answer_to_nothing_does_not_change_what_the_next_one_is_for(
    checkpointer: BaseCheckpointer, path: str
) -> None:
    agent = player(checkpointer)
    await agent.arun(script([["asking", {"path": path}]], "over"), thread_id="t")
    with pytest.raises(RunNotFound):
        await agent.aresume("yes", "bogus/1")
    assert (await agent.aresume("yes")).stop_reason == "complete"


async def test_c21_the_newest_run_of_a_thread_is_answered_by_whoever_asks(
    checkpointer: BaseCheckpointer, path: str
) -> None:
    first = player(checkpointer)
    await first.arun(script("hello"), thread_id="t")
    other = player(checkpointer)
    await other.arun(script([["asking", {"path": path}]], "over"), thread_id="t")
    assert (await first.aresume("yes", thread_id="t")).stop_reason == "complete"


BAD_IDS: list[Any] = ["", 5, b"t", "\ud800"]


@pytest.mark.parametrize("bad", BAD_IDS)
async def test_what_is_no_id_is_refused_by_name(bad: Any, tmp_path: Path) -> None:
    agent = player(FileCheckpointer(tmp_path))
    for work, name in (
        (lambda: agent.aresume("yes", bad), "interrupt_id"),
        (lambda: agent.aresume("yes", thread_id=bad), "thread_id"),
        (lambda: agent.get_state(bad), "thread_id"),
        (lambda: agent.get_state_history(bad), "thread_id"),
    ):
        with pytest.raises((ConfigError, NotSerialisable), match=name):
            await work()
    assert list(tmp_path.glob("*.thread")) == []


async def test_a_thread_id_that_does_not_fit_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="too long for a file"):
        await player(FileCheckpointer(tmp_path)).arun(script("x"), thread_id="x" * 100_000)
    assert list(tmp_path.glob("*.thread")) == []


async def test_a_paused_thread_may_be_loaded_changed_and_saved(
    checkpointer: BaseCheckpointer, path: str
) -> None:
    agent = player(checkpointer)
    paused = await agent.arun(script([["asking", {"path": path}]], "over"), thread_id="t")
    state = await checkpointer.load("t")
    assert state is not None
    await checkpointer.save(state.with_metadata("tag", "urgent"), "t")
    again_loaded = await checkpointer.load("t")
    assert again_loaded is not None
    await checkpointer.save(again_loaded, "t")
    handle = agent.resume("yes", paused.interrupts[0].interrupt_id, "t")
    events = [event async for event in handle]
    first = events[0].source
    assert first is not None
    assert first.seq == 4, "think, start, interrupt and terminate came before"
    ended = await agent.get_state("t")
    assert ended is not None
    assert [one.result for one in ended.tool_executions] == ["asking: yes"]
    assert ended.metadata == {"tag": "urgent"}


async def test_a_paused_thread_moves_from_one_checkpointer_to_another(
    checkpointer: BaseCheckpointer, path: str, tmp_path: Path
) -> None:
    prompt = script([["asking", {"path": path}]], "over")
    paused = await player(checkpointer).arun(prompt, thread_id="t")
    state = await checkpointer.load("t")
    assert state is not None
    other = FileCheckpointer(tmp_path / "other")
    await other.save(state, "t")
    ended = await player(other).aresume("yes", paused.interrupts[0].interrupt_id, "t")
    assert [one.result for one in ended.tool_executions] == ["asking: yes"]


async def test_c32_a_saved_state_with_an_open_call_is_closed_by_the_next_run(
    checkpointer: BaseCheckpointer, path: str
) -> None:
    agent = player(checkpointer)
    await agent.arun(script([["asking", {"path": path}]], "over"), thread_id="t")
    state = await checkpointer.load("t")
    assert state is not None
    await checkpointer.save(dataclasses.replace(state, paused_run=()), "branch")
    run = await ran(agent, script("next"), thread_id="branch")
    roles = [message.role for message in run.ok.messages]
    assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.USER, Role.ASSISTANT]


async def test_checkpoints_of_a_run_that_ends_at_the_top_of_a_turn_have_different_ids(
    checkpointer: BaseCheckpointer,
) -> None:
    agent = player(checkpointer, checkpoint_every_n_iterations=1, termination=MaxIterations(2))
    await ran(agent, script(*TURNS), thread_id="t")
    ids = await checkpointer.list_checkpoints("t")
    assert len(ids) == len(set(ids)) == 3


async def test_of_two_states_saved_under_one_id_the_newest_is_loaded(tmp_path: Path) -> None:
    checkpointer = FileCheckpointer(tmp_path)
    for tag in ("old", "new"):
        await checkpointer.save(AgentState("r", "t", "a", metadata={"tag": tag}), "t", "mine")
    state = await checkpointer.load("t", "mine")
    assert state is not None
    assert state.metadata == {"tag": "new"}


async def test_a_reader_keeps_no_run_off_a_thread(tmp_path: Path) -> None:
    """While a slow checkpointer loads for a reader, a run begins all the same."""

    class Slow(Folder):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder)
            self.asked = asyncio.Event()
            self.open = asyncio.Event()

        async def load(self, thread_id: str, checkpoint_id: str | None = None) -> AgentState | None:
            if not self.asked.is_set():
                self.asked.set()
                await self.open.wait()
            return await super().load(thread_id, checkpoint_id)

    checkpointer = Slow(tmp_path)
    agent = player(checkpointer)
    reading = asyncio.ensure_future(agent.get_state("t"))
    await checkpointer.asked.wait()
    run = await ran(agent, script("hi"), thread_id="t")
    checkpointer.open.set()
    state = await reading
    assert state is not None
    assert list(state.messages) == list(run.ok.messages)


async def test_f17_a_caller_that_attaches_with_its_cursor_gets_the_rest_and_no_more(
    tmp_path: Path,
) -> None:
    agent = inline([("add", {"a": 1, "b": 2})], "three", checkpointer=FileCheckpointer(tmp_path))
    handle = agent.start("go")
    events = handle.events()
    first = [await anext(events), await anext(events)]
    await handle.result()
    rest = [event async for event in agent.attach(handle.run_id, after=handle.cursor).events()]
    whole = [event async for event in agent.attach(handle.run_id).events()]
    assert [*first, *rest] == whole


async def test_f17_another_agent_on_the_store_has_the_events_of_a_run_that_ended(
    tmp_path: Path,
) -> None:
    agent = inline([("add", {"a": 1, "b": 2})], "three", checkpointer=FileCheckpointer(tmp_path))
    handle = agent.start("go")
    told = [event async for event in handle.events()]
    run_id = handle.run_id
    del agent, handle
    another = inline(checkpointer=FileCheckpointer(tmp_path))
    again = [event async for event in another.attach(run_id).events()]
    assert [event.model_dump() for event in again] == [event.model_dump() for event in told]


async def test_f8_a_run_that_a_checkpointer_of_your_own_lost_is_not_begun_again(
    tmp_path: Path,
) -> None:
    """What it did before its process ended is not known: it is not done a second time."""
    agent = player(Folder(tmp_path))
    prompt = script([["add", {"a": 1, "b": 2}]], "over")
    again = RunRequest("run_lost", "t", prompt, continued=True)
    with pytest.raises(RunLost, match="no record of what came after"):
        await agent.begin(again).result()
    assert (await agent.arun(script("on it goes"), thread_id="t")).text == "on it goes"
