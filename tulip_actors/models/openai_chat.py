"""The OpenAI chat completions wire format, as many servers speak it.

What may live here: `OpenAIChatModel`, messages and tools -> request body, answers -> chunks.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tulip_actors.core.calls import ToolSpec
from tulip_actors.core.events import ModelChunkEvent, ToolCallDelta
from tulip_actors.core.frozen import FrozenDict, clean_text, freeze_object
from tulip_actors.core.messages import Message, Role, ToolCall
from tulip_actors.core.runs import ModelResponse
from tulip_actors.errors import (
    ConfigError,
    ModelAuthError,
    ModelBadResponse,
    ModelUnavailable,
)
from tulip_actors.models import transport
from tulip_actors.models.accumulate import accumulate, normalise_usage
from tulip_actors.models.failures import (
    Endpoint,
    refusal_of_object,
    refusal_of_text,
    shown_url,
    to_model_error,
)
from tulip_actors.models.history import valid_history

_DEFAULT_BASE_URL = "https://api.openai.com/v1"
_OURS = frozenset({"messages", "stream", "tools"})
_MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True, init=False, repr=False)
class OpenAIChatModel:
    """A model behind an OpenAI-style `/chat/completions`.

    It is plain data and goes to other processes by pickle. It never holds the key, only the name
    of the environment variable that does, which is read in the process that makes the call.
    `timeout_s` is the longest silence of the server that is waited for.
    """

    model: str
    base_url: str
    api_key_env: str | None
    timeout_s: float
    settings: FrozenDict = field(hash=False)

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key_env: str | None = "OPENAI_API_KEY",
        timeout_s: float = 60,
        **settings: object,
    ) -> None:
        """Take what is sent with every call, such as `temperature=0`; None means not sent.

        Without `base_url` the environment's OPENAI_BASE_URL counts, as it is here and now, and
        then OpenAI itself. `api_key_env=None` sends no key. Raises `ConfigError`.
        """
        url = base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_BASE_URL
        _check_url(url)
        if not model:
            raise ConfigError("a model needs its name, for example OpenAIChatModel('gpt-4o-mini')")
        if timeout_s <= 0:
            raise ConfigError(f"timeout_s must be a positive number of seconds, not {timeout_s}")
        for name, value in (
            ("model", model),
            ("base_url", url),
            ("api_key_env", api_key_env),
            ("timeout_s", float(timeout_s)),
            ("settings", _checked(settings)),
        ):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        # Settings by name only: their values are the user's, and a URL may hold a password.
        return (
            f"OpenAIChatModel({self.model!r}, base_url={shown_url(self.base_url)!r}, "
            f"api_key_env={self.api_key_env!r}, settings={sorted(self.settings)})"
        )

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> ModelResponse:
        """The model's answer. `settings` go before those of the model. Raises a `ModelError`."""
        at = self._endpoint()
        payload = await transport.post_json(at, self._body(messages, tools, settings))
        reader = _AnswerReader(at)
        chunk = reader.read(payload)
        if not reader.answered:
            raise ModelBadResponse(f"{at} answered without any choice: try again")
        return await accumulate((*([chunk] if chunk else []), reader.last()))

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None = None,
        **settings: object,
    ) -> AsyncGenerator[ModelChunkEvent, None]:
        """The answer in pieces; the last has `done`, the usage and the stop reason.

        Closing the iterator closes the connection. Raises a `ModelError`, also when the stream
        breaks off before the answer was finished.
        """
        at = self._endpoint()
        body = self._body(messages, tools, settings)
        options = body.get("stream_options")
        body["stream_options"] = {
            "include_usage": True,
            **(options if isinstance(options, Mapping) else {}),
        }
        body["stream"] = True
        reader = _AnswerReader(at)
        async with transport.open_events(at, body) as events:
            if isinstance(events, str):
                # The server does not stream: its whole answer is one chunk.
                chunk = reader.read(transport.decode_json(events, at))
                if chunk is not None:
                    yield chunk
            else:
                async with aclosing(_chunks(events, reader)) as chunks:
                    async for chunk in chunks:
                        yield chunk
        reader.check_finished()
        yield reader.last()

    def _endpoint(self) -> Endpoint:
        key = _key(self.api_key_env, self.base_url, self.model)
        return Endpoint(
            self.base_url, "/chat/completions", self.model, self.timeout_s, key, self.api_key_env
        )

    def _body(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None,
        settings: Mapping[str, object],
    ) -> dict[str, object]:
        body: dict[str, object] = {
            "model": self.model,
            "messages": [_wire_message(message) for message in valid_history(messages)],
        }
        if tools:
            body["tools"] = [_wire_tool(tool) for tool in tools]
        chosen = {**self.settings, **_checked(settings)}
        body.update((name, value) for name, value in chosen.items() if value is not None)
        return body


def _checked(settings: Mapping[str, object]) -> FrozenDict:
    ours = _OURS & settings.keys()
    if ours:
        raise ConfigError(
            f"{', '.join(sorted(ours))} cannot be a setting: call complete() for a whole answer or "
            "stream() for pieces, with the messages as first and the tools as second argument"
        )
    return freeze_object(settings, "settings")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises if it is not a number
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            "base_url must be a full address such as 'http://127.0.0.1:8000/v1' "
            "(given as base_url= or in OPENAI_BASE_URL)"
        )


def _key(name: str | None, base_url: str, model: str) -> str | None:
    """The key, from this process's environment."""
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    where = f"model {model!r} at {shown_url(base_url)}"
    if key and not (key.isascii() and key.isprintable()):
        # The HTTP library would quote such a header in its error.
        raise ModelAuthError(
            f"{name} holds characters that no key has (a line break, perhaps): set it again. "
            f"It is for {where}"
        )
    if not key and not _is_loopback(base_url):
        raise ModelAuthError(
            f"{where} needs a key: set the environment variable {name} where the call is made "
            "(on a cluster: in every process that hosts agents), or pass api_key_env=None if the "
            "server wants none"
        )
    return key or None


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _wire_message(message: Message) -> dict[str, object]:
    """A message as JSON. What the format has no field for (reasoning, is_error) is not sent."""
    wire: dict[str, object] = {"role": message.role.value, "content": message.content}
    if message.role is Role.TOOL:
        wire["tool_call_id"] = message.tool_call_id
    elif message.name:
        wire["name"] = _wire_name(message.name)
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [_wire_call(call) for call in message.tool_calls]
    return wire


def _wire_call(call: ToolCall) -> dict[str, object]:
    # Arguments that were malformed are empty here, so what goes back is always an object.
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    function = {"name": _wire_name(call.name), "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _wire_name(name: str) -> str:
    """A name the format allows: a model may have invented one that it does not."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:_MAX_NAME_CHARS] or "unnamed"


def _wire_tool(tool: ToolSpec) -> dict[str, object]:
    function: dict[str, object] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


async def _chunks(
    events: transport.EventStream, reader: _AnswerReader
) -> AsyncGenerator[ModelChunkEvent, None]:
    try:
        async for event in events:
            if event.data.strip() == "[DONE]":
                reader.ended = True
                await events.drain()
                return
            if event.kind == "error":
                raise to_model_error(refusal_of_text(event.data), reader.at)
            chunk = reader.read(transport.decode_json(event.data, reader.at))
            if chunk is not None:
                yield chunk
    except ModelUnavailable:
        # Some servers cut the line behind the finish: the answer is whole all the same.
        if reader.stop_reason is None:
            raise


class _AnswerReader:
    """Reads the JSON objects of one answer: its chunks, or the one object of a whole answer."""

    def __init__(self, at: Endpoint) -> None:
        self.at = at
        self.ended = False
        self.stop_reason: str | None = None
        self._usage: dict[str, int] = {}
        self.answered = False
        self._whole = False

    def read(self, payload: object) -> ModelChunkEvent | None:
        """The chunk of one object; None if it says nothing (usage, finish, a server's preamble)."""
        if not isinstance(payload, Mapping):
            raise ModelBadResponse(f"{self.at} sent JSON that is not an object")
        if payload.get("error"):
            raise to_model_error(refusal_of_object(payload["error"]), self.at)
        self._usage.update(normalise_usage(payload.get("usage")) or {})
        choice = _first_choice(payload)
        if choice is None:
            return None
        self.stop_reason = _text(choice.get("finish_reason")) or self.stop_reason
        self.answered = True
        said = _mapping(choice.get("delta"))
        whole = not said and "message" in choice
        if whole:
            self._whole = True
            said = _mapping(choice["message"])
        content = _text(said.get("content")) or _text(said.get("refusal"))
        reasoning = _text(said.get("reasoning_content")) or _text(said.get("reasoning"))
        calls = _deltas(said.get("tool_calls"), whole=whole)
        if not (content or reasoning or calls):
            return None
        return ModelChunkEvent(
            content=content or None, reasoning=reasoning or None, tool_calls=calls
        )

    def check_finished(self) -> None:
        """Raise if the stream ended before the answer did."""
        if not (self.ended or self._whole or self.stop_reason):
            raise ModelUnavailable(
                f"the stream of {self.at} broke off before the answer was finished: try again"
            )

    def last(self) -> ModelChunkEvent:
        """The chunk that ends the answer."""
        return ModelChunkEvent(done=True, usage=self._usage or None, stop_reason=self.stop_reason)


def _first_choice(payload: Mapping[str, object]) -> Mapping[str, object] | None:
    choices = payload.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, Mapping) and choice.get("index") in (0, None):
            return choice
    return None


def _deltas(raw: object, *, whole: bool) -> tuple[ToolCallDelta, ...]:
    """The tool calls of a delta, or of a whole message, where each entry is a call of its own."""
    deltas = []
    for position, item in enumerate(raw if isinstance(raw, list) else ()):
        entry = _mapping(item)
        function = _mapping(entry.get("function"))
        index = position if whole else entry.get("index")
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(arguments)
        deltas.append(
            ToolCallDelta(
                index=index if isinstance(index, int) else None,
                id=_text(entry.get("id")) or None,
                name=_text(function.get("name")) or None,
                arguments=None if arguments is None else clean_text(arguments),
            )
        )
    return tuple(deltas)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    """Text, also where a server sends it as a list of parts."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return "".join(_text(_mapping(part).get("text")) for part in value)
    return ""
