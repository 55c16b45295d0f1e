"""From the pieces of an answer to the answer.

What may live here: the one accumulator, and the reading of what models write into arguments and
usage. An answer that arrives whole goes through here as a stream of one chunk, so streamed and
whole answers cannot differ.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tulip_actors.core.events import ModelChunkEvent, ToolCallDelta
from tulip_actors.core.frozen import EMPTY, FrozenDict, clean_text, freeze_object
from tulip_actors.core.messages import Message, ToolCall
from tulip_actors.core.runs import ModelResponse
from tulip_actors.errors import ModelBadResponse, NotSerialisable

_MAX_ENCODINGS = 3
"""How often a text in a text in a text is opened before it is called malformed."""

_USAGE_NAMES = {
    "prompt_tokens": "prompt_tokens",
    "input_tokens": "prompt_tokens",
    "completion_tokens": "completion_tokens",
    "output_tokens": "completion_tokens",
    "total_tokens": "total_tokens",
}
_NORMAL_NAMES = frozenset(_USAGE_NAMES.values())


async def accumulate(
    chunks: AsyncIterable[ModelChunkEvent] | Iterable[ModelChunkEvent],
) -> ModelResponse:
    """The response that the chunks of one answer make."""
    accumulator = Accumulator()
    if isinstance(chunks, AsyncIterable):
        async for chunk in chunks:
            accumulator.add(chunk)
    else:
        for chunk in chunks:
            accumulator.add(chunk)
    return accumulator.response()


def as_response(answer: object) -> ModelResponse:
    """What a model's `complete` returned, with its usage under our names.

    A bare Message is taken too. Raises `ModelBadResponse` for anything else.
    """
    if isinstance(answer, Message):
        return ModelResponse(answer)
    if not isinstance(answer, ModelResponse):
        raise ModelBadResponse(
            f"the model's complete() returned {type(answer).__name__}; return a ModelResponse"
        )
    if answer.usage is None or _is_normal(answer.usage):
        return answer
    counts = normalise_usage(answer.usage)
    return replace(answer, usage=_complete_usage(counts) if counts else None)


def _is_normal(usage: Mapping[str, int]) -> bool:
    """Whether `_complete_usage` made it, or could have: it is most often so."""
    return (
        type(usage) is FrozenDict
        and usage.keys() == _NORMAL_NAMES
        and {*map(type, usage.values())} == {int}
        and min(usage.values()) > 0
    )


@dataclass(slots=True)
class _OpenCall:
    """A tool call of which more pieces may come."""

    index: int | None
    id: str | None = None
    name: str | None = None
    pieces: list[str] = field(default_factory=list)

    def is_whole(self) -> bool:
        """Whether the arguments so far are a finished JSON object."""
        # The last character is looked at first, so that long arguments are not parsed per piece.
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        return parse_arguments("".join(self.pieces))[1] is None


class Accumulator:
    """Collects chunks, one `add` each; `response()` may be asked for at any time."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_OpenCall] = []
        self._usage: dict[str, int] = {}
        self._stop_reason: str | None = None

    def add(self, chunk: ModelChunkEvent) -> None:
        """Take the next chunk."""
        if chunk.content:
            self._content.append(chunk.content)
        if chunk.reasoning:
            self._reasoning.append(chunk.reasoning)
        for delta in chunk.tool_calls:
            self._add_delta(delta)
        # Counts that come more than once are running totals: the latest of each is right.
        self._usage.update(normalise_usage(chunk.usage) or {})
        if chunk.stop_reason:
            self._stop_reason = chunk.stop_reason

    def response(self) -> ModelResponse:
        """What the chunks so far amount to."""
        message = Message.assistant(
            clean_text("".join(self._content)),
            tuple(_close(call, slot) for slot, call in enumerate(self._nonempty_calls())),
            clean_text("".join(self._reasoning)) or None,
        )
        usage = _complete_usage(self._usage) if self._usage else None
        return ModelResponse(message, usage, self._stop_reason)

    def _nonempty_calls(self) -> list[_OpenCall]:
        return [call for call in self._calls if call.name or call.id or "".join(call.pieces)]

    def _add_delta(self, delta: ToolCallDelta) -> None:
        call = self._call_of(delta)
        if call is None:
            call = _OpenCall(delta.index)
            self._calls.append(call)
        call.id = call.id or delta.id
        call.name = call.name or delta.name
        if delta.arguments:
            call.pieces.append(delta.arguments)

    def _call_of(self, delta: ToolCallDelta) -> _OpenCall | None:
        """The open call that a delta continues, None when it opens one.

        Servers differ: some leave out the index, some give every call the same one, some repeat
        id and name in every piece. So an id is believed first, then the index, then the order.
        """
        candidate = self._with_id(delta) or self._with_index(delta)
        if candidate is None:
            opens = bool(delta.id or delta.name) and delta.index is not None
            candidate = None if opens or not self._calls else self._calls[-1]
        if candidate is None or _begins_another(candidate, delta):
            return None
        return candidate

    def _with_id(self, delta: ToolCallDelta) -> _OpenCall | None:
        if not delta.id:
            return None
        for call in reversed(self._calls):
            same_index = None in (call.index, delta.index) or call.index == delta.index
            if call.id == delta.id and same_index:
                return call
        return None

    def _with_index(self, delta: ToolCallDelta) -> _OpenCall | None:
        if delta.index is None:
            return None
        return next((c for c in reversed(self._calls) if c.index == delta.index), None)


def _begins_another(call: _OpenCall, delta: ToolCallDelta) -> bool:
    """Whether the delta is the start of a new call rather than a piece of this one."""
    if delta.id and call.id:
        # The same id again is the same call, unless it is given to another tool.
        return delta.id != call.id or bool(delta.name and call.name and delta.name != call.name)
    if not delta.name or not call.name:
        return bool(delta.id and not call.id and call.pieces)
    # Without ids: a repeated name is a new call only once the arguments are finished.
    return delta.name != call.name or (bool(delta.arguments) and call.is_whole())


def _close(call: _OpenCall, slot: int) -> ToolCall:
    arguments, malformed = parse_arguments("".join(call.pieces))
    # Results are told apart by id, so a call without one gets one that is unique in its turn.
    call_id = clean_text(call.id) if call.id else f"call_{slot}"
    return ToolCall(call_id, clean_text(call.name or ""), arguments, malformed)


def parse_arguments(raw: object) -> tuple[FrozenDict, str | None]:
    """`(arguments, malformed)` of what a model wrote as the arguments of a call.

    Nothing, "", "null" and "[]" are no arguments; JSON inside a JSON text is opened; an object is
    taken as it is. Anything else gives no arguments and its own text as `malformed`.
    """
    value = raw
    try:
        for _ in range(_MAX_ENCODINGS):
            if not isinstance(value, str):
                break
            value = json.loads(value, parse_int=_integer) if value.strip() else None
        if value is None or value == []:
            return EMPTY, None
        if isinstance(value, Mapping):
            return freeze_object(value, "arguments"), None
    except (ValueError, RecursionError, NotSerialisable):
        # Also numbers out of range and half characters: a history could not hold them.
        pass
    return EMPTY, clean_text(raw if isinstance(raw, str) else repr(raw))


def _integer(digits: str) -> int:
    value = int(digits)
    if not -(2**63) <= value < 2**64:
        raise ValueError("no record or event could hold it")
    return value


def normalise_usage(raw: object) -> dict[str, int] | None:
    """The token counts of a provider's usage object under the names the package uses.

    Only `prompt_tokens`, `completion_tokens` and `total_tokens` are kept, and only those that were
    reported; None when there was none.
    """
    if not isinstance(raw, Mapping):
        return None
    usage: dict[str, int] = {}
    for name, value in raw.items():
        known = _USAGE_NAMES.get(name)
        if known and type(value) is not bool and isinstance(value, (int, float)):
            usage[known] = max(int(value), usage.get(known, 0))
    return usage or None


def _complete_usage(usage: Mapping[str, int]) -> FrozenDict:
    prompt, completion = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    return FrozenDict(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=usage.get("total_tokens") or prompt + completion,
    )
