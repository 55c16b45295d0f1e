"""From a function's signature and docstring to a schema, and from a model's JSON to arguments.

What may live here: pure functions. Hints are resolved in the function's own module, so
`from __future__ import annotations` works; pydantic does the checking and the coercion.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from tulip_actors.core.frozen import FrozenDict, Json, JsonObject, canonical, freeze, freeze_object
from tulip_actors.errors import ConfigError, NotSerialisable, ToolArgumentsInvalid
from tulip_actors.tools.callables import describe, hints_of
from tulip_actors.tools.context import ToolContext
from tulip_actors.tools.mend import mended

_PLAIN = (str, int, float, bool)
_PREFIX = "arg_"
"""Fields carry it so that no parameter's name can collide with pydantic's own."""

PROBLEMS_TOLD = 8
PROBLEM_CHARS = 300
"""How much a model is told of wrong arguments: a list of a thousand has a thousand problems."""


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

        Raises `ToolArgumentsInvalid` with a message for the model: what is wrong, where, and what
        to send.
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
            raise self._refusal(error.message) from None
        except Exception as error:  # a serialiser of the user's own
            raise self._refusal(
                f"the arguments of {tool_name} cannot be written as JSON: {error}"
            ) from error

    def bind(self, tool_name: str, arguments: Mapping[str, Json]) -> dict[str, object]:
        """Valid arguments as the Python values that the signature names."""
        return dict(arguments) if self.is_plain else self._values(self._check(tool_name, arguments))

    def _values(self, checked: BaseModel) -> dict[str, object]:
        return {name: getattr(checked, _PREFIX + name) for name in self.names}

    def _check(self, tool_name: str, arguments: Mapping[str, Json]) -> BaseModel:
        try:
            return self._validated(tool_name, arguments)
        except ValidationError as refused:
            problems = _problems(refused)
        candidate = mended(arguments, problems)
        if candidate is not None:
            try:
                return self._validated(tool_name, candidate)
            except ValidationError as refused:
                # of a null that was required, what was wrong with it says more than "missing"
                known = {problem["loc"]: problem for problem in problems}
                problems = [known.get(one["loc"], one) for one in _problems(refused)]
        told = [f"{_path(one)}: {one['msg']:.{PROBLEM_CHARS}}" for one in problems[:PROBLEMS_TOLD]]
        more = len(problems) - len(told)
        raise self._refusal(
            f"the arguments of {tool_name} are not valid: {'; '.join(told)}"
            + (f"; and {more} more problems" if more else "")
        )

    def _validated(self, tool_name: str, arguments: Mapping[str, Json]) -> BaseModel:
        """The arguments checked. Raises `ValidationError`, nothing else of pydantic's."""
        try:
            return self.model.model_validate(arguments)
        except ValidationError:
            raise
        except Exception as error:  # a validator of the user's own that raised something else
            raise self._refusal(
                f"the arguments of {tool_name} cannot be checked: {type(error).__name__}: {error}"
            ) from error

    def _refusal(self, problem: str) -> ToolArgumentsInvalid:
        names = ", ".join(self.names) or "no arguments"
        return ToolArgumentsInvalid(f"{problem}. Send a JSON object with: {names}")


def _problems(refused: ValidationError) -> list[ErrorDetails]:
    return refused.errors(include_url=False, include_input=False, include_context=False)


def _path(problem: ErrorDetails) -> str:
    return ".".join(str(part) for part in problem["loc"])[:PROBLEM_CHARS] or "arguments"


def signature_of(fn: Callable[..., object], name: str) -> ToolSignature:
    """The signature of a tool's function. Raises `ConfigError` for what JSON cannot express."""
    hints = hints_of(fn, name)
    described = describe(fn).parameters
    fields: dict[str, Any] = {}
    context_parameter: str | None = None
    for parameter in inspect.signature(fn).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is ToolContext or ToolContext in typing.get_args(hint):
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
        fields[_PREFIX + parameter.name] = _field(parameter, hint, described.get(parameter.name))
    return _signature(name, fields, context_parameter)


def _field(parameter: inspect.Parameter, hint: Any, described: str | None) -> tuple[Any, Any]:
    """A parameter as pydantic's field: its hint, and the rest."""
    default = ... if parameter.default is parameter.empty else parameter.default
    if isinstance(default, FieldInfo):  # `days: int = Field(7, ge=1)`
        hint = Annotated[hint, default]
        default = default.get_default(call_default_factory=True, validated_data={})
        default = ... if default is PydanticUndefined else default
    if default is None and hint is not Any:
        hint = hint | None  # `lang: str = None` means optional
    more: dict[str, Any] = {}
    description = _said_of(hint) or described
    if description is not None:
        more["description"] = description
    return hint, Field(default, alias=parameter.name, **more)


def _said_of(hint: Any) -> str | None:
    """What an `Annotated` hint says of its parameter: plain text, or a `Field`'s description."""
    for one in getattr(hint, "__metadata__", ()):
        text = one.description if isinstance(one, FieldInfo) else one
        if isinstance(text, str):
            return text
    return None


def _signature(name: str, fields: dict[str, Any], context_parameter: str | None) -> ToolSignature:
    try:
        model = _model_of(name, fields)
        _check_defaults(name, model)
        schema = model.model_json_schema(by_alias=True)
    except (PydanticUserError, TypeError) as error:
        raise ConfigError(
            f"tool {name}: {_inexpressible(fields)}, which JSON cannot express. Take text, "
            "numbers, lists, dicts, enums, dataclasses or pydantic models"
        ) from error
    return ToolSignature(
        model=model,
        names=tuple(field.removeprefix(_PREFIX) for field in fields),
        context_parameter=context_parameter,
        parameters=freeze_object(_without_titles(schema), f"schema of {name}"),
        is_plain=all(hint in _PLAIN for hint, _ in fields.values()),
    )


def _model_of(name: str, fields: dict[str, Any]) -> type[BaseModel]:
    """The model that checks arguments. Raises `TypeError` for a class as an argument."""
    for hint, _ in fields.values():
        if type in (hint, typing.get_origin(hint)):
            raise TypeError("a model cannot send a class")
    return create_model(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)


def _inexpressible(fields: dict[str, Any]) -> str:
    """The parameter that is to blame, and its type."""
    for field, (hint, rest) in fields.items():
        try:
            _model_of("one", {field: (hint, rest)}).model_json_schema()
        except (PydanticUserError, TypeError):
            shown = hint.__qualname__ if isinstance(hint, type) else str(hint)
            return f"the parameter {field.removeprefix(_PREFIX)} is a {shown}"
    return "a parameter has a type"


def _check_defaults(name: str, model: type[BaseModel]) -> None:
    """Raise `ConfigError` for a default that no call could be recorded or validated with."""
    blank = model.model_construct()
    for field, info in model.model_fields.items():
        if info.is_required() or info.default is None:
            continue
        try:
            dumped = blank.model_dump(mode="json", include={field}, warnings=False)
            model.__pydantic_validator__.validate_assignment(
                model.model_construct(), field, freeze(dumped[field], "default")
            )
        except Exception as error:  # pydantic's, ours, or a serialiser's of the user's own
            raise ConfigError(
                f"tool {name}: the default of {info.alias}, {info.default!r:.80}, is not what its "
                "type takes as JSON; give one that is, or None"
            ) from error


def hash_of(name: str, parameters: JsonObject) -> str:
    """Tells a tool that takes these arguments from others; what it says of them does not count."""

    def told(node: Json) -> Json:
        if isinstance(node, Mapping):
            kept = {
                key: told(value)
                for key, value in node.items()
                if not (key == "description" and isinstance(value, str))
            }
            return freeze_object(kept, "schema")
        return freeze([told(one) for one in node], "schema") if isinstance(node, list) else node

    return sha256(f"{name}{canonical(told(parameters))}".encode()).hexdigest()[:16]


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
