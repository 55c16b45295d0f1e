"""What stands behind a tool's callable: a function, a method, a partial, an object with `__call__`.

What may live here: pure looks at a callable. What they mean for a schema is `schema`'s.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from tulip_actors.core.frozen import EMPTY
from tulip_actors.errors import ConfigError


def unwrapped(fn: Callable[..., object]) -> Callable[..., object]:
    """The callable without the partials around it."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def body_of(fn: Callable[..., object]) -> Callable[..., object]:
    """The function that runs: a callable object's is its `__call__`."""
    fn = unwrapped(fn)
    if inspect.isroutine(fn) or isinstance(fn, type):
        return fn
    return cast(Callable[..., object], type(fn).__call__)


def name_of(fn: Callable[..., object]) -> str:
    """What a tool is called unless it is told."""
    fn = unwrapped(fn)
    name = getattr(fn, "__name__", type(fn).__name__)
    return "tool" if name == "<lambda>" else str(name)


def is_coroutine_function(fn: Callable[..., object]) -> bool:
    """Whether calling it gives a coroutine; also a callable object's own, or a partial's."""
    return inspect.iscoroutinefunction(body_of(fn))


def hints_of(fn: Callable[..., object], name: str) -> dict[str, Any]:
    """The types of the parameters, resolved in the function's own module.

    Raises `ConfigError` for a name that is not there.
    """
    body = body_of(fn)
    innermost = inspect.unwrap(body)
    annotations = dict(getattr(body, "__annotations__", {}))
    annotations.pop("return", None)  # nobody needs it, and it may be for the type checker alone
    parameters = SimpleNamespace(
        __annotations__=annotations, __type_params__=getattr(body, "__type_params__", ())
    )
    try:
        return typing.get_type_hints(
            parameters, getattr(innermost, "__globals__", {}), include_extras=True
        )
    except NameError as error:
        raise ConfigError(
            f"tool {name}: the annotation {error.name!r} cannot be found in "
            f"{getattr(body, '__module__', 'its module')}; define or import it at module level "
            "(not under TYPE_CHECKING, not inside a function)"
        ) from error


@dataclass(frozen=True, slots=True)
class Description:
    """What a docstring says of a function and of its parameters."""

    text: str = ""
    parameters: Mapping[str, str] = EMPTY


def describe(fn: Callable[..., object]) -> Description:
    """Read a docstring in Google, NumPy or Sphinx style; of a callable object its class's too."""
    fn = unwrapped(fn)
    body = body_of(fn)
    own = _read(inspect.getdoc(fn) or "")
    if body is fn:
        return own
    of_body = _read(inspect.getdoc(body) or "")
    return Description(own.text or of_body.text, {**own.parameters, **of_body.parameters})


def _read(text: str) -> Description:
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
