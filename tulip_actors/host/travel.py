"""What of an object cannot go to another process, and where in it that is.

What may live here: a walk over an object along the paths that pickling would take. It needs no Ray
and packs nothing, so it can be made for every agent; `runtime/pickling` is what really packs.
"""

from __future__ import annotations

import asyncio
import copyreg
import dis
import functools
import io
import pickle
import sys
import types
from collections import deque
from collections.abc import Iterable, Set
from itertools import islice
from typing import Any, NamedTuple

from pydantic import BaseModel

from tulip_actors.tools.decorator import Tool

_OF_THIS_PROCESS = (io.IOBase, asyncio.AbstractEventLoop, asyncio.Future)
"""Kinds that never travel, though their insides may look as if they did."""
_IN_MEMORY = (io.StringIO, io.BytesIO)
_TAKEN_CARE_OF: tuple[type, ...] = (
    type,
    types.ModuleType,
    types.CodeType,
    types.MappingProxyType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    memoryview,
    pickle.PickleBuffer,
    *(type({}.keys()), type({}.values()), type({}.items())),
)
"""Kinds that travel although `__reduce_ex__` refuses them."""
_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray)
LOOKED_AT = 20_000
SAMPLED = 1_000
"""The walk must stay cheap: so many objects, and so many of one container, are looked at. The rest
is left to packing."""


class Part(NamedTuple):
    """Something that travels with what holds it, and what it is there."""

    label: str
    value: object


def obstacle(parts: Iterable[Part]) -> str | None:
    """Where the nearest thing is that cannot travel, None if none was found.

    Such as "tool 'pay': closure variable 'client' -> Client._lock is a _thread.lock".
    """
    seen: dict[int, object] = {}  # holds what it has seen, so that no id is given twice
    ahead: deque[tuple[tuple[str, ...], object]] = deque(((one.label,), one.value) for one in parts)
    while ahead and len(seen) < LOOKED_AT:
        path, value = ahead.popleft()
        if type(value) in _PLAIN or id(value) in seen:
            continue
        seen[id(value)] = value
        try:
            inside = list(islice(_parts_of(value), SAMPLED))
        except Exception:  # whatever keeps an object from being taken apart keeps it here
            where = " -> ".join(path[1:])
            return f"{path[0]}{where and f': {where}'} is a {_kind(value)}"
        ahead.extend(((*path, part.label), part.value) for part in inside)
    return None


def _kind(value: object) -> str:
    kind = type(value)
    inside = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{inside}{kind.__qualname__}"


@functools.singledispatch
def _parts_of(value: Any) -> Iterable[Part]:
    """What is pickled together with a value. Raises `TypeError` for what cannot be pickled."""
    kind = type(value)
    if isinstance(value, _TAKEN_CARE_OF) or kind.__module__.partition(".")[0] == "ray":
        return
    if any(value is stream for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return  # each process has its own
    if isinstance(value, _OF_THIS_PROCESS) and not isinstance(value, _IN_MEMORY):
        raise TypeError(f"{kind} belongs to its process")
    reduce = copyreg.dispatch_table.get(kind)
    reduced = value.__reduce_ex__(5) if reduce is None else reduce(value)
    if isinstance(reduced, str):
        return
    make, arguments, state, items, entries = (*reduced, *[None] * 5)[:5]
    yield Part(f"what makes a {kind.__name__}", make)
    yield from (Part(f"argument {n} of {kind.__name__}", one) for n, one in enumerate(arguments))
    yield from _parts_of_state(kind.__name__, state)
    yield from (Part(f"{kind.__name__}[{n}]", one) for n, one in enumerate(items or ()))
    yield from (Part(f"{kind.__name__}[{key!r:.40}]", one) for key, one in entries or ())


def _parts_of_state(name: str, state: object) -> Iterable[Part]:
    """The attributes in what `__reduce_ex__` calls the state: one or more dicts, or else."""
    if isinstance(state, tuple):
        for one in state:
            yield from _parts_of_state(name, one)
    elif isinstance(state, dict):
        for key, one in state.items():
            is_nested = key in ("__dict__", "__pydantic_private__", "__pydantic_extra__")
            yield from _parts_of_state(name, one) if is_nested else [Part(f"{name}.{key}", one)]
    elif state is not None:
        yield Part(f"the state of {name}", state)


@_parts_of.register
def _(value: Tool) -> Iterable[Part]:
    return () if value.is_importable() else _parts_of(value.fn)


@_parts_of.register
def _(value: types.FunctionType) -> Iterable[Part]:
    return () if _is_importable(value) else _parts_of_function(value)


@_parts_of.register
def _(value: type) -> Iterable[Part]:
    return () if _is_importable(value) or issubclass(value, BaseModel) else _parts_of_class(value)


@_parts_of.register
def _(value: types.MethodType) -> Iterable[Part]:
    yield from _parts_of(value.__func__)
    yield from _parts_of(value.__self__)


@_parts_of.register
def _(value: functools.partial) -> Iterable[Part]:  # type: ignore[type-arg]  # singledispatch
    yield from _parts_of(value.func)
    for name, one in (*enumerate(value.args), *value.keywords.items()):
        yield Part(f"argument {name!r} of a partial", one)


@_parts_of.register(staticmethod)
@_parts_of.register(classmethod)
def _(value: Any) -> Iterable[Part]:
    return _parts_of(value.__func__)


@_parts_of.register
def _(value: property) -> Iterable[Part]:
    return [Part("its code", one) for one in (value.fget, value.fset) if one is not None]


@_parts_of.register
def _(value: dict) -> Iterable[Part]:  # type: ignore[type-arg]  # singledispatch
    return (
        Part(f"[{key!r:.40}]", one) for key, one in value.items() if not isinstance(one, _PLAIN)
    )


@_parts_of.register(list)
@_parts_of.register(tuple)
@_parts_of.register(set)
@_parts_of.register(frozenset)
@_parts_of.register(deque)
def _(value: Any) -> Iterable[Part]:
    return (Part(f"[{n}]", one) for n, one in enumerate(value) if not isinstance(one, _PLAIN))


def _is_importable(value: Any) -> bool:
    """Whether another process finds this very function or class under its name."""
    found: object = sys.modules.get(value.__module__ or "")
    if found is None or value.__module__ == "__main__":
        return False
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _parts_of_function(function: types.FunctionType) -> Iterable[Part]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield Part(f"closure variable {name!r}", cell.cell_contents)
        except ValueError:
            continue  # not assigned yet
    for name in sorted(_globals_in(function.__code__, function.__globals__.keys())):
        yield Part(f"global variable {name!r}", function.__globals__[name])
    defaults = function.__defaults__ or ()
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    named = zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True)
    for name, default in (*named, *(function.__kwdefaults__ or {}).items()):
        yield Part(f"default of {name!r}", default)
    yield from (Part(f"attribute {name!r}", one) for name, one in vars(function).items())


def _globals_in(code: types.CodeType, known: Set[str]) -> set[str]:
    """The globals, of those known, that a function reads, and the functions defined in it."""
    names = set(code.co_names) & known
    if names:  # some may be names of attributes: only now is it worth to look closer
        names &= {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _globals_in(constant, known)
    return names


def _parts_of_class(cls: type) -> Iterable[Part]:
    for name, one in vars(cls).items():
        if not name.startswith(("__", "_abc_")) or callable(one):
            yield Part(f"{cls.__name__}.{name}", one)
    yield from (Part(f"base {base.__name__}", base) for base in cls.__bases__)
