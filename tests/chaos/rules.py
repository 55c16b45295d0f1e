"""What must hold of a run, whatever was killed under it: its stream and its history.

What may live here: functions that name what does not hold, in words. Free of Ray and of pytest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tulip_actors import (
    Message,
    ModelChunkEvent,
    RunRecoveredEvent,
    TerminateEvent,
    ThinkEvent,
    ToolCompleteEvent,
    ToolStartEvent,
    TulipEvent,
)

UNKNOWN = "may have happened"
"""What the model is told of a call whose outcome nobody knows."""


def of_stream(events: Sequence[TulipEvent]) -> list[str]:
    """What is wrong with a whole stream of one run."""
    problems = []
    numbers = [event.source.seq for event in events if event.source]
    if numbers != list(range(len(events))):
        told = ", ".join(f"{e.source.seq if e.source else '?'} {e.event_type}" for e in events)
        problems.append(f"its stream has gaps or repeats: {told}")
    ends = sum(isinstance(event, TerminateEvent) for event in events)
    if ends != 1 or not isinstance(events[-1], TerminateEvent):
        problems.append(f"{ends} TerminateEvents")
    begun = Counter(e.tool_call_id for e in events if isinstance(e, ToolStartEvent))
    ended = Counter(e.tool_call_id for e in events if isinstance(e, ToolCompleteEvent))
    if begun != ended:
        problems.append(f"calls begun {dict(begun)}, ended {dict(ended)}")
    thoughts = [event.iteration for event in events if isinstance(event, ThinkEvent)]
    if thoughts != sorted(set(thoughts)):
        problems.append(f"turns were told twice: {thoughts}")
    return [*problems, *_of_chunks(events)]


def _of_chunks(events: Sequence[TulipEvent]) -> list[str]:
    """A turn's chunks are provisional: those that a recovery does not take back make its text."""
    problems = []
    pending: list[ModelChunkEvent] = []
    for event in events:
        if isinstance(event, ModelChunkEvent):
            pending.append(event)
        elif isinstance(event, RunRecoveredEvent):
            if event.chunks_discarded != len(pending):
                problems.append(f"{event.chunks_discarded} of {len(pending)} chunks taken back")
            pending = []
        elif isinstance(event, ThinkEvent) and pending:
            said = "".join(chunk.content or "" for chunk in pending)
            if said != (event.reasoning or ""):
                problems.append(f"the chunks say {said!r}, the turn {event.reasoning!r}")
            pending = []
    return problems


def of_history(messages: Sequence[Message]) -> list[str]:
    """What a provider would reject: every call has exactly one result, right after its turn."""
    problems = []
    open_: list[str] = []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in open_:
                problems.append(f"a result of no open call: {message.tool_call_id}")
            else:
                open_.remove(message.tool_call_id)
        else:
            if open_:
                problems.append(f"calls without a result: {open_}")
            open_ = [call.id for call in message.tool_calls]
    return problems + ([f"calls without a result: {open_}"] if open_ else [])
