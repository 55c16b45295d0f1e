"""Read-only JSON values."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any

import msgpack
import pytest

from tulip_actors.core.frozen import EMPTY, FrozenDict, FrozenList, freeze, freeze_object
from tulip_actors.errors import NotSerialisable

NESTED = {"text": "ü", "list": [1, 2.5, None, True], "map": {"a": {"b": []}}}


def test_a_frozen_value_equals_what_it_was_made_of() -> None:
    assert freeze(NESTED) == NESTED


def test_a_frozen_value_is_a_copy() -> None:
    original = {"list": [1]}
    frozen = freeze(original)
    original["list"].append(2)
    assert frozen == {"list": [1]}


def test_tuples_become_lists_as_json_would_make_them() -> None:
    assert freeze({"t": (1, (2,))}) == {"t": [1, [2]]}


DICT_CHANGES: list[Callable[[Any], object]] = [
    lambda d: d.__setitem__("a", 1),
    lambda d: d.__delitem__("list"),
    lambda d: d.update(a=1),
    lambda d: d.pop("list"),
    lambda d: d.popitem(),
    lambda d: d.setdefault("a", 1),
    lambda d: d.clear(),
    lambda d: d.__ior__({"a": 1}),
]
LIST_CHANGES: list[Callable[[Any], object]] = [
    lambda v: v.__setitem__(0, 1),
    lambda v: v.__setitem__(slice(None), []),
    lambda v: v.__delitem__(0),
    lambda v: v.append(1),
    lambda v: v.extend([1]),
    lambda v: v.insert(0, 1),
    lambda v: v.pop(),
    lambda v: v.remove(1),
    lambda v: v.clear(),
    lambda v: v.sort(),
    lambda v: v.reverse(),
    lambda v: v.__iadd__([1]),
    lambda v: v.__imul__(2),
]


@pytest.mark.parametrize("change", DICT_CHANGES)
def test_no_method_changes_a_frozen_mapping(change: Callable[[Any], object]) -> None:
    frozen: Any = freeze(NESTED)
    with pytest.raises(TypeError, match="FrozenDict is read-only"):
        change(frozen)
    assert frozen == NESTED


@pytest.mark.parametrize("change", LIST_CHANGES)
def test_no_method_changes_a_frozen_list(change: Callable[[Any], object]) -> None:
    frozen: Any = freeze([1, 2])
    with pytest.raises(TypeError, match="FrozenList is read-only"):
        change(frozen)
    assert frozen == [1, 2]


def test_every_mutator_of_dict_and_list_is_closed() -> None:
    readers = {"copy", "fromkeys", "get", "items", "keys", "values", "count", "index"}
    for plain, frozen in ((dict, FrozenDict), (list, FrozenList)):
        for name in vars(plain):
            if not name.startswith("_") and name not in readers:
                assert getattr(frozen, name) is not getattr(plain, name), name


def test_inner_containers_are_read_only_too() -> None:
    frozen: Any = freeze(NESTED)
    with pytest.raises(TypeError, match="read-only"):
        frozen["map"]["a"]["b"].append(1)


def pickled(value: Any) -> Any:
    """The value after a trip through pickle."""
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("travel", [copy.copy, copy.deepcopy, pickled])
def test_a_copy_is_equal_and_read_only_still(travel: Callable[[Any], Any]) -> None:
    frozen = travel(freeze(NESTED))
    assert frozen == NESTED
    assert type(frozen) is FrozenDict
    assert type(frozen["list"]) is FrozenList


def test_json_and_messagepack_take_frozen_values_as_they_are() -> None:
    frozen = freeze(NESTED)
    assert json.loads(json.dumps(frozen)) == NESTED
    assert msgpack.unpackb(msgpack.packb(frozen)) == NESTED


def test_equal_frozen_values_have_equal_hashes() -> None:
    assert hash(freeze({"a": [1], "b": 2})) == hash(freeze({"b": 2, "a": [1]}))


def test_what_is_frozen_already_is_not_copied() -> None:
    frozen = freeze_object(NESTED, "x")
    assert freeze_object(frozen, "x") is frozen
    assert freeze(frozen) is frozen
    assert freeze_object({}, "x") == EMPTY


class Level(IntEnum):
    """An int that JSON would silently turn into another type."""

    LOW = 1


SELF_HOLDING: list[Any] = []
SELF_HOLDING.append({"again": SELF_HOLDING})


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        ({"a": [1, {"b": object()}]}, "value.a[1].b", "a builtins.object"),
        ({"when": datetime(2026, 1, 1, tzinfo=UTC)}, "value.when", "a datetime.datetime"),
        ({"price": Decimal(1)}, "value.price", "a decimal.Decimal"),
        ({"level": Level.LOW}, "value.level", "Level"),
        ({"data": b"x"}, "value.data", "a builtins.bytes"),
        ({"some": {1, 2}}, "value.some", "a builtins.set"),
        ({"n": float("nan")}, "value.n", "nan"),
        ({"n": float("-inf")}, "value.n", "-inf"),
        ({"a": {1: "x"}}, "value.a", "key 1 of type int"),
        ({"t": "\ud800"}, "value.t", "lone surrogate"),
        ({"\udfff": 1}, "value key", "lone surrogate"),
        ({"l": SELF_HOLDING}, "value.l[0].again", "contains itself"),
        ({"n": 2**64}, "value.n", "64 bits"),
    ],
)
def test_what_json_cannot_say_is_refused_with_path_and_type(
    value: object, path: str, problem: str
) -> None:
    with pytest.raises(NotSerialisable) as refused:
        freeze(value)
    assert refused.value.path == path
    assert path in refused.value.message
    assert problem in refused.value.message


def test_an_object_that_must_be_a_mapping_is_named() -> None:
    with pytest.raises(NotSerialisable, match="metadata must be a mapping"):
        freeze_object([1], "metadata")  # type: ignore[arg-type]


def test_the_same_container_twice_is_no_cycle() -> None:
    shared = [1]
    assert freeze([shared, shared]) == [[1], [1]]


@pytest.mark.parametrize("depth", [50, 500, 900, 5_000])
def test_a_nested_value_is_refused_by_name_unless_it_can_be_stored(depth: int) -> None:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    try:
        frozen = freeze(value)
    except NotSerialisable as refused:
        message = refused.message
    else:
        message = "nested"
        assert msgpack.unpackb(msgpack.packb(frozen)) == frozen
    assert "nested" in message
    assert depth > 50 or message == "nested", "fifty levels are taken"
