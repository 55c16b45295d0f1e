"""Which run the present code serves, carried by the context of its task."""

from __future__ import annotations

from contextvars import ContextVar

from tulip_actors.core.ports import RunContext

CURRENT_RUN: ContextVar[RunContext | None] = ContextVar("tulip_current_run", default=None)


def current_run() -> RunContext | None:
    """The run that called this code (model, hook, inline tool), None outside of one."""
    return CURRENT_RUN.get()
