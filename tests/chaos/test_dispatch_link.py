"""What an actor's side of a dispatcher does when that is killed, with one that is played."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tests.runtime.support import eventually, within
from tulip_actors import ClusterError
from tulip_actors.core.calls import CallKey, CallLost, CallScope, ToolRequest, ToolUpdate
from tulip_actors.core.frozen import FrozenDict
from tulip_actors.runtime.dispatch import DispatcherExecutor
from tulip_actors.runtime.dispatch_link import Client, DispatcherLink
from tulip_actors.runtime.tool_work import pack_updates, unpack_requests
from tulip_actors.tools.decorator import tool


@tool
def pay() -> str:
    """Pay."""
    return "paid"


def request(slot: int) -> ToolRequest:
    scope = CallScope("run", "run", "agent", "agent")
    return ToolRequest(
        CallKey("run", 0, slot), "pay", "c", FrozenDict(), scope, "tools", pay.policy
    )


class Method:
    """A method of an actor handle."""

    def __init__(self, body: Callable[..., Awaitable[object]]) -> None:
        self.body = body

    def remote(self, *arguments: object) -> asyncio.Future[object]:
        return asyncio.ensure_future(self.body(*arguments))


class Played:
    """A dispatcher. Its calls wait for `answers`; once it has `died` they fail."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.taken: list[int] = []
        self.cancelled: list[int] = []
        self.answers = asyncio.Event()
        self.failures = 0
        self.greeted = 0
        self.left = 0
        self.died = asyncio.Event()
        self.polls = asyncio.Event()
        for method in ("hello", "submit", "updates", "cancel", "release", "leave"):
            setattr(self, method, Method(getattr(self, f"_{method}")))

    async def _hello(self, *arguments: object) -> str:
        self.greeted += 1
        return f"{self.name}@dispatcher"

    async def _submit(
        self, id: str, generation: int, incarnation: str, requests: bytes, tools: object
    ) -> bool:
        if incarnation != f"{self.name}@dispatcher":
            return False
        self.taken += [one.key.slot for one in unpack_requests(requests)]
        waits = [asyncio.ensure_future(one.wait()) for one in (self.answers, self.died)]
        await asyncio.wait(waits, return_when="FIRST_COMPLETED")
        if self.died.is_set() or self.failures:
            self.failures -= 1
            raise ConnectionError("reset")
        return True

    async def _updates(self, id: str, generation: int, incarnation: str) -> bytes:
        if incarnation != f"{self.name}@dispatcher":
            raise ClusterError("it is another one")
        waits = [asyncio.ensure_future(one.wait()) for one in (self.polls, self.died)]
        await asyncio.wait(waits, return_when="FIRST_COMPLETED")
        if self.died.is_set():
            raise ConnectionError("reset")
        self.polls.clear()
        return pack_updates([])

    async def _cancel(self, keys: Sequence[CallKey]) -> None:
        self.cancelled += [key.slot for key in keys]

    async def _release(self, keys: bytes) -> None: ...

    async def _leave(self, *arguments: object) -> None:
        self.left += 1


class Talk:
    """A link, the dispatchers it finds one after the other, and what it told."""

    def __init__(self, *dispatchers: Played) -> None:
        self.told: list[ToolUpdate] = []
        tools: Mapping[str, bytes] = {"tools": b""}
        self.present: list[Any] = list(dispatchers)
        self.link = DispatcherLink(
            Client("agent", 1, tools), lambda: self.present[0], self.told.extend, away_s=1.0
        )

    @property
    def lost(self) -> list[int]:
        return [update.key.slot for update in self.told if isinstance(update, CallLost)]


async def test_calls_that_were_never_sent_go_to_the_next_dispatcher() -> None:
    """Only those on their way may have begun: the others are not said to have."""
    one, two = Played("one"), Played("two")
    talk = Talk(one, two)
    talk.link.submit([request(0)])
    await eventually(lambda: one.taken == [0], "the first is on its way")
    talk.link.submit([request(1), request(2)])
    talk.present.pop(0)
    two.answers.set()
    one.died.set()
    await eventually(lambda: two.taken == [1, 2], "the others are sent")
    assert talk.lost == [0]
    assert one.taken == [0]
    await within(talk.link.close())


async def test_a_dispatcher_that_is_slow_to_come_back_is_waited_for() -> None:
    """On a busy machine it takes seconds; a run that is about to call a tool does not fail."""
    one = Played("one")
    one.answers.set()
    talk = Talk(one)
    refusals = 5
    greets = one.hello  # type: ignore[attr-defined]

    async def refuses(*arguments: object) -> object:
        nonlocal refusals
        refusals -= 1
        if refusals < 0:
            return await greets.remote(*arguments)
        raise ClusterError("it is restarting")

    one.hello = Method(refuses)  # type: ignore[attr-defined]
    link = DispatcherLink(Client("agent", 1, {}), lambda: one, talk.told.extend)
    await within(link.connected())
    assert link.incarnation == "one@dispatcher"
    await within(link.close())


async def test_f51_a_message_that_failed_is_sent_again_to_a_dispatcher_that_is_still_there() -> (
    None
):
    one = Played("one")
    one.failures = 1
    one.answers.set()
    talk = Talk(one)
    talk.link.submit([request(0)])
    await eventually(lambda: one.failures == 0, "the message has failed")
    talk.link.submit([request(1)])
    one.polls.set()
    await eventually(lambda: one.taken == [0, 0, 1], "all are sent; it takes known keys once")
    assert talk.lost == []
    await within(talk.link.close())


async def test_f51_calls_end_when_there_is_no_other_dispatcher() -> None:
    one = Played("one")
    talk = Talk(one)
    talk.link.submit([request(0)])
    await eventually(lambda: one.taken == [0], "the first is on its way")
    talk.link.submit([request(1)])

    async def refuses(*arguments: object) -> str:
        raise ClusterError("no node has room")

    one.hello = Method(refuses)  # type: ignore[attr-defined]
    one.died.set()
    await eventually(lambda: talk.lost == [0, 1], "both are told lost")
    await within(talk.link.close())


async def test_a_call_that_is_cancelled_before_it_was_sent_is_never_sent() -> None:
    one = Played("one")
    talk = Talk(one)
    talk.link.submit([request(0)])
    await eventually(lambda: one.taken == [0], "the first is on its way")
    talk.link.submit([request(1), request(2)])
    cancelling = asyncio.ensure_future(talk.link.cancel([request(1).key]))
    await asyncio.sleep(0)
    one.answers.set()
    await within(cancelling)
    assert one.taken == [0, 2]
    await within(talk.link.close())


async def test_f8_calls_that_are_adopted_never_go_to_another_dispatcher() -> None:
    """It would make them once more: the one that is gone may have run them."""
    one, two = Played("one"), Played("two")
    talk = Talk(one, two)
    talk.link.submit([request(0)])
    await eventually(lambda: one.taken == [0], "the first is on its way")
    talk.link.submit([request(1)], adopted=True)
    talk.link.submit([request(2)])
    talk.present.pop(0)
    two.answers.set()
    one.died.set()
    await eventually(lambda: two.taken == [2], "what is new is sent to the next one")
    assert talk.lost == [0, 1]
    await within(talk.link.close())


async def test_calls_that_another_dispatcher_refuses_have_not_begun_and_go_to_it_next() -> None:
    """Nobody was told that the first one died: the one in its place knows that it is not meant."""
    actor = Played("one")
    actor.answers.set()
    talk = Talk(actor)
    await within(talk.link.connected())
    actor.name = "two"  # Ray has started it again under the same handle
    talk.link.submit([request(0)])
    actor.polls.set()
    await eventually(lambda: actor.taken == [0], "it is sent once more, to who is there now")
    assert talk.lost == []
    await within(talk.link.close())


async def test_f8_calls_that_were_told_lost_are_not_sent_again_when_they_are_refused() -> None:
    """The model has been told of them: they must not happen after that."""
    actor = Played("one")
    talk = Talk(actor)
    await within(talk.link.connected())
    asked, refuse = asyncio.Event(), asyncio.Event()
    submits = actor.submit  # type: ignore[attr-defined]

    async def refuses_late(*arguments: object) -> bool:
        asked.set()
        await refuse.wait()
        actor.submit = submits  # type: ignore[attr-defined]
        return False

    actor.submit = Method(refuses_late)  # type: ignore[attr-defined]
    talk.link.submit([request(0)])
    await within(asked.wait())
    actor.name = "two"
    actor.answers.set()
    actor.died.set()
    await eventually(lambda: talk.lost == [0], "it is told lost with the first dispatcher")
    actor.died.clear()
    refuse.set()
    talk.link.submit([request(1)])
    await eventually(lambda: 1 in actor.taken, "what is new is sent")
    assert actor.taken == [1]
    await within(talk.link.close())


async def test_f8_runs_that_are_taken_up_at_once_share_a_link_to_another_nodes_dispatcher() -> None:
    """Of two links one would take what the other waits for, and neither could be left."""
    own, other = Played("own"), Played("other")
    own.answers.set()
    other.answers.set()
    executor = DispatcherExecutor(Client("agent", 2, {"tools": b""}), lambda: own, lambda _: other)
    for slot in (0, 1):  # two runs of one actor, each for itself
        executor.adopt([request(slot)], "other@dispatcher")
    await eventually(lambda: sorted(other.taken) == [0, 1], "both are asked for")
    assert other.greeted == 1
    executor.release([request(0).key])
    assert other.left == 0, "one of its calls is open"
    executor.release([request(1).key])
    await eventually(lambda: other.left == 1, "it is left with its last call")
    await within(executor.close())
