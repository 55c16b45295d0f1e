"""`@tool`: schema, validation, descriptions, and what is refused when the tool is made."""

from __future__ import annotations

import array
import dataclasses
import datetime
import enum
import functools
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from tulip_actors import ConfigError, Tool, ToolArgumentsInvalid, ToolContext, tool
from tulip_actors.tools.invoke import error_text, result_text, shortened


class Colour(enum.Enum):
    """An enum of text."""

    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    """A nested model."""

    street: str
    number: int = 1


@dataclasses.dataclass
class Size:
    """A nested dataclass."""

    width: int
    height: int = 2


class Options(TypedDict, total=False):
    """A typed dict."""

    verbose: bool


@tool
def book(
    guest: str,
    nights: int,
    colour: Colour = Colour.RED,
    mode: Literal["fast", "slow"] = "slow",
    address: Address | None = None,
    size: Size | None = None,
    tags: list[str] | None = None,
    options: Options | None = None,
    rating: Annotated[float, Field(ge=0, le=5)] = 3.0,
    *,
    note: str = "",
) -> str:
    """Book a room.

    Args:
        guest: Who comes.
        nights: How long, in nights.
        note: What else there is to say.
    """
    return f"{guest}/{nights}/{colour}/{mode}/{address}/{size}/{note}"


def schema(fn: Callable[..., object]) -> Any:
    """The properties of a function's schema."""
    parameters: Any = Tool(fn).parameters
    return parameters["properties"]


def bound(one: Tool, **arguments: Any) -> dict[str, object]:
    """The values a body would get for a model's arguments."""
    return one.signature.bind(one.name, one.validate(arguments))


# the schema


def test_a_tool_takes_name_and_description_from_its_function() -> None:
    assert (book.name, book.description) == ("book", "Book a room.")
    assert book.spec.name == "book"
    assert book.spec.parameters is book.parameters


def test_name_and_description_may_be_given() -> None:
    one = tool(name="other", description="Else.")(lambda: None)
    assert (one.name, one.description) == ("other", "Else.")


def test_the_schema_is_an_object_without_further_properties() -> None:
    parameters: Any = book.parameters
    assert parameters["type"] == "object"
    assert parameters["additionalProperties"] is False


def test_only_what_has_no_default_is_required() -> None:
    assert book.parameters["required"] == ["guest", "nights"]


def test_f28_types_are_told_as_what_they_are() -> None:
    properties: Any = book.parameters["properties"]
    assert properties["guest"]["type"] == "string"
    assert properties["nights"]["type"] == "integer"
    assert properties["mode"]["enum"] == ["fast", "slow"]
    assert properties["rating"] == {"default": 3.0, "maximum": 5, "minimum": 0, "type": "number"}
    assert {"type": "null"} in properties["address"]["anyOf"]


def test_f28_an_enum_is_a_list_of_its_values() -> None:
    parameters: Any = book.parameters
    assert parameters["$defs"]["Colour"]["enum"] == ["red", "blue"]


def test_docstring_descriptions_reach_the_schema() -> None:
    properties: Any = book.parameters["properties"]
    assert properties["guest"]["description"] == "Who comes."
    assert properties["note"]["description"] == "What else there is to say."
    assert "description" not in properties["tags"]


def google(city: str, days: int) -> None:
    """Look ahead.

    Args:
        city: Where.
        days: How far, at most 7:
            more is refused.

    Returns:
        Nothing.
    """


def numpy(city: str, days: int) -> None:
    """Look ahead.

    Parameters
    ----------
    city : str
        Where.
    days : int
        How far.
    """


def sphinx(city: str, days: int) -> None:
    """Look ahead.

    :param city: Where.
    :param days: How far.
    """


@pytest.mark.parametrize("fn", [google, numpy, sphinx])
def test_docstrings_of_each_style_are_read(fn: Callable[..., object]) -> None:
    one = Tool(fn)
    assert one.description == "Look ahead."
    assert schema(fn)["city"]["description"] == "Where."
    assert schema(fn)["days"]["description"].startswith("How far")


def test_prose_with_a_colon_stays_whole() -> None:
    def fn() -> None:
        """Find: the thing. Mind: the gap."""

    assert Tool(fn).description == "Find: the thing. Mind: the gap."


def test_a_note_in_the_docstring_stays_in_the_description() -> None:
    def fn(x: int) -> None:
        """Search.

        Note:
            Use it sparingly.

        Args:
            x: How much.
        """

    assert "Use it sparingly." in Tool(fn).description


def test_a_function_without_docstring_has_an_empty_description() -> None:
    assert Tool(lambda: None).description == ""


def test_titles_of_pydantics_making_are_left_out() -> None:
    assert "title" not in repr(book.parameters)


def test_a_parameter_that_is_called_title_stays() -> None:
    def fn(title: str, properties: str) -> None: ...

    assert set(schema(fn)) == {"title", "properties"}


def test_a_default_that_holds_a_title_stays_whole() -> None:
    default = {"title": "Dr", "a": 1}

    def fn(person: dict[str, Any] = default) -> None: ...

    assert schema(fn)["person"]["default"] == default


@pytest.mark.parametrize(
    "name", ["model", "json", "copy", "validate", "schema", "arg_x", "model_config", "x" * 40]
)
def test_no_parameters_name_collides_with_pydantics_own(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def fn({name}: int) -> None: ...", scope)
    one = Tool(scope["fn"])
    assert bound(one, **{name: "1"}) == {name: 1}


def test_a_tool_without_parameters_has_an_empty_schema() -> None:
    parameters: Any = Tool(lambda: None).parameters
    assert (parameters["type"], parameters["properties"]) == ("object", {})


def test_f27_annotations_from_the_future_are_resolved() -> None:
    assert book.validate({"guest": "a", "nights": "2"})["nights"] == 2


def test_f27_annotations_that_only_the_checker_knows_are_refused_by_name() -> None:
    def fn(x: OnlyForTheChecker) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigError, match=r"tool fn.*'OnlyForTheChecker'.*TYPE_CHECKING"):
        Tool(fn)


def test_the_context_is_filled_in_and_hidden_from_the_model() -> None:
    def fn(x: int, ctx: ToolContext) -> None: ...

    one = Tool(fn)
    assert set(schema(fn)) == {"x"}
    assert one.signature.context_parameter == "ctx"


def test_an_unannotated_parameter_takes_anything() -> None:
    def fn(x) -> None: ...

    assert bound(Tool(fn), x={"a": [1]}) == {"x": {"a": [1]}}


# validation


def test_arguments_are_coerced_and_completed() -> None:
    assert book.validate({"guest": "a", "nights": "2"}) == {
        "guest": "a",
        "nights": 2,
        "colour": "red",
        "mode": "slow",
        "address": None,
        "size": None,
        "tags": None,
        "options": None,
        "rating": 3.0,
        "note": "",
    }


def test_f28_the_body_gets_the_types_its_signature_names() -> None:
    values = bound(
        book,
        guest="a",
        nights=1,
        colour="blue",
        address={"street": "s"},
        size={"width": 1},
        options={"verbose": True},
    )
    assert values["colour"] is Colour.BLUE
    assert values["address"] == Address(street="s")
    assert values["size"] == Size(1)
    assert values["options"] == {"verbose": True}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "guest: Field required; nights: Field required"),
        ({"guest": 1, "nights": 1}, "guest: Input should be a valid string"),
        ({"guest": "a", "nights": 1, "mode": "x"}, "mode: Input should be 'fast' or 'slow'"),
        ({"guest": "a", "nights": 1, "rating": 9}, "rating: Input should be less than or equal"),
        ({"guest": "a", "nights": 1, "rating": "nan"}, "rating"),
        ({"guest": "a", "nights": 1, "address": {"number": 2}}, "address.street: Field required"),
        ({"guest": "a", "nights": 1, "zzz": 2}, "zzz: Extra inputs are not permitted"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolArgumentsInvalid) as refused:
        book.validate(arguments)
    assert problem in refused.value.message
    assert "Send a JSON object with: guest, nights" in refused.value.message


@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity"])
def test_a_number_that_json_cannot_hold_is_refused_as_an_argument(value: str) -> None:
    def fn(x: float) -> None: ...

    with pytest.raises(ToolArgumentsInvalid, match="x"):
        Tool(fn).validate({"x": value})


def test_a_validator_of_the_users_that_fails_is_an_argument_error() -> None:
    class Even(BaseModel):
        n: int

        def model_post_init(self, context: object) -> None:
            {0: None}[self.n % 2]

    def fn(x: Even) -> None: ...

    fn.__annotations__ = {"x": Even, "return": None}
    with pytest.raises(ToolArgumentsInvalid):
        Tool(fn).validate({"x": {"n": 1}})


def test_a_default_of_none_may_be_left_out_whatever_the_hint_says() -> None:
    def fn(q: str, lang: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert bound(Tool(fn), q="a") == {"q": "a", "lang": None}


def test_defaults_reach_the_body_as_they_are() -> None:
    values = bound(book, guest="a", nights=1)
    assert values["colour"] is Colour.RED
    assert values["address"] is None


def test_validated_arguments_are_read_only() -> None:
    validated: Any = book.validate({"guest": "a", "nights": 1, "tags": ["x"]})
    with pytest.raises(TypeError, match="read-only"):
        validated["tags"].append("y")


def test_huge_and_foreign_text_passes_unchanged() -> None:
    def fn(text: str) -> None: ...

    for text in ("日本 🌷 \u0000", "ä" * 2_000_000):
        assert bound(Tool(fn), text=text) == {"text": text}


def test_validating_twice_changes_nothing() -> None:
    once = book.validate({"guest": "a", "nights": "1", "address": {"street": "s"}})
    assert book.validate(once) == once


# items of a map


def test_an_item_is_a_mapping_of_arguments_or_the_one_argument() -> None:
    def fn(x: int) -> None: ...

    one = Tool(fn)
    assert one.arguments_from({"x": 1}) == one.arguments_from(1) == {"x": 1}


def test_an_item_that_is_neither_is_named() -> None:
    with pytest.raises((ConfigError, ToolArgumentsInvalid), match="book"):
        book.arguments_from(3)


# what is refused when the tool is made


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def fn(*args): ...", r"tool fn: .*\*args"),
        ("def fn(**kwargs): ...", r"tool fn: .*kwargs"),
        ("def fn(x, /): ...", "tool fn: x is positional only"),
        ("def fn(x: object()): ...", "tool fn"),
        (
            "import threading\ndef fn(x: threading.Thread): ...",
            "the parameter x is a Thread, which",
        ),
        ("def größe(): ...", "'größe' cannot name a tool"),
    ],
)
def test_f30_a_signature_that_json_cannot_express_is_refused_by_name(
    source: str, problem: str
) -> None:
    scope: dict[str, Any] = {}
    exec(source, scope)
    fn = next(value for name, value in scope.items() if name in ("fn", "größe"))
    with pytest.raises(ConfigError, match=problem):
        Tool(fn)


@pytest.mark.parametrize("name", ["a b", "", "ä", "1x", "x" * 65, "a.b"])
def test_a_name_that_providers_refuse_is_refused_here(name: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot name a tool"):
        Tool(lambda: None, name=name or " ")


def test_a_partial_function_is_a_tool_of_what_is_left() -> None:
    def fn(a: int, b: int) -> int:
        return a + b

    one = Tool(functools.partial(fn, 1), name="part")
    assert bound(one, b="2") == {"b": 2}


def test_an_object_that_can_be_called_is_a_tool() -> None:
    class Adder:
        """Adds."""

        def __call__(self, a: int, b: int = 1) -> int:
            return a + b

    one = Tool(Adder(), name="adder")
    assert one.signature.names == ("a", "b")
    assert bound(one, a="2") == {"a": 2, "b": 1}


def test_a_bound_method_is_a_tool() -> None:
    class Shop:
        def price(self, item: str) -> int:
            """Ask."""
            return len(item)

    one = Tool(Shop().price)
    assert (one.name, one.signature.names) == ("price", ("item",))


# the function itself


def test_a_tool_can_be_called_like_its_function() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert add(1, b=2) == 3
    assert (add.__name__, add.__doc__) == ("add", "Add.")  # type: ignore[attr-defined]


def test_a_tool_knows_whether_its_function_is_a_coroutine() -> None:
    async def coroutine() -> None: ...

    def plain() -> None: ...

    assert Tool(coroutine).is_async
    assert not Tool(plain).is_async


def test_the_repr_shows_name_and_arguments() -> None:
    def fn(a: int, ctx: ToolContext) -> None: ...

    assert repr(Tool(fn)) == "Tool(fn(a))"


def test_demands_are_kept_in_rays_terms() -> None:
    one = tool(num_cpus=1, num_gpus=0.5, memory=1024, resources={"disk": 1})(lambda: None)
    demand = one.policy.demand
    assert (demand.num_cpus, demand.num_gpus, demand.memory_bytes) == (1, 0.5, 1024)
    assert demand.resources == {"disk": 1}


# results and errors as text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, "null"),
        (3, "3"),
        (True, "true"),
        ([1, "a"], '[1,"a"]'),
        ({"ü": 1.5}, '{"ü":1.5}'),
        (Address(street="s"), '{"street":"s","number":1}'),
        (Size(1), '{"width":1,"height":2}'),
        (Colour.RED, '"red"'),
        (float("nan"), "NaN"),
        (b"\xff\x00", '"_wA="'),
        (memoryview(b"ab"), '"YWI="'),
        ({1}, "[1]"),
        (datetime.date(2026, 2, 1), '"2026-02-01"'),
        (datetime.timedelta(seconds=3), '"PT3S"'),
        (array.array("d", [1, 2.5]), "[1.0,2.5]"),
        ({(1, 2): Size(1)}, '{"1,2":{"width":1,"height":2}}'),
        (1 + 2j, '"1+2j"'),
    ],
)
def test_a_result_is_written_down_as_text(value: object, text: str) -> None:
    assert result_text(value) == text


def test_an_array_of_any_library_is_written_as_a_list() -> None:
    class Tensor:
        def tolist(self) -> list[list[float]]:
            return [[1.0], [2.0]]

    assert result_text({"weights": Tensor()}) == '{"weights":[[1.0],[2.0]]}'


def test_a_result_that_contains_itself_has_a_text_all_the_same() -> None:
    endless: list[object] = [1]
    endless.append(endless)
    assert result_text(endless) == '[1,"..."]'


@pytest.mark.parametrize("limit", [100, 101, 999, 1000])
def test_a_shortened_text_fills_the_limit_and_says_what_is_missing(limit: int) -> None:
    text = "".join(chr(0x1F300 + position) for position in range(1001))
    head, mark, tail = shortened(text, limit).split("\n")
    assert limit - 3 <= len(head) + len(mark) + len(tail) + 2 <= limit
    assert text.startswith(head)
    assert text.endswith(tail)
    assert mark == f"[... {1001 - len(head) - len(tail)} characters left out ...]"


def test_a_text_within_the_limit_stays_as_it_is() -> None:
    assert shortened("x" * 100, 100) == "x" * 100
    assert shortened("x" * 1_000_000, None) == "x" * 1_000_000


@pytest.mark.parametrize("value", ["a\ud800b", ["\udcff"], {"\ud800": 1}])
def test_result_text_can_always_be_encoded_or_is_an_error(value: object) -> None:
    try:
        text = result_text(value)
    except Exception as error:
        text = error_text(error)
    text.encode()


def test_an_error_text_names_the_type_and_is_never_empty() -> None:
    assert error_text(ValueError("x")) == "ValueError: x"
    assert error_text(ValueError()) == "ValueError"
    assert error_text(ConfigError("do this")) == "do this"


def test_an_exception_that_cannot_be_written_down_is_named_by_its_type() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert "Mute" in error_text(Mute())


def test_an_error_text_can_always_be_encoded() -> None:
    error_text(ValueError("file \udcff")).encode()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"timeout_s": 0}, "timeout_s is a number above 0"),
        ({"timeout_s": float("nan")}, "timeout_s is a number above 0"),
        ({"timeout_s": "1"}, "timeout_s is a number above 0"),
        ({"cancel_grace_s": -1}, "cancel_grace_s is a number of at least 0"),
        ({"retries": -1}, "retries is a whole number of at least 0"),
        ({"retries": True}, "retries is a whole number of at least 0"),
        ({"max_concurrency": 0}, "max_concurrency is a whole number of at least 1"),
        ({"max_result_chars": 99}, "max_result_chars is a whole number of at least 100"),
        ({"memory": 0}, "memory is a whole number of at least 1"),
        ({"resources": {"disk": 0}}, "resources\\['disk'\\] is a number above 0"),
        ({"on_unknown": "panic"}, "on_unknown is one of retry, report, ask"),
        ({"kind": "gpu"}, 'kind is "cpu"'),
        ({"kind": "cpu", "inline": True}, "exclude each other"),
        ({"inline": True, "num_cpus": 1}, "can demand nothing"),
        ({"tries": 3}, "no option tries"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_its_name(
    options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        tool(**options)(lambda: None)


def test_a_lost_call_is_repeated_where_the_tool_says_so_or_the_key_can_be_passed_on() -> None:
    @tool(idempotent=True)
    def keyed(ctx: ToolContext) -> None:
        """Pay once."""

    @tool(idempotent=True)
    def unkeyed() -> None:
        """Pay once."""

    @tool(idempotent=True, on_unknown="ask")
    def careful(ctx: ToolContext) -> None:
        """Pay once."""

    @tool(retries=1)
    def again() -> None:
        """Look."""

    unknown = [one.policy.on_unknown for one in (keyed, unkeyed, careful, again)]
    assert unknown == ["retry", "report", "ask", "retry"]


def test_how_a_body_shares_processes_follows_from_its_signature_unless_declared() -> None:
    async def coroutine() -> None:
        """Wait."""

    def plain() -> None:
        """Work."""

    kinds = [
        tool(coroutine).policy.kind,
        tool(plain).policy.kind,
        tool(kind="cpu")(plain).policy.kind,
        tool(inline=True)(coroutine).policy.kind,
        tool(functools.partial(coroutine)).policy.kind,
    ]
    assert kinds == ["async", "plain", "cpu", "inline", "async"]
