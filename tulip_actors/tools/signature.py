"""What a tool takes: read from a function's signature (`schema`), or given as a JSON schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tulip_actors.core.frozen import FrozenDict, Json, JsonObject, freeze_object
from tulip_actors.errors import NotSerialisable, ToolArgumentsInvalid

_OPEN = ("patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if")
"""Keywords of a schema that may allow arguments which `properties` does not name."""


class Signature(Protocol):
    """What a tool takes. `context_parameter` names the one that receives the `ToolContext`."""

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments' names."""
        ...

    @property
    def context_parameter(self) -> str | None:
        """The parameter that models do not see, None if the body takes no context."""
        ...

    @property
    def parameters(self) -> JsonObject:
        """JSON schema of the arguments, type object."""
        ...

    def validate(self, tool_name: str, arguments: Mapping[str, Json]) -> FrozenDict:
        """The arguments checked and completed, as JSON. Raises `ToolArgumentsInvalid`."""
        ...

    def bind(self, tool_name: str, arguments: Mapping[str, Json]) -> dict[str, object]:
        """Valid arguments as the values that the body takes. Raises `ToolArgumentsInvalid`."""
        ...


class GivenSignature:
    """A schema that somebody else wrote and checks, such as an MCP server; models get it as it is.

    Here only names are checked: that none is missing, and that none is unknown where the schema
    says which there are.
    """

    context_parameter = None

    def __init__(self, parameters: Mapping[str, object]) -> None:
        """Raises `NotSerialisable` for what is no JSON."""
        self.parameters: JsonObject = freeze_object(parameters, "schema")
        self.names = _names(self.parameters.get("properties"))

    def validate(self, tool_name: str, arguments: Mapping[str, Json]) -> FrozenDict:
        """See `Signature`."""
        required = _names(self.parameters.get("required"))
        missing = [name for name in required if name not in arguments]
        unknown = [] if self._is_open else [name for name in arguments if name not in self.names]
        problems = [f"{name}: is missing" for name in missing]
        problems += [f"{name}: there is no such argument" for name in unknown]
        if problems:
            raise ToolArgumentsInvalid(
                f"the arguments of {tool_name} are not valid: {'; '.join(problems)}. "
                f"Send a JSON object with: {', '.join(self.names) or 'no arguments'}"
            )
        try:
            return freeze_object(arguments, f"arguments of {tool_name}")
        except NotSerialisable as error:
            raise ToolArgumentsInvalid(error.message) from None

    def bind(self, tool_name: str, arguments: Mapping[str, Json]) -> dict[str, object]:
        """See `Signature`."""
        return dict(arguments)

    @property
    def _is_open(self) -> bool:
        """Whether the schema allows further arguments, or may do so in a way not looked into."""
        return bool(self.parameters.get("additionalProperties")) or any(
            keyword in self.parameters for keyword in _OPEN
        )


def _names(value: Json) -> tuple[str, ...]:
    """The names that a schema lists, or maps to more; none where it says something else."""
    return tuple(map(str, value)) if isinstance(value, Sequence | Mapping) else ()
