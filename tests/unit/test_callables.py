"""What may be a tool (functions, methods, partials, callable objects), and what describes it."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import Field

from tulip_actors import Agent, ConfigError, Tool, ToolContext, tool
from tulip_actors.testing import ScriptedModel, tool_call
from tulip_actors.tools import MissingDescription, ToolRegistry

if TYPE_CHECKING:
    from decimal import Decimal


class Shop:
    """A shop."""

    def __init__(self, factor: int = 1) -> None:
        self.factor = factor

    def price(self, item: str) -> int:
        """Ask for the price of an item."""
        return len(item) * self.factor

    @tool(idempotent=True, strict=True)
    async def sell(self, item: str, ctx: ToolContext) -> str:
        """Sell an item."""
        return f"{item} for {self.factor}"

    @classmethod
    def opens(cls, day: str) -> str:
        """When the shop opens on a day."""
        return f"{cls.__name__} {day}"

    def __call__(self, count: int, of: str = "tea") -> str:
        """Order.

        Args:
            count: How many.
            of: Of what.
        """
        return f"{count} x {of}"


def greet(name: str, *, greeting: str = "Hello") -> str:
    """Greet somebody.

    Args:
        name: Whom.
        greeting: With what.
    """
    return f"{greeting} {name}"


def properties_of(one: Tool) -> Any:
    return one.parameters["properties"]


async def outcome_of(one: Any, /, **arguments: Any) -> str | None:
    """What the model is told when it calls a tool by its name."""
    name = ToolRegistry([one]).specs[0].name
    model = ScriptedModel([tool_call(name, arguments), "done"])
    result = await Agent(model, [one], runtime="inline").arun("go")
    return result.tool_executions[0].result


@pytest.mark.parametrize(
    ("one", "name", "arguments", "result"),
    [
        (greet, "greet", {"name": "Ada"}, "Hello Ada"),
        (Shop(2).price, "price", {"item": "tea"}, "6"),
        (Shop.opens, "opens", {"day": "Monday"}, "Shop Monday"),
        (Shop(), "Shop", {"count": "2"}, "2 x tea"),
        (functools.partial(greet, greeting="Hi"), "greet", {"name": "Ada"}, "Hi Ada"),
        (functools.partial(Shop(), of="ale"), "Shop", {"count": 3}, "3 x ale"),
        (functools.partial(Shop(3).price), "price", {"item": "tea"}, "9"),
        (lambda: "nothing asked", "tool", {}, "nothing asked"),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
async def test_c17_whatever_can_be_called_is_a_tool_when_it_stands_in_the_list(
    one: Any, name: str, arguments: Any, result: str
) -> None:
    assert [spec.name for spec in ToolRegistry([one]).specs] == [name]
    assert await outcome_of(one, **arguments) == result


async def test_c17_a_method_that_is_a_tool_is_bound_to_its_object() -> None:
    one, two = Shop(1).sell, Shop(2).sell
    assert (one.signature.names, one.idempotent, one.strict) == (("item",), True, True)
    assert list(properties_of(one)) == ["item"]
    assert await outcome_of(one, item="tea") == "tea for 1"
    assert await outcome_of(two, item="tea") == "tea for 2"
    assert await Shop(3).sell("tea", None) == "tea for 3"


@pytest.mark.parametrize("one", [Shop.sell, Shop.price])
def test_c17_a_method_without_its_object_is_refused_by_name(one: Any) -> None:
    with pytest.raises(ConfigError, match=f"{one.__name__} is a method without its object"):
        ToolRegistry([one])


def test_a_tool_that_stands_in_a_class_by_chance_stays_as_it_is() -> None:
    greets = tool(greet)

    class Holder:
        greets_somebody = greets

    assert Holder().greets_somebody is greets


def test_an_agent_in_the_list_of_tools_is_told_how_it_becomes_one() -> None:
    agent = Agent(ScriptedModel(["x"]), runtime="inline")
    with pytest.raises(ConfigError, match=r"neither a @tool nor a function; pass its as_tool\(\)"):
        ToolRegistry([agent])  # type: ignore[list-item]


def test_f27_a_return_type_for_the_type_checker_alone_is_no_matter() -> None:
    def counts(n: int) -> Decimal:
        """Count n."""
        raise NotImplementedError

    assert Tool(counts).validate({"n": "1"}) == {"n": 1}


def test_f27_the_hints_of_a_decorated_function_are_those_of_its_own_module() -> None:
    @functools.wraps(greet)
    def wrapped(*args: Any, **kwargs: Any) -> str:
        return greet(*args, **kwargs)

    assert Tool(wrapped).validate({"name": "Ada"}) == {"name": "Ada", "greeting": "Hello"}


# what is said of it


def test_a_partial_and_a_callable_object_have_the_docstring_of_what_they_call() -> None:
    one, two = Tool(functools.partial(greet, greeting="Hi")), Tool(Shop())
    assert (one.description, two.description) == ("Greet somebody.", "A shop.")
    assert properties_of(one)["name"]["description"] == "Whom."
    assert properties_of(two)["of"]["description"] == "Of what."


def test_an_annotation_may_describe_its_parameter() -> None:
    def fn(
        a: Annotated[int, "how many"],
        b: Annotated[int, Field(ge=1, description="how far")] = 2,
        c: int = Field(3, ge=1, description="how high"),
    ) -> None:
        """Do it.

        Args:
            a: what the docstring says
        """

    properties = properties_of(Tool(fn))
    assert [one["description"] for one in properties.values()] == [
        *("how many", "how far", "how high")
    ]
    assert properties["c"] == {
        "default": 3,
        "description": "how high",
        "minimum": 1,
        "type": "integer",
    }
    assert Tool(fn).validate({"a": 1}) == {"a": 1, "b": 2, "c": 3}


def test_c17_a_missing_description_is_a_warning_that_names_tool_and_parameter() -> None:
    def mixes(a: int, b: Annotated[int, "said"], c: int) -> None:
        """Mix what c says."""

    with pytest.warns(MissingDescription, match="tool mixes: no description of its parameters a;"):
        ToolRegistry([mixes])


def test_c17_a_tool_that_nothing_is_said_of_is_named_in_a_warning() -> None:
    with pytest.warns(MissingDescription, match="tool tool: no description;"):
        ToolRegistry([lambda: None])


def test_what_is_described_in_any_way_is_no_warning() -> None:
    agent = Agent(ScriptedModel(["x"]), runtime="inline", name="helper")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ToolRegistry([greet, Shop().sell, agent.as_tool(description="Ask for help.")])
        Agent(ScriptedModel(["x"]), runtime="inline", completion_mode="explicit")
