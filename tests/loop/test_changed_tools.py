"""A run is taken up by an agent whose tools are not what they were when its calls began."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loop.support import inline
from tests.runtime.support import eventually
from tulip_actors import Agent, ToolStartEvent, interrupt, tool
from tulip_actors.errors import ToolChanged
from tulip_actors.memory.backends import FileCheckpointer
from tulip_actors.testing import text, tool_call


@tool
def pay(path: str, amount: int) -> str:
    """Pay an amount, if a human agrees."""
    answer = interrupt(f"pay {amount}?")
    with Path(path).open("a") as file:
        file.write("paid\n")
    return str(answer)


@tool(name="pay")
def pay_described_anew(path: str, amount: int) -> str:
    """Pay; the same arguments in other words.

    Args:
        path: Where it is written down.
        amount: How much.
    """
    return str(pay(path, amount))


@tool(name="pay")
def pay_in_a_currency(path: str, amount: int, currency: str) -> str:
    """Takes what it did not take before."""
    return str(pay(path, amount))


@tool
async def hold(path: str) -> str:
    """Never ends by itself."""
    Path(path).write_text("begun")
    await asyncio.Event().wait()
    return "never"


@tool(name="hold")
async def hold_for(path: str, seconds: int) -> str:
    """Takes what it did not take before."""
    Path(path).write_text("begun again")
    return "held"


def agent_with(folder: Path, *tools: Any, turns: tuple[object, ...] = ("done",)) -> Agent:
    return inline(*turns, tools=tools, checkpointer=FileCheckpointer(folder))


@pytest.fixture
async def paused(tmp_path: Path) -> str:
    """The id of a run that asks whether to pay."""
    asking = tool_call("pay", path=str(tmp_path / "ledger"), amount=3)
    agent = agent_with(tmp_path / "threads", pay, turns=(asking,))
    result = await agent.arun("go", thread_id="t")
    assert result.stop_reason == "interrupted"
    return result.run_id


@pytest.fixture
async def lost(tmp_path: Path) -> str:
    """The id of a run whose process is gone while its call is under way: a copy of its thread as
    it was then is all there is."""
    mark = tmp_path / "mark"
    agent = agent_with(
        tmp_path / "before", hold, turns=(tool_call("hold", path=str(mark)), text("done"))
    )
    handle = agent.start("go", thread_id="t")
    async for event in handle.events():
        if isinstance(event, ToolStartEvent):
            break
    await eventually(mark.exists, "the body has begun")
    shutil.copytree(tmp_path / "before", tmp_path / "threads")
    handle.cancel()
    await handle.result()
    mark.unlink()
    return handle.run_id


@pytest.mark.parametrize("tools", [[pay_in_a_currency], []], ids=["changed", "gone"])
async def test_an_answer_is_refused_whose_tool_is_another_now(
    tmp_path: Path, paused: str, tools: list[Any]
) -> None:
    agent = agent_with(tmp_path / "threads", *tools)
    with pytest.raises(ToolChanged, match=r"call of pay .*Nothing was executed") as refused:
        await agent.aresume("yes", thread_id="t")
    assert refused.value.run_id == paused
    assert not (tmp_path / "ledger").exists()


async def test_after_the_refusal_the_question_is_open_for_the_tool_as_it_was(
    tmp_path: Path, paused: str
) -> None:
    with pytest.raises(ToolChanged):
        await agent_with(tmp_path / "threads").aresume("yes", thread_id="t")
    result = await agent_with(tmp_path / "threads", pay).aresume("yes", thread_id="t")
    assert (result.run_id, result.stop_reason) == (paused, "complete")
    assert (tmp_path / "ledger").read_text() == "paid\n"


async def test_words_about_a_tool_may_change_while_a_run_waits(tmp_path: Path, paused: str) -> None:
    agent = agent_with(tmp_path / "threads", pay_described_anew)
    assert (await agent.aresume("yes", thread_id="t")).run_id == paused


@pytest.mark.parametrize(
    ("tools", "what"), [([hold_for], "other arguments"), ([], "no more")], ids=["changed", "gone"]
)
async def test_a_lost_run_is_not_taken_up_by_an_agent_whose_tool_is_another_now(
    tmp_path: Path, lost: str, tools: list[Any], what: str
) -> None:
    agent = agent_with(tmp_path / "threads", *tools)
    with pytest.raises(ToolChanged, match=f"call of hold .*{what}"):
        await agent.attach(lost).result()
    assert not (tmp_path / "mark").exists()


async def test_a_lost_run_goes_on_once_its_tool_is_back(tmp_path: Path, lost: str) -> None:
    with pytest.raises(ToolChanged):
        await agent_with(tmp_path / "threads").attach(lost).result()
    result = await agent_with(tmp_path / "threads", hold).attach(lost).result()
    assert (result.run_id, result.stop_reason) == (lost, "complete")


async def test_another_run_of_the_thread_gives_up_the_call_of_a_tool_that_is_gone(
    tmp_path: Path, lost: str
) -> None:
    with pytest.raises(ToolChanged):
        await agent_with(tmp_path / "threads").attach(lost).result()
    an_hour_later = FileCheckpointer(tmp_path / "threads", clock_s=lambda: time.time() + 3600)
    agent = inline("done", tools=[], checkpointer=an_hour_later)
    result = await agent.arun("never mind", thread_id="t")
    assert "may have happened" in str([message.content for message in result.messages])


def hash_of(make: Callable[..., Any]) -> str:
    return str(tool(name="same")(make).schema_hash)


def test_a_tool_is_told_from_others_by_its_name_and_arguments_alone() -> None:
    def one(description: str, x: int = 1) -> None:
        """First."""

    def reworded(description: str, x: int = 1) -> None:
        """Second.

        Args:
            description: A parameter of that name.
        """

    def renamed(text: str, x: int = 1) -> None:
        """First."""

    def defaulted(description: str, x: int = 2) -> None:
        """First."""

    assert hash_of(one) == hash_of(reworded)
    assert len({hash_of(one), hash_of(renamed), hash_of(defaulted), tool(one).schema_hash}) == 4
