"""Which types a tool may take, which defaults, and what is mended in what models send."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from tulip_actors import ConfigError, Tool, ToolArgumentsInvalid, ToolContext


class Colour(enum.Enum):
    """An enum of text."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """An enum of numbers."""

    LOW = 1
    HIGH = 2


class Address(BaseModel):
    """A model in a model."""

    street: str
    number: int = 1
    colour: Colour = Colour.RED


class Person(BaseModel):
    """A model."""

    name: str
    homes: list[Address] = []


@dataclasses.dataclass
class Size:
    """A dataclass."""

    width: int
    colour: Colour = Colour.BLUE


class Options(TypedDict, total=False):
    """A typed dict."""

    verbose: bool
    size: Size


class Pair(NamedTuple):
    """A named tuple."""

    left: str
    right: int = 0


class Custom:
    """A class that JSON knows nothing of."""


def taking(hint: Any, default: Any = ...) -> Tool:
    """A tool with one parameter `x` of a type."""

    def fn(x: Any) -> None:
        """Take x."""

    if default is not ...:
        fn.__defaults__ = (default,)
    fn.__annotations__ = {"x": hint}
    return Tool(fn)


def bound(one: Tool, **arguments: Any) -> Any:
    """What the body gets as `x`, by way of JSON."""
    return one.signature.bind(one.name, one.validate(arguments))["x"]


@pytest.mark.parametrize(
    ("hint", "sent", "got"),
    [
        (str | None, None, None),
        (Optional[int], "3", 3),  # noqa: UP045  # as it is written in older code
        (Union[int, str], "3", "3"),  # noqa: UP007
        (Literal["fast", 1], 1, 1),
        (Colour, "blue", Colour.BLUE),
        (Colour | None, "red", Colour.RED),
        (list[Colour], ["red", "blue"], [Colour.RED, Colour.BLUE]),
        (dict[Colour, int], {"red": 1}, {Colour.RED: 1}),
        (Level, 2, Level.HIGH),
        (
            Person,
            {"name": "a", "homes": [{"street": "s", "colour": "blue"}]},
            Person(name="a", homes=[Address(street="s", colour=Colour.BLUE)]),
        ),
        (Size, {"width": "1"}, Size(1)),
        (Size | Address, {"street": "s"}, Address(street="s")),
        (Options, {"size": {"width": 1}}, {"size": Size(1)}),
        (Pair, ["a"], Pair("a", 0)),
        (tuple[int, ...], [1, 2], (1, 2)),
        (set[int], [1, 1], {1}),
        (Sequence[Size], [{"width": 1}], [Size(1)]),
        (Mapping[str, list[int]], {"a": ["1"]}, {"a": [1]}),
        (Annotated[int, Field(ge=1)], 1, 1),
        (datetime.datetime, "2026-02-01T00:00:00", datetime.datetime(2026, 2, 1)),  # noqa: DTZ001
        (datetime.timedelta, "PT3S", datetime.timedelta(seconds=3)),
        (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
        (
            uuid.UUID,
            "12345678-1234-5678-1234-567812345678",
            uuid.UUID(int=0x12345678123456781234567812345678),
        ),
        (pathlib.Path, "/a", pathlib.Path("/a")),
        (bytes, "ab", b"ab"),
        (dict[str, Any], {"a": [None]}, {"a": [None]}),
        (Any, {"a": 1.5}, {"a": 1.5}),
    ],
    ids=str,
)
def test_c17_f28_the_body_gets_what_the_signature_names(hint: Any, sent: Any, got: Any) -> None:
    value = bound(taking(hint), x=sent)
    assert value == got
    assert isinstance(value, type(got))


def test_an_iterable_is_checked_before_the_body_runs() -> None:
    one = taking(Iterable[int])
    assert list(bound(one, x=["1", 2])) == [1, 2]
    with pytest.raises(ToolArgumentsInvalid):
        one.validate({"x": ["many"]})


def test_f28_what_is_optional_is_not_required_and_may_be_null() -> None:
    def fn(a: int, b: int | None, c: int = 1, d: int | None = None) -> None:
        """Take a, b, c, d."""

    parameters: Any = Tool(fn).parameters
    assert parameters["required"] == ["a", "b"]
    null = [{"type": "null"} in one.get("anyOf", []) for one in parameters["properties"].values()]
    assert null == [False, True, False, True]


@pytest.mark.parametrize("hint", [ToolContext | None, Annotated[ToolContext, "filled in"]])
def test_the_context_is_known_in_every_way_to_write_it(hint: Any) -> None:
    one = taking(hint, None)
    assert (one.signature.context_parameter, one.signature.names) == ("x", ())


@pytest.mark.parametrize(
    ("hint", "named"),
    [
        (Custom, "the parameter x is a Custom, which JSON cannot express"),
        (list[Custom], r"the parameter x is a list\[.*Custom\], which"),
        (Callable[[int], int], "the parameter x is a collections.abc.Callable"),
        (collections.abc.Iterator[int], "the parameter x is a collections.abc.Iterator"),
        (type[int], r"the parameter x is a type\[int\]"),
        (slice, "the parameter x is a slice"),
    ],
)
def test_c17_f30_a_type_that_json_cannot_express_is_refused_by_parameter_and_type(
    hint: Any, named: str
) -> None:
    with pytest.raises(ConfigError, match=f"tool fn: {named}.*Take text, numbers"):
        taking(hint)


@pytest.mark.parametrize(
    ("hint", "default"),
    [(Any, object()), (int, "many"), (float, float("nan")), (Colour, "green"), (str, 2**70)],
)
def test_c17_a_default_that_no_call_could_carry_is_refused_by_parameter(
    hint: Any, default: Any
) -> None:
    with pytest.raises(ConfigError, match=r"tool fn: the default of x, .* is not what its type"):
        taking(hint, default)


@pytest.mark.parametrize(
    ("hint", "default"),
    [
        (Colour, Colour.BLUE),
        (Address, Address(street="s")),
        (Size | None, Size(1)),
        (datetime.date, datetime.date(2026, 2, 1)),
        (set[int], {1}),
        (float, 1),
        (dict[str, Any], {"title": 1}),
    ],
)
def test_c17_a_default_reaches_the_body_as_what_it_is(hint: Any, default: Any) -> None:
    assert bound(taking(hint, default)) == default


# what is mended


@pytest.mark.parametrize(
    ("hint", "default"), [(int, 3), (str, "a"), (Colour, Colour.RED), (list[int], [1])]
)
def test_f29_null_stands_for_the_default_where_nothing_else_is_meant(
    hint: Any, default: Any
) -> None:
    assert bound(taking(hint, default), x=None) == default


def test_f29_null_is_null_where_the_signature_says_so() -> None:
    assert bound(taking(str | None, "a"), x=None) is None


def test_f29_null_stands_for_the_default_inside_models_too() -> None:
    sent = {"name": "a", "homes": [{"street": "s", "number": None, "colour": None}]}
    assert bound(taking(Person), x=sent) == Person(name="a", homes=[Address(street="s")])
    assert bound(taking(Options), x={"verbose": None}) == {}
    assert bound(taking(Size | str), x={"width": 1, "colour": None}) == Size(1)


def test_f29_null_for_what_is_required_is_told_as_what_it_is() -> None:
    def fn(a: int, b: int = 1) -> None:
        """Take a and b."""

    with pytest.raises(ToolArgumentsInvalid) as refused:
        Tool(fn).validate({"a": None, "b": None})
    assert "a: Input should be a valid integer" in refused.value.message
    assert "b:" not in refused.value.message


@pytest.mark.parametrize(
    ("hint", "sent", "got"),
    [
        (list[int], "[1, 2]", [1, 2]),
        (Size, '{"width": 1}', Size(1)),
        (Options, '{"verbose": true}', {"verbose": True}),
        (list[Size], ['{"width": 1}'], [Size(1)]),
        (dict[str, int], ' {"a": 1}', {"a": 1}),
        (Address, '{"street": "[1]"}', Address(street="[1]")),
        (str, "[1, 2]", "[1, 2]"),
        (list[int] | str, "[1]", "[1]"),
    ],
    ids=str,
)
def test_f32_a_list_or_an_object_that_was_written_as_text_is_opened_where_text_does_not_fit(
    hint: Any, sent: Any, got: Any
) -> None:
    assert bound(taking(hint), x=sent) == got


@pytest.mark.parametrize("sent", ["[1", "[" * 100_000, "{1}", "7", "null", ""])
def test_f32_text_that_holds_no_list_is_told_as_what_it_is(sent: str) -> None:
    with pytest.raises(ToolArgumentsInvalid, match="x: Input should be a valid list"):
        taking(list[int]).validate({"x": sent})


def test_a_thousand_problems_are_told_in_a_few_words() -> None:
    with pytest.raises(ToolArgumentsInvalid) as refused:
        taking(list[int]).validate({"x": ["no"] * 1000})
    assert "; and 992 more problems. Send a JSON object with: x" in refused.value.message
    assert len(refused.value.message) < 2000


def test_an_argument_with_a_name_of_any_length_is_told_in_a_few_words() -> None:
    with pytest.raises(ToolArgumentsInvalid) as refused:
        taking(int).validate({"x": 1, "y" * 10_000: 2})
    assert len(refused.value.message) < 1000


def test_f31_a_number_that_nothing_can_hold_is_answered_with_what_to_send() -> None:
    with pytest.raises(ToolArgumentsInvalid, match=r"64 bits.*Send a JSON object with: x"):
        taking(Any).validate({"x": [2**70]})
