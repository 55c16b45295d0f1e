"""Read-only JSON values.

What may live here: the two containers that state, messages and events hand out, and `freeze`,
which checks a value on entry. They are real `dict` and `list` objects (equal to plain ones,
accepted by json and msgpack), whose mutators raise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NoReturn, TypeAlias, cast

from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypeAliasType

from tulip_actors.errors import NotSerialisable

Json = TypeAliasType(
    "Json", "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
)
"""What JSON can say. Containers are read-only: `FrozenDict` and `FrozenList`."""


class _FrozenObject:
    """Tells pydantic to freeze such a field rather than to copy and check it type by type.

    It is written as a dict, which pydantic would take as long again to find out.
    """

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: freeze_object(value, "value"),
            serialization=core_schema.simple_ser_schema("dict"),
        )


TokenCounts: TypeAlias = Annotated[Mapping[str, int], _FrozenObject()]
"""Counts by name, read-only."""

DEPTH_MAX = 100
"""Nesting that is accepted: far more than anyone means, far less than a decoder's limit."""

INT_MIN, INT_MAX = -(2**63), 2**64 - 1
"""What MessagePack can hold, and most JSON readers cannot exceed either."""

JsonObject: TypeAlias = Annotated[Mapping[str, Json], _FrozenObject()]
"""A read-only JSON object, in fields of events, messages and state."""


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__} is read-only: make a changed copy, as in {{**value, 'key': new}}"
    )


def clean_text(text: str) -> str:
    """The text without halves of characters, which could be neither stored nor sent.

    Two halves that stand beside each other become the character they are halves of.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed after it was made."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # dict says None; this one can't change
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        return FrozenDict, (dict(self),)

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: object) -> FrozenDict:
        return self


class FrozenList(list[Any]):
    """A list that cannot be changed after it was made."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # list says None; this one can't change
        return hash(tuple(self))

    def __reduce__(self) -> tuple[type[FrozenList], tuple[list[Any]]]:
        return FrozenList, (list(self),)

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, memo: object) -> FrozenList:
        return self


def canonical(value: Json) -> str:
    """The value as text that is equal for equal values alone: 1, 1.0 and True differ."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


EMPTY: FrozenDict = FrozenDict()


def freeze(value: object, path: str = "value") -> Json:
    """A read-only copy of a JSON-able value.

    Tuples become lists, as JSON would make them. Raises `NotSerialisable`, naming path and type,
    for anything JSON cannot say: other objects, NaN and infinities, keys that are not text, text
    with lone surrogates, and containers that hold themselves.
    """
    return _freeze(value, path, ())


def freeze_object(value: Mapping[str, object], path: str) -> FrozenDict:
    """`freeze` for a mapping; what is frozen already is returned as it is."""
    if type(value) is FrozenDict:
        return value
    if type(value) is dict and all(map(_is_plain_entry, value.items())):
        return FrozenDict(value)
    if not isinstance(value, Mapping):
        raise NotSerialisable(
            f"{path} must be a mapping with text keys, not {type(value).__name__}", path=path
        )
    return cast(FrozenDict, _freeze(value, path, ()))


def _is_plain_entry(entry: tuple[object, object]) -> bool:
    """True for what needs neither a copy nor a closer look: most arguments are of this kind."""
    key, value = entry
    if type(key) is not str or not key.isascii():
        return False
    kind = type(value)
    if kind is str:
        return bool(value.isascii())  # type: ignore[attr-defined]
    if kind is int:
        return INT_MIN <= value <= INT_MAX  # type: ignore[operator]
    return kind is bool or value is None


def _freeze(value: object, path: str, above: tuple[int, ...]) -> Json:
    if value is None or isinstance(value, bool):
        return value
    check = _SCALARS.get(type(value))
    if check is not None:
        return check(value, path)
    if type(value) in (FrozenDict, FrozenList):
        return cast(Json, value)
    if id(value) in above:
        raise NotSerialisable(f"{path} contains itself", path=path)
    if len(above) >= DEPTH_MAX:
        raise NotSerialisable(f"{path:.80} is nested deeper than {DEPTH_MAX} levels", path=path)
    inner = (*above, id(value))
    if type(value) is dict or isinstance(value, Mapping):
        return FrozenDict(
            {_key(k, path): _freeze(v, f"{path}.{k}", inner) for k, v in value.items()}
        )
    if isinstance(value, list | tuple):
        return FrozenList([_freeze(v, f"{path}[{i}]", inner) for i, v in enumerate(value)])
    raise NotSerialisable(
        f"{path} is a {type(value).__module__}.{type(value).__qualname__}, which JSON cannot hold: "
        "store text, numbers, lists and mappings, for example an id by which it can be found again",
        path=path,
    )


def _number(value: float, path: str) -> float:
    if math.isfinite(value):
        return value
    raise NotSerialisable(f"{path} is {value}, which JSON cannot hold: use null", path=path)


def _integer(value: int, path: str) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise NotSerialisable(
        f"{path} is an integer of more than 64 bits, which MessagePack cannot hold: "
        "store it as text",
        path=path,
    )


def _text(value: str, path: str) -> str:
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotSerialisable(
            f"{path} holds a lone surrogate, which UTF-8 cannot hold: "
            "decode with errors='replace' before storing it",
            path=path,
        ) from None
    return value


def _key(key: object, path: str) -> str:
    if isinstance(key, str):
        return _text(str(key), f"{path} key")
    raise NotSerialisable(
        f"{path} has the key {key!r} of type {type(key).__name__}; keys must be text", path=path
    )


_SCALARS: dict[type, Callable[[Any, str], Json]] = {str: _text, int: _integer, float: _number}
