"""A tool's schema in the form that providers' strict modes take.

There a model is held to the schema letter by letter. In return every object must name all of its
properties, require them all and allow no others, and there are no defaults. What is optional here
may be `null` there, which `mend` takes for "left out".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tulip_actors.core.frozen import Json, JsonObject, freeze_object
from tulip_actors.errors import ConfigError

_KEPT = frozenset(
    {
        *("type", "description", "enum", "const", "pattern", "multipleOf", "$ref"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
    }
)
"""What strict modes know beside structure. What else a signature asks is checked here alone."""
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
)


def strict_schema(parameters: Mapping[str, Json], name: str) -> JsonObject:
    """The strict form of a tool's parameters.

    Raises `ConfigError`, naming the parameter, for what strict modes cannot express.
    """
    definitions = parameters.get("$defs")
    strict = _object(parameters, f"tool {name}: strict=True:")
    if isinstance(definitions, Mapping):
        strict["$defs"] = {
            one: _node(schema, f"tool {name}: strict=True: {one}")
            for one, schema in definitions.items()
        }
    return freeze_object(strict, f"strict schema of {name}")


def _node(schema: Any, at: str) -> dict[str, Any]:
    if schema.get("type") == "object":
        return _object(schema, at)
    strict = {key: value for key, value in schema.items() if key in _KEPT}
    if schema.get("format") in _FORMATS:
        strict["format"] = schema["format"]
    members = schema.get("anyOf") or schema.get("oneOf")
    if members:
        strict["anyOf"] = [_node(one, at) for one in members]
    if schema.get("type") == "array":
        if "items" not in schema:
            raise ConfigError(f"{at} is a tuple, which has no strict form; take a list or a model")
        strict["items"] = _node(schema["items"], f"{at}[]")
    if not strict.keys() - {"description"}:
        raise ConfigError(
            f"{at} takes anything, which has no strict form; say its type, or leave out strict"
        )
    if "$ref" in strict and "description" in strict:  # a reference stands alone
        strict["anyOf"] = [{"$ref": strict.pop("$ref")}]
    return strict


def _object(schema: Mapping[str, Any], at: str) -> dict[str, Any]:
    properties = schema.get("properties")
    if properties is None or schema.get("additionalProperties"):
        raise ConfigError(
            f"{at} is a dict, which has no strict form; take a model, a TypedDict or a list of "
            "pairs, or leave out strict"
        )
    required = schema.get("required", ())
    strict: dict[str, Any] = {"type": "object", "properties": {}}
    for name, one in properties.items():
        node = _node(one, f"{at} {name}" if at.endswith(":") else f"{at}.{name}")
        strict["properties"][name] = node if name in required else _nullable(node)
    strict["required"] = list(properties)
    strict["additionalProperties"] = False
    if "description" in schema:
        strict["description"] = schema["description"]
    return strict


def _nullable(node: dict[str, Any]) -> dict[str, Any]:
    null = {"type": "null"}
    if null == node or null in node.get("anyOf", ()):
        return node
    outside = {"description": node.pop("description")} if "description" in node else {}
    members = node.pop("anyOf", None) or [node]
    return {**outside, "anyOf": [*members, null]}
