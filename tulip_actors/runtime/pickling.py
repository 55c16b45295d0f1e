"""Objects between the processes of one cluster. Nothing from outside is ever unpickled."""

from __future__ import annotations

import io
import pickle
import sys
from types import ModuleType
from typing import Any, TypeVar

from ray import cloudpickle

from tulip_actors.errors import ConfigError, RemoteError
from tulip_actors.tools.decorator import Tool

T = TypeVar("T")


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # ray ships it without types
    """cloudpickle, taught that a decorated tool is found under its function's name.

    Without this a tool would travel by value, with every global its module holds.
    """

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tool) and _is_importable(value):
            return getattr, (sys.modules[value.fn.__module__], value.fn.__qualname__)
        return super().reducer_override(value)


def _is_importable(tool: Tool) -> bool:
    module = sys.modules.get(getattr(tool.fn, "__module__", "") or "")
    if module is None or module.__name__ == "__main__":
        return False
    if module.__name__ in cloudpickle.list_registry_pickle_by_value():
        return False
    return getattr(module, getattr(tool.fn, "__qualname__", ""), None) is tool


def pack(value: object, what: str) -> bytes:
    """A value as bytes. Raises `ConfigError` naming `what` holds something that cannot travel."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(value)
    except (TypeError, pickle.PicklingError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"{what} cannot be sent to another process: {error}. Build clients, locks and "
            "connections where they are used (inside the function), or pass a factory"
        ) from error
    return buffer.getvalue()


def by_value(module: ModuleType) -> None:
    """Let what a module defines travel by value: for a file that workers cannot import."""
    cloudpickle.register_pickle_by_value(module)


def unpack(packed: bytes) -> Any:
    """The value. Raises `ConfigError` when its code is not importable in this process."""
    try:
        return pickle.loads(packed)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"this worker cannot import what was sent to it: {error}. Install the package on the "
            "cluster, or ship it with runtime_env (working_dir or py_modules)"
        ) from error


def pack_outcome(result: object, error: BaseException | None) -> bytes:
    """How a run ended, as bytes. What cannot travel is described by a `RemoteError`."""
    try:
        return pack((result, error), "the run's outcome")
    except ConfigError:
        described = f"{type(error or result).__name__}: {error or result!r}"
        return pack((None, RemoteError(f"the run's outcome could not be sent: {described}")), "it")


def unpack_outcome(packed: bytes) -> tuple[object, BaseException | None]:
    """How a run ended: its result or what it raised."""
    try:
        result, error = unpack(packed)
    except Exception as failure:  # e.g. an exception class with required arguments
        return None, RemoteError(f"the run ended, but its outcome cannot be read here: {failure!r}")
    return result, error
