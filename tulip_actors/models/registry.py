"""Model strings: which class answers to `openai:gpt-4o-mini`.

What may live here: the table of prefixes. A factory imports its wire format when it is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

from tulip_actors.core.ports import ChatModel
from tulip_actors.errors import ConfigError, ModelNotFound

ModelFactory: TypeAlias = Callable[..., ChatModel]
"""Called with the name after the prefix and the options given to `get_model`, as keywords."""


def get_model(spec: str, **options: object) -> ChatModel:
    """The model a string such as `openai:gpt-4o-mini` names.

    What stands after the first colon is the provider's own name and may hold more colons. `options`
    go to the provider's factory; for `openai` they are those of `OpenAIChatModel`. Raises
    `ModelNotFound` for an unknown prefix or a string without one.
    """
    prefix, colon, name = spec.partition(":")
    factory = _factories.get(prefix)
    if not colon or not name.strip() or factory is None:
        problem = "has no provider prefix" if not colon else f"names no provider {prefix!r}"
        if factory is not None:
            problem = "names no model"
        raise ModelNotFound(
            f"the model string {spec!r} {problem}: write PREFIX:MODEL, for example "
            f"'openai:gpt-4o-mini'. Known prefixes: {', '.join(sorted(_factories))}. "
            "Add one with register_provider(prefix, factory), or pass a model object."
        )
    return factory(name, **options)


def register_provider(prefix: str, factory: ModelFactory) -> None:
    """Let `factory(name, **options)` answer to `prefix:name`; a known prefix is replaced.

    The table belongs to this process. A model string is looked up in the process that runs the
    agent, so call this in a module that is imported there too, or pass the model object itself.
    """
    if not prefix or ":" in prefix or prefix != prefix.strip():
        raise ConfigError(
            f"{prefix!r} cannot be a provider prefix: use a word without colons and spaces, "
            "for example 'acme' for the model string 'acme:large'"
        )
    _factories[prefix] = factory


def _openai(name: str, **options: Any) -> ChatModel:
    from tulip_actors.models.openai_chat import OpenAIChatModel

    return OpenAIChatModel(name, **options)


def _openai_compatible(name: str, **options: Any) -> ChatModel:
    if not options.get("base_url") and not os.environ.get("OPENAI_BASE_URL"):
        raise ConfigError(
            f"'openai-compatible:{name}' does not say where the server is: set OPENAI_BASE_URL, "
            "for example to http://127.0.0.1:8000/v1, or use "
            f"get_model('openai-compatible:{name}', base_url=...)"
        )
    return _openai(name, **options)


_factories: dict[str, ModelFactory] = {
    "openai": _openai,
    "openai-compatible": _openai_compatible,
}
