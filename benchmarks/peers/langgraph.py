"""langgraph: its prebuilt ReAct agent."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from benchmarks.peers import Run


class Scripted(BaseChatModel):
    """Asks for the tool until its turns are used up."""

    turns: int
    asked: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: object, **options: object) -> Scripted:
        """The script knows its tool."""
        return self

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        raise NotImplementedError("it is only asked asynchronously")

    async def _agenerate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        self.asked += 1
        message = AIMessage("Done.")
        if self.asked < self.turns:
            call = {"name": "add_one", "args": {"n": self.asked}, "id": f"call_{self.asked}"}
            message = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
async def add_one(n: int) -> int:
    """Add one."""
    return n + 1


@cache
def _made(turns: int, checkpointer: Any = None) -> tuple[Scripted, Any]:
    from langgraph.prebuilt import create_react_agent

    model = Scripted(turns=turns)
    with warnings.catch_warnings():  # its successor is in another package
        warnings.simplefilter("ignore")
        return model, create_react_agent(model, [add_one], checkpointer=checkpointer)


@asynccontextmanager
async def durable(folder: Path) -> AsyncIterator[Run]:
    """Its SQLite checkpointer: the whole state, in time before each next step ("sync")."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
        yield partial(_converse, saver)


async def run(turns: int) -> None:
    """A conversation of that many model calls."""
    await _converse(None, turns)


async def _converse(saver: Any, turns: int) -> None:
    model, agent = _made(turns, saver)
    model.asked = 0
    config = {"recursion_limit": 2 * turns + 5, "configurable": {"thread_id": uuid4().hex}}
    options = {"durability": "sync"} if saver else {}
    answer = await agent.ainvoke({"messages": [("user", "Count.")]}, config, **options)
    assert len(answer["messages"]) == 2 * turns, answer["messages"][-1]
