"""An append-only sequence whose copies share storage.

A view is (shared list, length). Appending to the newest view extends the shared list in place,
O(1) at any length; appending to an older view copies once, so no view ever sees another's items.
A tuple would copy 10,000 messages on every turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar, get_args, overload

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

T = TypeVar("T", covariant=True)
_new = object.__new__


class History(Sequence[T], Generic[T]):
    """Reads like a tuple; `with_items` gives a longer one."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._length = len(self._items)

    def with_items(self, *items: T) -> History[T]:  # type: ignore[misc]  # only ever widens
        """This history and `items` after it; this one does not change."""
        shared = self._items
        if len(shared) != self._length:
            shared = shared[: self._length]
        shared.extend(items)
        view: History[T] = _new(History)
        view._items = shared
        view._length = len(shared)
        return view

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            items = self._items
            return tuple([items[i] for i in range(*index.indices(self._length))])
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"index {index} is outside a history of {self._length}")
        return self._items[position]

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    def __reversed__(self) -> Iterator[T]:
        return self.newest(0)

    def newest(self, start: int) -> Iterator[T]:
        """The items from position `start` on, newest first."""
        items, length = self._items, self._length
        hidden = len(items) - length
        return islice(reversed(items), hidden, max(hidden, hidden + length - start))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, History | tuple | list):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"History({list(self)!r})"

    def __reduce__(self) -> tuple[type[History[T]], tuple[list[T]]]:
        return History, (list(self),)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Checked and written as a list of its items."""
        items = handler.generate_schema(list[get_args(source)[0]])  # type: ignore[misc]
        return core_schema.no_info_wrap_validator_function(
            lambda value, inner: value if isinstance(value, History) else History(inner(value)),
            items,
            serialization=core_schema.plain_serializer_function_ser_schema(
                list, return_schema=items
            ),
        )
