"""What every provider asks of a history: each call has its result, each result its call.

What may live here: rules that hold for all wire formats. The history itself is never changed; what
is sent is.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace

from tulip_actors.core.messages import Message, Role, ToolCall

UNAVAILABLE = "result unavailable; the effect may have happened"
"""The neutral answer to a call whose result is missing: it blames nobody and invites no retry."""


def valid_history(messages: Sequence[Message]) -> list[Message]:
    """The messages so that a provider accepts them.

    The results of a turn stand right behind it, in call order, before anything else that was said
    meanwhile; calls without a result get `UNAVAILABLE`; results without a call are told as text;
    ids that are missing or repeated within a turn are made unique.
    """
    valid: list[Message] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if message.role is Role.ASSISTANT and message.tool_calls:
            end = position
            while end < len(messages) and messages[end].role is not Role.ASSISTANT:
                end += 1
            valid += _round(message, messages[position:end])
            position = end
        elif message.role is Role.TOOL:
            valid.append(_as_text(message))
        else:
            valid.append(message)
    return valid


def _round(turn: Message, followers: Sequence[Message]) -> list[Message]:
    """A turn with calls and what was said until the next turn."""
    results: dict[str, deque[Message]] = {call.id: deque() for call in turn.tool_calls}
    wanted = Counter(call.id for call in turn.tool_calls)
    others: list[Message] = []
    for message in followers:
        call_id = message.tool_call_id or ""
        if message.role is not Role.TOOL:
            others.append(message)
        elif len(results.get(call_id, ())) < wanted[call_id]:
            results[call_id].append(message)
        else:
            others.append(_as_text(message))
    ids = _unique_ids(turn.tool_calls)
    answers = [
        _answer(call, new_id, results[call.id])
        for call, new_id in zip(turn.tool_calls, ids, strict=True)
    ]
    if any(call.id != new_id for call, new_id in zip(turn.tool_calls, ids, strict=True)):
        pairs = zip(turn.tool_calls, ids, strict=True)
        turn = replace(turn, tool_calls=tuple(replace(call, id=new) for call, new in pairs))
    return [turn, *answers, *others]


def _answer(call: ToolCall, new_id: str, results: deque[Message]) -> Message:
    if not results:
        return Message(Role.TOOL, UNAVAILABLE, tool_call_id=new_id, name=call.name, is_error=True)
    result = results.popleft()
    return result if result.tool_call_id == new_id else replace(result, tool_call_id=new_id)


def _unique_ids(calls: Sequence[ToolCall]) -> list[str]:
    taken: set[str] = {call.id for call in calls}
    seen: set[str] = set()
    ids: list[str] = []
    for slot, call in enumerate(calls):
        new_id = call.id
        suffix = slot
        while not new_id or new_id in seen or (new_id != call.id and new_id in taken):
            new_id = f"{call.id or 'call'}_{suffix}"
            suffix += 1
        seen.add(new_id)
        ids.append(new_id)
    return ids


def _as_text(result: Message) -> Message:
    """A result whose call is not in the history, as something that is told."""
    return Message.user(f"[earlier result of {result.name or 'a tool'}] {result.content}")
