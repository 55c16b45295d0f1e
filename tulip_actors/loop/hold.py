"""Holds: questions of the runtime's own about a call, asked and answered like `interrupt()`.

"approval": may a call be made whose tool `requires_approval`. "lost": may a call be made again
whose worker died in mid-body, where the tool says `on_unknown="ask"`. What may live here: what is
asked, and what a reply means for the call. The body never sees such a reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tulip_actors.core.calls import ToolOutcome, ToolRequest
from tulip_actors.core.frozen import Json, canonical, freeze_object
from tulip_actors.core.interrupt import InterruptRequest
from tulip_actors.core.runs import Hold
from tulip_actors.errors import ToolLost, ToolVetoed
from tulip_actors.memory.fold import Reply

LOST = "the worker died while it ran ({reason}); its effect may have happened"
NEVER_BEGAN = "its worker was lost before it began ({reason}); it had no effect"
SHOWN_CHARS = 300
"""How much of a call's arguments stands in the question; all of them are in its metadata."""


class Options(NamedTuple):
    """The two answers that are offered; any other than `go` is a refusal, with its text."""

    go: str
    stop: str


OPTIONS: Mapping[Hold, Options] = {
    "approval": Options("approve", "deny"),
    "lost": Options("retry", "skip"),
}


def approval_of(request: ToolRequest) -> InterruptRequest:
    """The question whether a call may be made."""
    return _question("approval", request, f"Run {_shown(request)}?")


def repetition_of(request: ToolRequest, reason: str) -> InterruptRequest:
    """The question whether a call may be made again whose worker died."""
    question = (
        f"The worker died while {_shown(request)} ran; its effect may have happened. Run it again?"
    )
    return _question("lost", request, question, reason=reason)


def _question(hold: Hold, request: ToolRequest, question: str, **more: str) -> InterruptRequest:
    metadata = {
        "hold": hold,
        "tool_name": request.tool_name,
        "tool_call_id": request.tool_call_id,
        "arguments": request.arguments,
        **more,
    }
    return InterruptRequest(question, OPTIONS[hold], freeze_object(metadata, "metadata of a hold"))


def _shown(request: ToolRequest) -> str:
    arguments = ", ".join(f"{name}={canonical(one)}" for name, one in request.arguments.items())
    if len(arguments) > SHOWN_CHARS:
        arguments = f"{arguments[:SHOWN_CHARS]}..."
    return f"{request.tool_name}({arguments})"


def closed_by(reply: Reply) -> ToolOutcome | None:
    """The result that a reply gives the call instead of a run; None when it is to run."""
    hold, response = reply.paused.hold, reply.response
    if hold is None or _is_go(hold, response):
        return None
    asked = reply.paused.request.metadata
    said = _said(hold, response)
    if hold == "approval":
        error = f"{asked['tool_name']} was not called: a human denied it{said}"
        return ToolOutcome(error=error, error_type=ToolVetoed.code)
    error = f"{LOST.format(reason=asked['reason'])}; a human decided not to run it again{said}"
    return ToolOutcome(error=error, error_type=ToolLost.code)


def _is_go(hold: Hold, response: Json) -> bool:
    if isinstance(response, str):
        return response.strip().lower() == OPTIONS[hold].go
    return response is True


def _said(hold: Hold, response: Json) -> str:
    """The reason of a refusal, if the reply says more than that."""
    if isinstance(response, str):
        text = response.strip()
        return "" if text.lower() in ("", OPTIONS[hold].stop) else f": {text}"
    return f": {canonical(response)}" if response else ""
