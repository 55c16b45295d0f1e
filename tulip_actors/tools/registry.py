"""The tools of one agent, by name."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from tulip_actors.core.calls import ToolSpec
from tulip_actors.core.frozen import Json
from tulip_actors.errors import ConfigError, ToolNotFound
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.group import ToolGroup
from tulip_actors.tools.schema import ToolSignature


class MissingDescription(UserWarning):
    """A tool or a parameter of which a model is told nothing but its name and type."""


class ToolRegistry(Mapping[str, Tool]):
    """Read-only once made. Plain functions are wrapped, and groups expanded; two tools of one name
    are refused.

    Warns with `MissingDescription`, naming tool and parameters.
    """

    def __init__(self, tools: Iterable[Tool | ToolGroup | Callable[..., object]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for one in _expanded(tools):
            if one.is_method:
                raise ConfigError(
                    f"tools: {one.name} is a method without its object; pass it as object.method"
                )
            if isinstance(one.signature, ToolSignature):  # what others wrote is not ours to judge
                _warn_of_what_is_not_said(one)
            if one.name in self._tools:
                raise ConfigError(f"tools: two tools are named {one.name!r}; rename one")
            self._tools[one.name] = one
        self.specs: tuple[ToolSpec, ...] = tuple(one.spec for one in self._tools.values())

    def __getitem__(self, name: str) -> Tool:
        try:
            return self._tools[name]
        except KeyError:
            known = ", ".join(self._tools) or "none at all"
            raise ToolNotFound(f"there is no tool {name!r:.80}; the tools are: {known}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


def _expanded(items: Iterable[object]) -> Iterator[Tool]:
    for item in items:
        if isinstance(item, Tool):
            yield item
        elif isinstance(item, ToolGroup):
            yield from item.expand()
        else:
            yield _wrapped(item)


def _wrapped(item: object) -> Tool:
    if callable(item):
        return Tool(item)
    hint = "; pass its as_tool()" if hasattr(item, "as_tool") else ""
    raise ConfigError(f"tools: {item!r:.80} is neither a @tool nor a function{hint}")


def _warn_of_what_is_not_said(one: Tool) -> None:
    """Warn of what a model has to guess: a parameter that neither schema nor text says more of."""
    properties = one.signature.parameters["properties"]
    missing = [
        name
        for name, schema in cast(Mapping[str, Mapping[str, Json]], properties).items()
        if "description" not in schema and not re.search(rf"\b{name}\b", one.description)
    ]
    if one.description and not missing:
        return
    of = f" of its parameters {', '.join(missing)}" if one.description else ""
    warnings.warn(
        f"tool {one.name}: no description{of}; models choose and fill tools by it. Write it into "
        "the docstring (parameters under Args:), or as Annotated[type, 'description']",
        MissingDescription,
        stacklevel=3,
    )
