"""Tools that ask a human, importable by workers."""

from __future__ import annotations

from tests.loop.support import mark
from tulip_actors import interrupt, tool


@tool
async def asking(path: str) -> str:
    """Ask once, and leave a mark each time the body begins."""
    mark(path)
    return f"asking: {interrupt('Go on?', ['yes', 'no'])}"


@tool
async def ask_twice() -> str:
    """Ask two questions, one after the other."""
    first = interrupt("First?")
    return f"{first} and {interrupt('Second?')}"
