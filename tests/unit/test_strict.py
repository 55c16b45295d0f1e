"""`@tool(strict=True)`: the schema for providers' strict modes (F29)."""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from tulip_actors import ConfigError, Tool


class Colour(enum.Enum):
    """An enum."""

    RED = "red"


class Node(BaseModel):
    """A model that holds itself."""

    name: Annotated[str, Field(min_length=1, description="what it is called")]
    colour: Colour = Colour.RED
    children: list[Node] = []


@dataclasses.dataclass
class Size:
    """A dataclass."""

    width: int = 1


class Options(TypedDict, total=False):
    """A typed dict."""

    verbose: bool


def everything(
    q: str,
    lang: str | None = None,
    mode: Literal["fast", "slow"] = "slow",
    colour: Annotated[Colour, "which"] = Colour.RED,
    count: Annotated[int, Field(ge=1)] = 3,
    node: Node | None = None,
    size: Size | Options | None = None,
    tags: frozenset[str] = frozenset(),
) -> None:
    """Take q, lang, mode, colour, count, node, size, tags."""


def strict(fn: Any) -> Any:
    return Tool(fn, strict=True).parameters


def nodes(schema: Any) -> Any:
    """Every schema in a schema."""
    yield schema
    for key in ("properties", "$defs"):
        for one in schema.get(key, {}).values():
            yield from nodes(one)
    for one in [*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]:
        yield from nodes(one)


def test_f29_a_strict_schema_has_no_defaults() -> None:
    assert not any("default" in node for node in nodes(strict(everything)))
    assert "'default'" not in repr(strict(everything))


def test_f29_every_object_of_a_strict_schema_requires_all_it_has_and_allows_no_more() -> None:
    objects = [node for node in nodes(strict(everything)) if node.get("type") == "object"]
    assert len(objects) == 4
    for node in objects:
        assert node["required"] == list(node["properties"])
        assert node["additionalProperties"] is False


def test_f29_what_is_optional_may_be_null() -> None:
    properties = strict(everything)["properties"]
    assert properties["q"] == {"type": "string"}
    assert properties["mode"]["anyOf"] == [
        {"enum": ["fast", "slow"], "type": "string"},
        {"type": "null"},
    ]
    assert properties["lang"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert properties["colour"] == {
        "description": "which",
        "anyOf": [{"$ref": "#/$defs/Colour"}, {"type": "null"}],
    }


def test_f29_what_strict_modes_do_not_know_is_left_to_our_own_check() -> None:
    schema = strict(everything)
    assert schema["$defs"]["Node"]["properties"]["name"] == {
        "type": "string",
        "description": "what it is called",
    }
    assert "uniqueItems" not in repr(schema)
    assert schema["properties"]["count"]["anyOf"][0] == {"minimum": 1, "type": "integer"}


def test_f29_a_call_by_a_strict_schema_gets_the_defaults_for_its_nulls() -> None:
    one = Tool(everything, strict=True)
    sent = dict.fromkeys(one.signature.names, None)
    node = {"name": "n", "colour": None, "children": None}
    given = one.validate({**sent, "q": "x", "node": node, "size": {"width": None}})
    assert given == one.validate({"q": "x", "node": {"name": "n"}, "size": {}})
    assert (given["mode"], given["count"], given["lang"]) == ("slow", 3, None)


def test_a_tool_that_is_not_strict_shows_its_defaults() -> None:
    properties: Any = Tool(everything).parameters["properties"]
    assert properties["count"]["default"] == 3
    assert not Tool(everything).spec.strict
    assert Tool(everything, strict=True).spec.strict


def takes_a_dict(x: dict[str, Any]) -> None: ...


def takes_a_dict_inside(x: list[dict[str, int]]) -> None: ...


def takes_anything(x: Any) -> None: ...


def takes_a_list_of_anything(x: list[Any]) -> None: ...


def takes_a_tuple(x: tuple[int, str]) -> None: ...


class Loose(BaseModel, extra="allow"):
    """A model that takes more."""


def takes_a_loose_model(x: Loose) -> None: ...


@pytest.mark.parametrize(
    ("fn", "named"),
    [
        (takes_a_dict, "x is a dict, which has no strict form; take a model"),
        (takes_a_dict_inside, r"x\[\] is a dict"),
        (takes_anything, "x takes anything, which has no strict form; say its type"),
        (takes_a_list_of_anything, r"x\[\] takes anything"),
        (takes_a_tuple, "x is a tuple, which has no strict form; take a list"),
        (takes_a_loose_model, "Loose is a dict"),
    ],
)
def test_f30_what_has_no_strict_form_is_refused_by_its_parameter(fn: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=f"tool {fn.__name__}: strict=True: {named}"):
        Tool(fn, strict=True)
    Tool(fn)
