"""Models and tools that cost next to nothing, in a module that Ray's workers can import too."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence

from tulip_actors.core.calls import ToolSpec
from tulip_actors.core.frozen import FrozenDict
from tulip_actors.core.messages import Message, ToolCall
from tulip_actors.core.runs import ModelResponse

USAGE: Mapping[str, int] = FrozenDict(prompt_tokens=10, completion_tokens=5, total_tokens=15)


class AddingModel:
    """Asks for `add_one` with a new number in every turn but the last, and notes when it was asked.

    The published doubles keep each conversation they are shown, which at 10,000 turns would be
    most of what is measured; this one looks at its length alone.
    """

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.asked_at_ns: list[int] = []

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> ModelResponse:
        """One turn."""
        self.asked_at_ns.append(time.perf_counter_ns())
        turn = len(messages) // 2
        if turn >= self.turns - 1:
            return ModelResponse(Message.assistant("Done."), USAGE)
        call = ToolCall(f"call_{turn}", "add_one", FrozenDict(n=turn))
        return ModelResponse(Message.assistant("", (call,)), USAGE)


class PayingModel:
    """Asks for one `pay` after the other, `payments` of them; the prompt names the ledger."""

    def __init__(self, payments: int) -> None:
        self.payments = payments

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> ModelResponse:
        """One turn."""
        number = len(messages) // 2
        if number >= self.payments:
            return ModelResponse(Message.assistant("Done."), USAGE)
        arguments = FrozenDict(ledger=messages[0].content, number=number)
        call = ToolCall(f"call_{number}", "pay", arguments)
        return ModelResponse(Message.assistant("", (call,)), USAGE)


class SleepingModel:
    """Answers in text, after a while."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> ModelResponse:
        """The run's only turn."""
        await asyncio.sleep(self.seconds)
        return ModelResponse(Message.assistant("Done."), USAGE)


class BareActor:
    """What Ray alone can do: the same wait, behind an actor call."""

    async def wait(self, seconds: float) -> str:
        """Answer after a while."""
        await asyncio.sleep(seconds)
        return "Done."

    async def pid(self) -> int:
        """Where it runs."""
        return os.getpid()


async def add_one(n: int) -> int:
    """Add one."""
    return n + 1


def add_one_plain(n: int) -> int:
    """Add one, in a thread."""
    return n + 1


async def nothing() -> None:
    """Do nothing, as a coroutine."""


def nothing_plain() -> None:
    """Do nothing, in a thread."""


async def wait_a_bit() -> None:
    """Wait for 100 ms."""
    await asyncio.sleep(0.1)


def block_a_bit() -> None:
    """Block a thread for 100 ms."""
    time.sleep(0.1)


def count_to(upto: int) -> int:
    """Keep a CPU busy."""
    total = 0
    for one in range(upto):
        total += one
    return total


class AllAtOnceModel:
    """Asks for one tool many times in one turn, then says that it is done."""

    def __init__(self, tool_name: str, calls: int) -> None:
        self.calls = tuple(ToolCall(f"call_{n}", tool_name, FrozenDict()) for n in range(calls))

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> ModelResponse:
        """The first turn or the last."""
        if len(messages) > len(self.calls):
            return ModelResponse(Message.assistant("Done."), USAGE)
        return ModelResponse(Message.assistant("", self.calls), USAGE)
