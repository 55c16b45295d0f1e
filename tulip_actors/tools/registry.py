"""The tools of one agent, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tulip_actors.core.calls import ToolSpec
from tulip_actors.errors import ConfigError, ToolNotFound
from tulip_actors.tools.decorator import Tool


class ToolRegistry(Mapping[str, Tool]):
    """Read-only once made. Plain functions are wrapped; two tools of one name are refused."""

    def __init__(self, tools: Iterable[Tool | Callable[..., object]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for item in tools:
            one = item if isinstance(item, Tool) else _wrapped(item)
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


def _wrapped(item: object) -> Tool:
    if callable(item):
        return Tool(item)
    raise ConfigError(f"tools: {item!r:.80} is neither a @tool nor a function")
