"""The append-only sequence."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from tulip_actors.core.history import History


class Counted:
    """An item that counts how often it is copied by reference into something (via iteration)."""

    touched = 0

    def __eq__(self, other: object) -> bool:
        type(self).touched += 1
        return self is other

    def __hash__(self) -> int:
        type(self).touched += 1
        return 0


def test_a_history_is_a_sequence_like_a_tuple() -> None:
    history = History([1, 2, 3])
    assert isinstance(history, Sequence)
    assert (len(history), history[0], history[-1], list(history)) == (3, 1, 3, [1, 2, 3])
    assert (2 in history, history.index(3), history.count(1)) == (True, 2, 1)
    assert list(reversed(history)) == [3, 2, 1]
    assert history == (1, 2, 3)
    assert history == [1, 2, 3]
    assert history != (1, 2)
    assert history != "123"


SLICES = [
    slice(None),
    slice(1, 3),
    slice(-2, None),
    slice(None, None, -1),
    slice(5, 9),
    slice(0, 4, 2),
]


@pytest.mark.parametrize("where", SLICES)
def test_a_slice_is_the_tuple_it_would_be(where: slice) -> None:
    items: Sequence[int] = (1, 2, 3, 4)
    assert History(items)[where] == items[where]


@pytest.mark.parametrize("index", [3, -4, 100])
def test_an_index_outside_is_an_error_even_where_the_shared_list_goes_on(index: int) -> None:
    history = History([1, 2, 3])
    history.with_items(4, 5)
    with pytest.raises(IndexError):
        history[index]


def test_appending_leaves_the_old_history_as_it_was() -> None:
    one = History([1])
    two = one.with_items(2)
    assert (list(one), list(two)) == ([1], [1, 2])


def test_forks_never_see_each_others_items() -> None:
    trunk: History[object] = History([1])
    left = trunk.with_items("l")
    right = trunk.with_items("r")
    left_on = left.with_items("l2")
    right_on = right.with_items("r2")
    assert [list(each) for each in (trunk, left, right, left_on, right_on)] == [
        [1],
        [1, "l"],
        [1, "r"],
        [1, "l", "l2"],
        [1, "r", "r2"],
    ]


def test_an_iterator_ends_where_its_history_ended() -> None:
    history = History([1, 2])
    iterator = iter(history)
    next(iterator)
    history.with_items(3)
    assert list(iterator) == [2]


def test_the_list_it_was_made_of_can_change_without_it() -> None:
    items = [1]
    history = History(items)
    items.append(2)
    assert list(history) == [1]


def test_c2_appending_to_the_newest_copies_nothing_at_any_length() -> None:
    history: History[int] = History(range(10_000))
    longer = history.with_items(1)
    assert longer._items is history._items, "storage is shared"
    assert longer.with_items(2)._items is history._items


def test_c2_a_fork_copies_once_and_then_shares() -> None:
    history = History(range(100))
    history.with_items(1)
    fork = history.with_items(2)
    assert fork._items is not history._items
    assert fork.with_items(3)._items is fork._items


def test_appending_does_not_look_at_the_items() -> None:
    history: History[Counted] = History([Counted() for _ in range(100)])
    Counted.touched = 0
    history.with_items(Counted())
    assert Counted.touched == 0


def test_adding_nothing_gives_an_equal_history() -> None:
    history = History([1])
    assert history.with_items() == history


def test_it_pickles_as_its_own_items_only() -> None:
    history = History(["a"])
    history.with_items("secret of another view")
    packed = pickle.dumps(history)
    assert b"secret" not in packed
    assert pickle.loads(packed) == history
    assert copy.deepcopy(history) == history


def test_equal_histories_have_equal_hashes() -> None:
    assert hash(History([1]).with_items(2)) == hash((1, 2))


@pytest.mark.parametrize("change", ["append", "extend", "__setitem__", "sort", "pop"])
def test_it_has_no_mutators(change: str) -> None:
    assert not hasattr(History([1]), change)


def test_pydantic_checks_it_as_a_list_of_its_items() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(History[int])
    assert adapter.validate_python([1, "2"]) == History([1, 2])
    assert adapter.dump_json(History([1, 2])) == b"[1,2]"
    with pytest.raises(ValidationError):
        adapter.validate_python(["x"])
