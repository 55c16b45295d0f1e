"""The table of runtimes: `ray` (default) and `inline`. Each is imported when it is asked for."""

from __future__ import annotations

import os
import threading

from tulip_actors.errors import ConfigError
from tulip_actors.host.ports import Runtime

DEFAULT_NAMESPACE = "tulip"

_lock = threading.Lock()
_made: dict[tuple[str, str], Runtime] = {}


def checked_runtime(name: str | None) -> str:
    """The runtime's name: as given, from TULIP_RUNTIME, or `ray`. Raises `ConfigError`."""
    chosen = (os.environ.get("TULIP_RUNTIME") or "ray") if name is None else name
    if not isinstance(chosen, str) or chosen not in _MAKERS:
        raise ConfigError(f"runtime: {chosen!r} is not one of {', '.join(_MAKERS)}")
    return chosen


def runtime_named(name: str | None, namespace: str | None = None) -> Runtime:
    """The one runtime of that name and namespace in this process."""
    key = (checked_runtime(name), namespace or DEFAULT_NAMESPACE)
    with _lock:
        if key not in _made:
            _made[key] = _MAKERS[key[0]](key[1])
        return _made[key]


def _ray(namespace: str) -> Runtime:
    from tulip_actors.runtime.ray_runtime import RayRuntime

    return RayRuntime(namespace)


def _inline(namespace: str) -> Runtime:
    from tulip_actors.host.inline import InlineRuntime

    return InlineRuntime()


_MAKERS = {"ray": _ray, "inline": _inline}
