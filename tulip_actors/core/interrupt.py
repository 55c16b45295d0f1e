"""Asking a human from inside a tool.

`interrupt()` leaves the body; the run ends its segment as "interrupted". When the answer is there
the body runs again from its start, and the same `interrupt()` returns it. Several in one body
replay in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from tulip_actors.core.frozen import EMPTY, Json, JsonObject, clean_text, freeze_object
from tulip_actors.errors import ConfigError


@dataclass(frozen=True, slots=True)
class InterruptRequest:
    """What a body asks."""

    question: str
    options: tuple[str, ...] | None = None
    metadata: JsonObject = EMPTY


class Interrupted(BaseException):
    """Leaves a body that asks. No Exception, so that `except Exception` in a body lets it pass."""

    def __init__(self, request: InterruptRequest) -> None:
        super().__init__(request.question)
        self.request = request


_ANSWERS: ContextVar[Iterator[Json] | None] = ContextVar("tulip_answers", default=None)
_NONE_LEFT = object()


def interrupt(
    question: str,
    options: Sequence[str] | None = None,
    metadata: Mapping[str, object] | None = None,
) -> Json:
    """Ask a human; returns the answer once there is one.

    The first time it does not return: the run pauses, and `agent.resume(answer)` goes on. What
    stands before it in the body runs again then. Raises `ConfigError` outside of a tool.
    """
    answers = _ANSWERS.get()
    if answers is None:
        raise ConfigError("interrupt() asks from inside a tool that a model called; not here")
    answer = next(answers, _NONE_LEFT)
    if answer is not _NONE_LEFT:
        return answer  # type: ignore[return-value]  # the sentinel is excluded
    raise Interrupted(
        InterruptRequest(
            clean_text(question),
            None if options is None else tuple(map(clean_text, options)),
            freeze_object(metadata or EMPTY, "metadata of interrupt()"),
        )
    )


class answering:  # noqa: N801  # used like a function: `with answering(...)`
    """Let `interrupt()` in this context return these answers, in order."""

    __slots__ = ("_answers", "_token")

    def __init__(self, answers: Iterable[Json]) -> None:
        self._answers = answers

    def __enter__(self) -> None:
        self._token = _ANSWERS.set(iter(self._answers))

    def __exit__(self, *_: object) -> None:
        _ANSWERS.reset(self._token)
