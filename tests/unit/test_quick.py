"""`quick_init` changes what an `__init__` costs, and nothing else."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from tulip_actors.core.quick import quick_init


@quick_init
@dataclass(frozen=True, slots=True)
class Quick:
    name: str
    size: int = 1
    parts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size")


@dataclass(frozen=True, slots=True)
class Plain:
    name: str
    size: int = 1
    parts: list[int] = field(default_factory=list)


class Longer(Quick):
    """With a dict, and so with another layout."""


def test_fields_and_defaults() -> None:
    assert (Quick("a").name, Quick("a").size, Quick("a").parts) == ("a", 1, [])
    assert Quick("a", parts=[2]).parts == [2]
    assert Quick("a").parts is not Quick("a").parts


def test_it_stays_frozen_and_of_its_class() -> None:
    made = Quick("a")
    assert type(made) is Quick
    with pytest.raises(FrozenInstanceError):
        made.size = 2  # type: ignore[misc]


def test_equality_copies_and_pickles() -> None:
    made = Quick("a", 2, [3])
    assert made == Quick("a", 2, [3]) != Quick("a", 3, [3])
    assert replace(made, size=4) == Quick("a", 4, [3])
    assert pickle.loads(pickle.dumps(made)) == made
    assert repr(made) == "Quick(name='a', size=2, parts=[3])"


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="name"):
        Quick()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        Quick("a", colour=1)  # type: ignore[call-arg]


def test_post_init_runs() -> None:
    with pytest.raises(ValueError, match="size"):
        Quick("a", -1)


def test_a_subclass_is_one() -> None:
    made = Longer("a", 2)
    assert type(made) is Longer
    assert (made.name, made.size, made.parts) == ("a", 2, [])


def test_the_signature_is_that_of_a_dataclass() -> None:
    assert list(inspect.signature(Quick).parameters) == list(inspect.signature(Plain).parameters)
