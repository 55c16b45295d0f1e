"""From a function's signature and docstring to a schema, and from a model's JSON to arguments.

What may live here: pure functions. Hints are resolved in the function's own module, so
`from __future__ import annotations` works; pydantic does the checking and the coercion.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model

from tulip_actors.core.frozen import EMPTY, FrozenDict, Json, JsonObject, freeze_object
from tulip_actors.errors import ConfigError, NotSerialisable, ToolArgumentsInvalid
from tulip_actors.tools.context import ToolContext

_PLAIN = (str, int, float, bool)
_PREFIX = "arg_"
"""Fields carry it so that no parameter's name can collide with pydantic's own."""


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """What a tool takes. `context_parameter` names the one that receives the `ToolContext`.

    `is_plain`: every argument is text, a number or a bool, so a valid one is its own JSON.
    """

    model: type[BaseModel]
    names: tuple[str, ...]
    context_parameter: str | None
    parameters: JsonObject
    is_plain: bool

    def validate(self, tool_name: str, arguments: Mapping[str, Json]) -> FrozenDict:
        """The arguments checked, coerced and with defaults filled in, as JSON.

        Raises `ToolArgumentsInvalid` with a message for the model: what is wrong, where, and the
        schema to follow.
        """
        checked = self._check(tool_name, arguments)
        try:
            plain = (
                self._values(checked)
                if self.is_plain
                else checked.model_dump(mode="json", by_alias=True)
            )
            return freeze_object(plain, f"arguments of {tool_name}")
        except NotSerialisable as error:
            raise ToolArgumentsInvalid(error.message) from None
        except Exception as error:  # a serialiser of the user's own
            raise ToolArgumentsInvalid(
                f"the arguments of {tool_name} cannot be written as JSON: {error}"
            ) from error

    def bind(self, tool_name: str, arguments: Mapping[str, Json]) -> dict[str, object]:
        """Valid arguments as the Python values that the signature names."""
        return dict(arguments) if self.is_plain else self._values(self._check(tool_name, arguments))

    def _values(self, checked: BaseModel) -> dict[str, object]:
        return {name: getattr(checked, _PREFIX + name) for name in self.names}

    def _check(self, tool_name: str, arguments: Mapping[str, Json]) -> BaseModel:
        try:
            return self.model.model_validate(arguments)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(str(part) for part in e['loc']) or 'arguments'}: {e['msg']}"
                for e in error.errors(include_url=False, include_input=False)
            )
            raise ToolArgumentsInvalid(
                f"the arguments of {tool_name} are not valid: {problems}. "
                f"Send a JSON object with: {', '.join(self.names) or 'no arguments'}"
            ) from None
        except Exception as error:  # a validator of the user's own that raised something else
            raise ToolArgumentsInvalid(
                f"the arguments of {tool_name} cannot be checked: {type(error).__name__}: {error}"
            ) from error


def signature_of(fn: Callable[..., object], name: str) -> ToolSignature:
    """The signature of a tool's function. Raises `ConfigError` for what JSON cannot express."""
    hints = _hints(fn, name)
    described = describe(fn).parameters
    fields: dict[str, Any] = {}
    context_parameter: str | None = None
    for parameter in inspect.signature(fn).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is ToolContext:
            context_parameter = parameter.name
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError(
                f"tool {name}: a model cannot fill *{parameter.name}; "
                "name each argument, or take one list or one dict"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ConfigError(
                f"tool {name}: {parameter.name} is positional only; tools are called by name"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        if default is None:
            hint = hint | None if hint is not Any else hint  # `lang: str = None` means optional
        fields[_PREFIX + parameter.name] = (
            hint,
            Field(default, alias=parameter.name, description=described.get(parameter.name)),
        )
    return _signature(name, fields, context_parameter)


def _signature(name: str, fields: dict[str, Any], context_parameter: str | None) -> ToolSignature:
    try:
        model = create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema(by_alias=True)
    except (PydanticUserError, TypeError) as error:
        raise ConfigError(
            f"tool {name}: a parameter has a type that JSON cannot express: {error}. "
            "Take text, numbers, lists, dicts, enums, dataclasses or pydantic models"
        ) from error
    return ToolSignature(
        model=model,
        names=tuple(field.removeprefix(_PREFIX) for field in fields),
        context_parameter=context_parameter,
        parameters=freeze_object(_without_titles(schema), f"schema of {name}"),
        is_plain=all(hint in _PLAIN for hint, _ in fields.values()),
    )


def _hints(fn: Callable[..., object], name: str) -> dict[str, Any]:
    target: object = fn
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target) and not isinstance(target, type):
        target = type(target).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"tool {name}: the annotation {error.name!r} cannot be found in {fn.__module__}; "
            "import it at module level (not under TYPE_CHECKING)"
        ) from error


_NAMES = ("properties", "$defs")
_VALUES = ("default", "const", "enum", "examples")
"""Schema keys below which stand names of the user, or values as they are."""


_NAMES = ("properties", "$defs")
_VALUES = ("default", "const", "enum", "examples")
"""Schema keys below which stand names of the user's, or values as they are."""


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Pydantic titles every field after its internal name; a model needs none of them."""

    def clean(node: object) -> object:
        if isinstance(node, list):
            return [clean(item) for item in node]
        if not isinstance(node, dict):
            return node
        return {key: kept(key, value) for key, value in node.items() if key != "title"}

    def kept(key: str, value: object) -> object:
        if key in _VALUES:
            return value
        if key in _NAMES and isinstance(value, dict):
            return {name: clean(inner) for name, inner in value.items()}
        return clean(value)

    cleaned = typing.cast(dict[str, Any], clean(schema))
    cleaned.setdefault("properties", {})
    return cleaned


@dataclass(frozen=True, slots=True)
class Description:
    """What a docstring says of a function and of its parameters."""

    text: str = ""
    parameters: Mapping[str, str] = EMPTY


def describe(fn: Callable[..., object]) -> Description:
    """Read a docstring in Google, NumPy or Sphinx style."""
    text = inspect.getdoc(fn) or ""
    if ":" not in text and "---" not in text:
        return Description(text)  # nothing but prose: spare the parser's import

    from griffe import (
        Docstring,
        DocstringSectionAdmonition,
        DocstringSectionParameters,
        DocstringSectionText,
        Parser,
    )

    style = Parser.google
    if ":param" in text:
        style = Parser.sphinx
    elif "\n---" in text:
        style = Parser.numpy
    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in Docstring(text).parse(style, warnings=False):
        if isinstance(section, DocstringSectionText):
            prose.append(section.value)
        elif isinstance(section, DocstringSectionAdmonition):
            prose.append(f"{section.title}: {section.value.description}")
        elif isinstance(section, DocstringSectionParameters):
            parameters.update({item.name: item.description for item in section.value})
    return Description("\n\n".join(prose), parameters)
