"""Models without a server: `ScriptedModel` plays a list of turns, `FunctionModel` asks a function.

    ScriptedModel([tool_call("add", a=1, b=2), text("three")])

Both record what they were asked (`requests`); of an agent's double that is read with
`await agent.model_trace()`, since the agent's process has its own copy.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tulip_actors.core.calls import ToolSpec
from tulip_actors.core.current import current_context, current_run
from tulip_actors.core.events import ModelChunkEvent, ToolCallDelta
from tulip_actors.core.frozen import EMPTY, Json, freeze_object
from tulip_actors.core.messages import Message, ToolCall
from tulip_actors.core.runs import ModelResponse
from tulip_actors.errors import ScriptExhausted

CHUNK_CHARACTERS = 8
"""Length of the pieces in which the doubles stream their text."""


def text(content: str) -> Message:
    """A turn in which the model speaks and calls nothing."""
    return Message.assistant(content)


def tool_call(
    name: str,
    arguments: Mapping[str, Json] | None = None,
    /,
    *,
    call_id: str | None = None,
    **kw: Json,
) -> Message:
    """A turn with one tool call; arguments as a mapping, as keywords, or both."""
    merged = freeze_object({**(arguments or EMPTY), **kw}, f"arguments of {name}")
    return Message.assistant("", (ToolCall(call_id or f"call_{name}", name, merged),))


def tool_calls(*calls: Message | tuple[str, Mapping[str, Json]]) -> Message:
    """A turn with several calls: `(name, arguments)` pairs or `tool_call(...)`.

    Calls without an id of their own are numbered, as providers do.
    """
    made: list[ToolCall] = []
    for call in calls:
        turn = tool_call(call[0], call[1]) if isinstance(call, tuple) else call
        for one in turn.tool_calls:
            call_id = f"{one.id}_{len(made)}" if one.id == f"call_{one.name}" else one.id
            made.append(ToolCall(call_id, one.name, one.arguments, one.malformed))
    return Message.assistant("", tuple(made))


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a double was asked."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    settings: Mapping[str, object]
    run_id: str | None


Turn: TypeAlias = "Message | ModelResponse | str | BaseException"
"""One scripted turn: a message, a whole response, plain text, or an exception to raise."""


class RecordingModel:
    """Base of the doubles: recording, and streaming what `complete` answers."""

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> ModelResponse:
        """The next answer. See `ChatModel`."""
        run = current_run()
        self.requests.append(
            ModelRequest(tuple(messages), tuple(tools or ()), settings, run.run_id if run else None)
        )
        return await self._answer(messages, tools)

    async def _answer(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None
    ) -> ModelResponse:
        raise TypeError("a double says what it answers")

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> AsyncGenerator[ModelChunkEvent, None]:
        """The same answer in pieces of a few characters; the last chunk has `done`."""
        response = await self.complete(messages, tools, **settings)
        message = response.message
        for start in range(0, len(message.content), CHUNK_CHARACTERS):
            yield ModelChunkEvent(content=message.content[start : start + CHUNK_CHARACTERS])
        for index, call in enumerate(message.tool_calls):
            yield ModelChunkEvent(tool_calls=(_delta(index, call),))
        usage = dict(response.usage) if response.usage is not None else None
        yield ModelChunkEvent(done=True, usage=usage, stop_reason=response.stop_reason)


def _delta(index: int, call: ToolCall) -> ToolCallDelta:
    from pydantic_core import to_json

    arguments = call.malformed or to_json(call.arguments).decode()
    return ToolCallDelta(index=index, id=call.id, name=call.name, arguments=arguments)


class ScriptedModel(RecordingModel):
    """Plays `turns` in order, from the start for each run.

    The position is the number of model answers the run has recorded, so a run that was restarted
    goes on where it was. Outside a run, and with `shared=True`, the instance counts. With
    `repeat_last` the last turn is played for ever; without it the script raises `ScriptExhausted`.
    """

    def __init__(
        self, turns: Sequence[Turn], repeat_last: bool = False, shared: bool = False
    ) -> None:
        super().__init__()
        self.turns = list(turns)
        self.repeat_last = repeat_last
        self.shared = shared
        self._count = 0

    async def _answer(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None
    ) -> ModelResponse:
        position = self._position()
        if self.repeat_last and self.turns:
            position = min(position, len(self.turns) - 1)
        if position >= len(self.turns):
            raise ScriptExhausted(
                f"the script has {len(self.turns)} turns and was asked for turn {position + 1}; "
                "add a turn, or pass repeat_last=True"
            )
        return as_response(self.turns[position])

    def _position(self) -> int:
        run = current_context()
        if run is not None and not self.shared:
            return run.responses_recorded
        self._count += 1
        return self._count - 1


class FunctionModel(RecordingModel):
    """Answers with what `fn(messages, tools)` returns, plain or async.

    The answer must follow from `messages`: what `fn` closes over is the agent process's own copy.
    """

    def __init__(
        self,
        fn: Callable[[Sequence[Message], Sequence[ToolSpec] | None], Turn | Awaitable[Turn]],
    ) -> None:
        super().__init__()
        self.fn = fn

    async def _answer(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None
    ) -> ModelResponse:
        answer = self.fn(messages, tools)
        return as_response(await answer if inspect.isawaitable(answer) else answer)


def as_response(turn: Turn) -> ModelResponse:
    """A turn as the model port's answer. Raises a turn that is an exception."""
    if isinstance(turn, BaseException):
        raise turn
    if isinstance(turn, ModelResponse):
        return turn
    return ModelResponse(text(turn) if isinstance(turn, str) else turn)
