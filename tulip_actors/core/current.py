"""Which run the present code serves, carried by the context of its task or thread.

What may live here: finding the run, and the checks of what is handed to it, which are the same
beside the loop and in a tool on another machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

from tulip_actors.core.events import TulipEvent
from tulip_actors.core.frozen import Json, freeze_object
from tulip_actors.core.ports import CurrentRun, RunContext
from tulip_actors.errors import ConfigError

PRINCIPAL = "principal"
"""The metadata entry that says on whose behalf a run is."""


class serving:  # noqa: N801  # used like a function: `with serving(run)`
    """Let the code in this block, and tasks begun in it, serve a run."""

    __slots__ = ("_before", "context", "run")

    def __init__(self, run: CurrentRun, context: RunContext | None = None) -> None:
        self.run = run
        self.context = context

    def __enter__(self) -> None:
        self._before = _SERVED.set(self)

    def __exit__(self, *_: object) -> None:
        _SERVED.reset(self._before)
        del self._before  # it knows the context that knows this


_SERVED: ContextVar[serving | None] = ContextVar("tulip_served", default=None)


def current_run() -> CurrentRun | None:
    """The run that called this code (model, hook, tool, on any machine), None outside of one."""
    served = _SERVED.get()
    return None if served is None else served.run


def current_context() -> RunContext | None:
    """All of the run, for code that is called where its loop runs (model, hook); None in a tool."""
    served = _SERVED.get()
    return None if served is None else served.context


def principal_of(metadata: Mapping[str, Json]) -> str | None:
    """On whose behalf a run is that was started with this metadata."""
    principal = metadata.get(PRINCIPAL)
    return principal if isinstance(principal, str) else None


def checked_event(event: object) -> TulipEvent:
    """What may be emitted. Raises TypeError for anything but an event."""
    if isinstance(event, TulipEvent):
        return event
    raise not_an_event(event)


def not_an_event(thing: object) -> TypeError:
    """The error for whoever emits something else."""
    what = f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__
    return TypeError(f"emit() takes an event object such as CausalNodeEvent(...), not {what}")


def checked_entry(key: object, value: object) -> tuple[str, Json]:
    """An entry of the state's metadata, frozen.

    Raises `NotSerialisable`, naming the path, for what JSON cannot hold, and `ConfigError` for the
    principal: whom a run is for is said when it is started, and not for its tools to change.
    """
    if key == PRINCIPAL:
        raise ConfigError(
            f"metadata.{PRINCIPAL} says on whose behalf a run is and is given when it is started; "
            "use another name"
        )
    ((name, frozen),) = freeze_object({key: value}, "metadata").items()  # type: ignore[dict-item]
    return name, frozen
