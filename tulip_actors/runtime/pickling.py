"""Objects between the processes of one cluster. Nothing from outside is ever unpickled."""

from __future__ import annotations

import io
import pickle
import sys
from types import ModuleType
from typing import Any, TypeVar

import ray
from ray import cloudpickle

from tulip_actors.core.ports import Runnable
from tulip_actors.errors import ConfigError, RemoteError
from tulip_actors.loop.agent_runnable import AgentRunnable
from tulip_actors.memory.checkpointer import FiledCheckpointer
from tulip_actors.tools.decorator import Tool
from tulip_actors.tools.invoke import error_text

T = TypeVar("T")


class _Pickler(cloudpickle.CloudPickler):
    """cloudpickle, which asks a tool's own `__reduce__` unless its module travels by value."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tool) and _travels_by_value(value):
            return value.reduce_by_value()
        if isinstance(value, FiledCheckpointer) and value.home is None:
            value.home = ray.get_runtime_context().get_node_id()  # its files are here
        if isinstance(value, io.TextIOWrapper) and value not in (sys.stdout, sys.stderr):
            raise TypeError("cannot pickle an open file")  # cloudpickle would send what it holds
        return super().reducer_override(value)  # type: ignore[no-untyped-call]


def _travels_by_value(tool: Tool) -> bool:
    return getattr(tool.fn, "__module__", None) in cloudpickle.list_registry_pickle_by_value()


def pack(value: object, what: str) -> bytes:
    """A value as bytes. Raises `ConfigError` naming `what` holds something that cannot travel."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(value)  # type: ignore[no-untyped-call]
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


def pack_runnable(runnable: Runnable[object], name: str) -> bytes:
    """What a host conducts, as bytes. The error names the tool or model that cannot travel."""
    try:
        return pack(runnable, f"{name!r}")
    except ConfigError:
        if isinstance(runnable, AgentRunnable):
            for tool in runnable.config.tools.values():
                pack(tool, f"the tool {tool.name!r} of {name!r}")
            pack(runnable.config.model, f"the model of {name!r}")
        raise


def pack_outcome(result: object, error: BaseException | None) -> bytes:
    """How a run ended, as bytes. What cannot travel is described by a `RemoteError`."""
    try:
        packed = pack((result, error), "the run's outcome")
        if error is not None:
            pickle.loads(packed)  # a class may pickle and not unpickle: its __init__ wants more
    except Exception:
        described = error_text(error) if error is not None else f"{type(result).__name__}"
        text = f"the run's outcome cannot be sent to another process: {described}"
        return pack((None, RemoteError(text)), "a description")
    return packed


def unpack_outcome(packed: bytes) -> tuple[object, BaseException | None]:
    """How a run ended: its result or what it raised."""
    try:
        result, error = unpack(packed)
    except Exception as failure:  # whatever a user's class does when it is rebuilt
        return None, RemoteError(
            f"the run ended, but its outcome cannot be read here: {error_text(failure)}"
        )
    return result, error
