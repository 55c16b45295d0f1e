"""The tools of one agent, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tulip_actors.core.calls import ToolSpec
from tulip_actors.errors import ConfigError, ToolNotFound
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.group import ToolGroup


class ToolRegistry(Mapping[str, Tool]):
    """Read-only once made. Plain functions are wrapped, and groups expanded; two tools of one name
    are refused."""

    def __init__(self, tools: Iterable[Tool | ToolGroup | Callable[..., object]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for one in _expanded(tools):
            if one.name in self._tools:
                raise ConfigError(f"tools: two tools are named {one.name!r}; rename one")
            self._tools[one.name] = one
        self.specs: tuple[ToolSpec, ...] = tuple(one.spec for one in self._tools.values())

    def __getitem__(self, name: str) -> Tool:
        try:
            return self._tools[name]
        except KeyError:
            known = ", ".join(self._tools) or "none at all"
            raise ToolNotFound(f"there is no tool {name!r}; the tools are: {known}") from None

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
    raise ConfigError(f"tools: {item!r:.80} is neither a @tool nor a function")
