"""What cannot go to another process is found, with the path to it, without Ray (F40)."""

from __future__ import annotations

import array
import asyncio
import contextvars
import functools
import io
import logging
import re
import socket
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, PrivateAttr

from tulip_actors import Tool, tool
from tulip_actors.host.travel import Part, obstacle
from tulip_actors.testing import ScriptedModel, text


class Client:
    """Something that connects."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def pay(self, n: int) -> int:
        """Pay n."""
        return n


class Slotted:
    """The same without a dict."""

    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = threading.RLock()


class Modelled(BaseModel):
    """The same as a pydantic model."""

    _client: Any = PrivateAttr(default_factory=Client)


class Lazy:
    """Something that leaves its lock behind when it travels."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {}


CLIENT = Client()
IN_CLIENT = "Client._lock is a _thread.lock"


def closing_over(value: object) -> Callable[[int], object]:
    """A function that another process cannot import."""

    def pay(n: int) -> object:
        return value

    return pay


def found(value: object) -> str | None:
    return obstacle([Part("tool 'pay'", closing_over(value))])


def counting() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (threading.Lock, "is a _thread.lock"),
        (Client, f"-> {IN_CLIENT}"),
        (Slotted, "-> Slotted.lock is a _thread.RLock"),
        (Modelled, f"-> Modelled._client -> {IN_CLIENT}"),
        (lambda: {"a": [Client()]}, f"-> ['a'] -> [0] -> {IN_CLIENT}"),
        (lambda: Client().pay, f"-> {IN_CLIENT}"),
        (
            lambda: functools.partial(closing_over, Client()),
            f"-> argument 0 of a partial -> {IN_CLIENT}",
        ),
        (lambda: closing_over(Client()), f"-> closure variable 'value' -> {IN_CLIENT}"),
        (lambda: Tool(Client().pay), f"-> {IN_CLIENT}"),
        (threading.local, "is a _thread._local"),
        (threading.Semaphore, "-> Semaphore._cond -> Condition._lock is a _thread.lock"),
        (counting, "is a generator"),
        (socket.socket, "is a socket.socket"),
        (lambda: open(__file__), "is a _io.TextIOWrapper"),  # noqa: SIM115
        (tempfile.TemporaryFile, "is a _io.BufferedRandom"),
        (logging.StreamHandler, "-> StreamHandler.lock is a _thread.RLock"),
        (lambda: contextvars.ContextVar("x"), "is a _contextvars.ContextVar"),
        (lambda: weakref.ref(CLIENT), "is a weakref.ReferenceType"),
    ],
)
def test_f40_what_cannot_travel_is_named_with_the_path_to_it(
    make: Callable[[], Any], told: str
) -> None:
    value = make()
    assert found(value) == f"tool 'pay': closure variable 'value' {told}"
    if hasattr(value, "close"):
        value.close()


async def test_f40_an_event_loop_is_named_as_what_it_is() -> None:
    loop = asyncio.get_running_loop()
    assert str(found(loop)).endswith("EventLoop")
    assert str(found(loop.create_future())).endswith("Future")


@pytest.mark.parametrize(
    "value",
    [
        *("text", 3, None, object(), ..., range(3), [1], {"a": {1}}, {}.keys(), len, [].append),
        *(Client, Lazy(), re.compile("x"), logging.getLogger("x"), array.array("d", [1])),
        *(sys.stdout, sys.stderr, io.StringIO("x"), sys, memoryview(b"x"), asyncio.Lock()),
        *(ScriptedModel([text("x")]), closing_over(3), property(len), contextvars.copy_context),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_can_travel_is_not_accused(value: object) -> None:
    assert found(value) is None


def test_f40_a_default_and_an_attribute_of_a_function_travel_with_it() -> None:
    def waits(n: int, m: int = 1, client: Client = CLIENT) -> None: ...

    def tagged(n: int, *, client: Client | None = None) -> None: ...

    tagged.owner = CLIENT  # type: ignore[attr-defined]
    assert obstacle([Part("x", waits)]) == f"x: default of 'client' -> {IN_CLIENT}"
    assert obstacle([Part("x", tagged)]) == f"x: attribute 'owner' -> {IN_CLIENT}"


def test_f40_a_global_travels_with_a_function_that_is_sent_by_value() -> None:
    def uses() -> object:
        return [CLIENT for _ in range(3)]

    assert obstacle([Part("x", uses)]) == f"x: global variable 'CLIENT' -> {IN_CLIENT}"


def test_f40_a_class_that_is_sent_by_value_travels_with_all_it_has() -> None:
    class Guard:
        client = CLIENT

    class Careful(Guard):
        pass

    told = obstacle([Part("hook", Careful())])
    assert told == ("hook: argument 0 of Careful -> base Guard -> Guard.client -> " + IN_CLIENT)


def test_a_function_that_can_be_imported_takes_nothing_along() -> None:
    assert obstacle([Part("x", counting), Part("y", Client.pay), Part("z", imported)]) is None


@tool
def imported(n: int) -> object:
    """A tool that another process imports."""
    return CLIENT


def test_a_variable_that_has_no_value_yet_is_no_trouble() -> None:
    def early() -> object:
        return late

    assert obstacle([Part("x", early)]) is None
    late = 1


def test_what_holds_itself_and_what_is_huge_end_the_walk() -> None:
    endless: list[Any] = [[object() for _ in range(100)] for _ in range(10_000)]
    endless.append(endless)
    assert obstacle([Part("x", endless)]) is None
