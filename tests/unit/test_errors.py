"""C39: the tree, its codes, and that every class survives the way between processes."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest

from tulip_actors import errors
from tulip_actors.errors import (
    ClusterUnreachable,
    ConfigError,
    MissingExtra,
    ModelError,
    ModelThrottled,
    NotSerialisable,
    SubscriberLagged,
    TulipError,
)

CODES = {
    "TulipError": "tulip_error",
    "BusRestarted": "bus_restarted",
    "ThreadForgotten": "thread_forgotten",
    "ConfigError": "config",
    "ModelNotFound": "model_not_found",
    "MissingExtra": "missing_extra",
    "ModelError": "model",
    "ModelAuthError": "model_auth",
    "ModelThrottled": "model_throttled",
    "ModelInvalidRequest": "model_invalid_request",
    "ModelUnavailable": "model_unavailable",
    "ModelBadResponse": "model_bad_response",
    "ScriptExhausted": "script_exhausted",
    "ToolError": "tool",
    "ToolNotFound": "tool_not_found",
    "ToolArgumentsInvalid": "tool_arguments_invalid",
    "ToolVetoed": "tool_vetoed",
    "ToolLost": "tool_lost",
    "RunError": "run",
    "RunNotFound": "run_not_found",
    "RunCancelled": "run_cancelled",
    "RunLost": "run_lost",
    "NotSerialisable": "not_serialisable",
    "InterruptNotPending": "interrupt_not_pending",
    "ToolChanged": "tool_changed",
    "StoreUnavailable": "store_unavailable",
    "StaleEpoch": "stale_epoch",
    "ThreadBusy": "thread_busy",
    "ClusterError": "cluster",
    "ClusterUnreachable": "cluster_unreachable",
    "VersionMismatch": "version_mismatch",
    "ActorLost": "actor_lost",
    "SubscriberLagged": "subscriber_lagged",
    "RemoteError": "remote",
}
"""What programs compare with. A line here never changes; new classes add lines."""

VALUES: dict[str, Any] = {
    "status": 429,
    "retry_after_s": 1.5,
    "run_id": "run_1",
    "path": "metadata.a",
    "missed": 3,
    "cursor": "abc",
}


def subclasses(cls: type[TulipError]) -> list[type[TulipError]]:
    """A class and all below it, as the module defines them."""
    return [cls, *(one for sub in cls.__subclasses__() for one in subclasses(sub))]


TREE = [cls for cls in subclasses(TulipError) if cls.__module__ == errors.__name__]


def full(cls: type[TulipError]) -> TulipError:
    """An error with every value its class takes."""
    import inspect

    names = set(inspect.signature(cls.__init__).parameters) & set(VALUES)
    return cls("do this: ü", **{name: VALUES[name] for name in names})


def test_c39_the_codes_are_stable() -> None:
    assert {cls.__name__: cls.code for cls in TREE} == CODES


def test_c39_the_codes_are_unique() -> None:
    assert len(set(CODES.values())) == len(CODES)


@pytest.mark.parametrize("cls", TREE)
def test_c39_every_class_survives_pickle_with_its_values(cls: type[TulipError]) -> None:
    error = full(cls)
    error.add_note("a note")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert (str(again), again.message, again.args) == (str(error), error.message, error.args)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("cls", TREE)
def test_c39_every_class_can_be_copied(cls: type[TulipError]) -> None:
    error = full(cls)
    assert vars(copy.copy(error)) == vars(error)


@pytest.mark.parametrize("cls", TREE)
def test_c39_the_message_is_the_only_argument_that_is_needed(cls: type[TulipError]) -> None:
    assert cls("text").message == "text"
    assert str(cls("text")) == "text"
    assert cls().message == ""


@pytest.mark.parametrize("cls", TREE)
def test_values_belong_to_the_instance_not_to_the_class(cls: type[TulipError]) -> None:
    assert not [name for name in VALUES if name in vars(cls)]


@pytest.mark.parametrize("cls", TREE)
def test_a_subclass_of_ones_own_keeps_the_values(cls: type[TulipError]) -> None:
    assert vars(full(type("Mine", (cls,), {}))) == vars(full(cls))


def test_values_are_none_until_they_are_known() -> None:
    assert ModelError("x").status is None
    assert SubscriberLagged("x").missed is None


def test_errors_are_caught_as_what_they_also_are() -> None:
    assert issubclass(ConfigError, ValueError)
    assert issubclass(MissingExtra, ImportError)
    assert issubclass(NotSerialisable, TypeError)
    assert issubclass(ClusterUnreachable, ConnectionError)
    assert isinstance(ModelThrottled("x", retry_after_s=1), ModelError)


def drawn() -> dict[str, str | None]:
    """The tree in the module's docstring: class -> parent."""
    parents: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^(    [│├└─ ]*)([A-Z]\w+)", line)
        if not found:
            continue
        depth = len(found[1])
        while above and above[-1][0] >= depth:
            above.pop()
        parents[found[2]] = above[-1][1] if above else None
        above.append((depth, found[2]))
    return parents


def test_the_drawing_at_the_top_is_the_tree() -> None:
    real = {cls.__name__: None if cls is TulipError else cls.__bases__[0].__name__ for cls in TREE}
    assert drawn() == real


def test_every_error_is_public() -> None:
    import tulip_actors

    assert {cls.__name__ for cls in TREE} <= set(tulip_actors.__all__)


@pytest.mark.parametrize("cls", TREE)
def test_every_error_says_what_it_is(cls: type[TulipError]) -> None:
    assert cls.__doc__
    assert cls.__doc__ != cls.__bases__[0].__doc__
