"""Which model a job gets: the one that was asked for, the environment's, or the small local one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tulip_actors.core.ports import ChatModel
from tulip_actors.models.registry import get_model

DEFAULT_OPENAI_MODEL = "gpt-4o-mini"
ANSWER_TOKENS = 256
"""The local model rambles; this is room for a tool call and a few sentences."""


@contextmanager
def chosen_model(spec: str | None) -> Iterator[ChatModel]:
    """The model, and with it the local server where there is one, for the block's time.

    Raises `ModelNotFound` and `ConfigError`, and `MissingExtra` when the local model is needed and
    not installed.
    """
    spec = spec or environment_spec()
    if spec is not None:
        yield get_model(spec)
        return
    from tulip_actors.models import LocalModelServer

    with LocalModelServer() as server:
        yield server.model(max_tokens=ANSWER_TOKENS)


def environment_spec() -> str | None:
    """The model that the environment speaks of, None if it speaks of none."""
    if os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_KEY"):
        return f"openai:{os.environ.get('OPENAI_MODEL') or DEFAULT_OPENAI_MODEL}"
    return None
