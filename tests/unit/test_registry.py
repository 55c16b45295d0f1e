"""The tools of one agent, by name; and what a body knows of its call."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tulip_actors import (
    CausalNodeEvent,
    ConfigError,
    NotSerialisable,
    Tool,
    ToolContext,
    ToolError,
    ToolNotFound,
    ToolProgressEvent,
    TulipEvent,
    tool,
)
from tulip_actors.core.calls import (
    CallEmitted,
    CallKey,
    CallReport,
    CallScope,
    CallSetMetadata,
    Child,
    ToolOutcome,
)
from tulip_actors.core.codec import unpack_event
from tulip_actors.tools import ToolRegistry
from tulip_actors.tools.children import ChildCall


@tool
def double(x: int) -> int:
    """Twice."""
    return 2 * x


def plain(x: int) -> int:
    """A function that nobody decorated."""
    return x


def test_a_registry_is_a_mapping_from_names_to_tools() -> None:
    registry = ToolRegistry([double, plain])
    assert list(registry) == ["double", "plain"]
    assert registry["double"] is double
    assert "plain" in registry
    assert "other" not in registry
    assert len(registry) == 2


def test_plain_functions_are_wrapped() -> None:
    wrapped = ToolRegistry([plain])["plain"]
    assert isinstance(wrapped, Tool)
    assert wrapped.fn is plain


def test_the_specs_are_in_the_order_given() -> None:
    assert [spec.name for spec in ToolRegistry([plain, double]).specs] == ["plain", "double"]


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two tools are named 'double'"):
        ToolRegistry([double, tool(name="double")(plain)])


@pytest.mark.parametrize("item", [3, "double", None])
def test_what_is_no_tool_is_refused(item: Any) -> None:
    with pytest.raises(ConfigError, match="neither a @tool nor a function"):
        ToolRegistry([item])


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ToolNotFound, match="no tool 'x'; the tools are: double, plain"):
        ToolRegistry([double, plain])["x"]


def test_an_unknown_name_in_an_empty_registry_says_that_there_is_none() -> None:
    with pytest.raises(ToolNotFound, match="none at all"):
        ToolRegistry()["x"]


# the context


class Children:
    """A ChildCaller that runs bodies here and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[dict[str, Any]]]] = []
        self.told: list[CallReport] = []
        self.abandoned = 0
        self._open: list[Child] = []
        self._made = 0

    def next_position(self) -> int:
        self._made += 1
        return self._made - 1

    async def exchange(
        self, ticket: str, tool: Tool, calls: Sequence[ChildCall]
    ) -> Sequence[Child]:
        return self.exchange_blocking(ticket, tool, calls)

    def exchange_blocking(
        self, ticket: str, tool: Tool, calls: Sequence[ChildCall]
    ) -> Sequence[Child]:
        """All that is open ends, the last one first."""
        self.asked.append((tool.name, [dict(call.arguments) for call in calls]))
        ended = [
            Child(
                call.position,
                ToolOutcome(error="ValueError: 13")
                if call.arguments["x"] == 13
                else ToolOutcome(result="", value=tool(**call.arguments)),
            )
            for call in calls
        ]
        return ended[::-1]

    def abandon(self, ticket: str) -> None:
        self.abandoned += 1

    def is_cancelled(self) -> bool:
        return False

    def tell(self, report: CallReport) -> None:
        self.told.append(report)


KEY = CallKey("run_1", 2, 1)


def a_context(children: Children) -> ToolContext:
    scope = CallScope("run_1", "thread", "bob", "agent_1", 2, {"user": 7})
    return ToolContext(KEY, "call_1", scope, children, "pay")


def test_a_context_tells_whose_call_it_is() -> None:
    ctx = a_context(Children())
    assert (ctx.run_id, ctx.thread_id, ctx.agent, ctx.iteration) == ("run_1", "thread", "bob", 2)
    assert (ctx.metadata, ctx.tool_call_id, ctx.attempt) == ({"user": 7}, "call_1", 1)


def test_c27_what_a_context_tells_of_its_run_is_told_under_the_key_of_its_call() -> None:
    children = Children()
    ctx = a_context(children)
    event = CausalNodeEvent(node_id="a", label="A")
    ctx.emit(event)
    ctx.set_metadata("seen", [1])
    emitted, entry = children.told
    assert isinstance(emitted, CallEmitted)
    assert (emitted.key, unpack_event(emitted.packed)) == (KEY, event)
    assert entry == CallSetMetadata(KEY, "seen", [1])


def test_c27_an_event_that_cannot_be_read_elsewhere_is_refused_where_it_is_emitted() -> None:
    class Own(TulipEvent):
        event_type: str = "own"

    children = Children()
    with pytest.raises(NotSerialisable, match="not an event of this release"):
        a_context(children).emit(Own())
    assert children.told == []


def test_the_idempotency_key_names_the_call_and_nothing_else() -> None:
    assert a_context(Children()).idempotency_key == "run_1:2.1"
    assert str(KEY.child(3).child(0)) == "run_1:2.1.3.0"


def test_a_context_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        a_context(Children()).attempt = 2  # type: ignore[misc]


def test_map_asks_for_one_call_per_item_and_keeps_their_order() -> None:
    children = Children()
    values = asyncio.run(a_context(children).map(double, [3, {"x": 1}, 2]))
    assert values == [6, 2, 4]
    assert children.asked == [("double", [{"x": 3}, {"x": 1}, {"x": 2}])]


def test_map_over_nothing_asks_for_nothing() -> None:
    children = Children()
    assert asyncio.run(a_context(children).map(double, [])) == []
    assert children.asked == []


def test_map_takes_any_iterable_once() -> None:
    assert a_context(Children()).map_sync(double, (n for n in range(3))) == [0, 2, 4]


def test_map_raises_the_first_failure_after_all_have_ended() -> None:
    children = Children()
    with pytest.raises(ToolError, match="double: ValueError: 13"):
        a_context(children).map_sync(double, [1, 13, 2])
    assert len(children.asked[0][1]) == 3


def test_c22_a_map_takes_items_as_calls_end_and_never_more_at_a_time_than_asked() -> None:
    children = Children()
    taken: list[int] = []

    def items() -> Iterator[int]:
        for n in range(7):
            taken.append(n)
            yield n

    entries = a_context(children).map_as_completed_sync(double, items(), max_in_flight=3)
    assert next(entries) == (2, 4)
    assert taken == [0, 1, 2]
    assert sorted(entries) == [(0, 0), (1, 2), (3, 6), (4, 8), (5, 10), (6, 12)]
    assert [len(calls) for _, calls in children.asked] == [3, 3, 1]


async def test_c22_a_map_that_is_left_early_stops_what_is_under_way() -> None:
    children = Children()
    entries = a_context(children).map_as_completed(double, itertools.count(), max_in_flight=2)
    assert await anext(entries) == (1, 2)
    await entries.aclose()  # type: ignore[attr-defined]  # it is an async generator
    assert children.abandoned == 1


def test_c22_an_item_that_does_not_fit_keeps_none_of_the_others_waiting() -> None:
    entries = a_context(Children()).map_as_completed_sync(double, ["a", 1, "b", 2], max_in_flight=1)
    values = dict(entries)
    assert (values[1], values[3]) == (2, 4)
    assert isinstance(values[0], ToolError)
    assert isinstance(values[2], ToolError)


@pytest.mark.parametrize("max_in_flight", [0, -1, 1.5, None])
def test_a_map_of_no_width_is_refused(max_in_flight: Any) -> None:
    with pytest.raises(ConfigError, match="max_in_flight is a whole number of at least 1"):
        a_context(Children()).map_sync(double, [1], max_in_flight=max_in_flight)


def test_a_tool_tells_how_far_it_is() -> None:
    children = Children()
    a_context(children).progress(1.5, "all of it")
    (told,) = children.told
    assert isinstance(told, CallEmitted)
    event = unpack_event(told.packed)
    assert isinstance(event, ToolProgressEvent)
    assert (event.tool_name, event.tool_call_id) == ("pay", "call_1")
    assert (event.fraction, event.message) == (1.0, "all of it")


def test_map_leaves_failures_in_place_when_asked_for() -> None:
    values = a_context(Children()).map_sync(double, [1, 13, 2], return_exceptions=True)
    assert (values[0], values[2]) == (2, 4)
    assert isinstance(values[1], ToolError)


def test_call_gives_one_value_and_takes_falsy_items_as_they_are() -> None:
    ctx = a_context(Children())
    assert ctx.call_sync(double, 0) == 0
    assert asyncio.run(ctx.call(double, {"x": 2})) == 4


def test_a_call_key_leads_to_its_parent() -> None:
    assert KEY.parent is None
    assert KEY.child(3).parent == KEY
    assert KEY.child(3).child(1).parent == KEY.child(3)
    assert sorted([KEY.child(1), KEY, KEY.child(0)]) == [KEY, KEY.child(0), KEY.child(1)]
