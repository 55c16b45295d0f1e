"""Models: from a model string or object to an answer.

    registry      model string -> ChatModel
    openai_chat   the OpenAI chat completions wire format; one file per format
    history       what every format may rely on: no orphan call, no orphan result
    accumulate    pieces of an answer -> ModelResponse
    transport     HTTP, clients per event loop; failures: what went wrong -> the error tree
    sse           bytes -> server-sent events
    local         a small real model on this machine, for tests, demos and notebooks

Importing this package talks to nothing and loads no HTTP library: names that need one are looked
up when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tulip_actors.core.runs import ModelResponse
from tulip_actors.models.registry import get_model, register_provider

if TYPE_CHECKING:
    from tulip_actors.models.accumulate import Accumulator, parse_arguments
    from tulip_actors.models.local import LocalModelServer
    from tulip_actors.models.openai_chat import OpenAIChatModel

__all__ = [
    "Accumulator",
    "LocalModelServer",
    "ModelResponse",
    "OpenAIChatModel",
    "get_model",
    "parse_arguments",
    "register_provider",
]

_LAZY = {
    "Accumulator": "tulip_actors.models.accumulate",
    "LocalModelServer": "tulip_actors.models.local",
    "OpenAIChatModel": "tulip_actors.models.openai_chat",
    "parse_arguments": "tulip_actors.models.accumulate",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
