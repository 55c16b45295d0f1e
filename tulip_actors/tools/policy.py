"""What `@tool(...)` may say of a tool's calls, checked and completed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, get_args

from tulip_actors.core.calls import (
    CANCEL_GRACE_S,
    MAX_RESULT_CHARS,
    CallKind,
    OnUnknown,
    ToolDemand,
    ToolPolicy,
)
from tulip_actors.core.frozen import EMPTY, FrozenDict, freeze_object
from tulip_actors.errors import ConfigError

LEAST_RESULT_CHARS = 100
"""The shortest limit of a result: the mark of what is left out must fit in."""


class ToolOptions(TypedDict, total=False):
    """Options of `@tool`.

    How it runs: `kind="cpu"` for a body that computes (a process and a CPU of its own per call),
    `inline=True` for one that is trivial (in the agent's own process). Without either, coroutines
    share an event loop and plain functions the threads of a few processes.

    What it needs, in Ray's terms; such a call goes alone: `num_cpus`, `num_gpus`, `memory` (bytes,
    also the most its process may grow by), `resources`, `label_selector`, `runtime_env`.

    What may be done when a call goes wrong: `timeout_s` from the start of the body,
    `cancel_grace_s` for cleaning up when it is cancelled, `retries` after an error that it raised,
    and `on_unknown` for a worker that died in mid-body: "retry", "report" (the model is told that
    the effect may have happened) or "ask" (a human; a call that a tool made is reported to that).
    "retry" is the default for a tool with `retries`, as often as that says, and for an idempotent
    tool that takes a `ToolContext`, since it can pass on `ctx.idempotency_key`; "report" for every
    other.

    `max_concurrency`: calls in flight of this tool for one agent.

    `max_result_chars`: of a longer result the model sees head and tail, and how much is left out
    between them (100,000 unless given; None = no limit). Whoever makes the call with `ctx.call` or
    `ctx.map` gets the whole value.
    """

    kind: Literal["cpu"]
    inline: bool
    num_cpus: float
    num_gpus: float
    memory: int
    resources: Mapping[str, float]
    label_selector: Mapping[str, str]
    runtime_env: Mapping[str, Any]
    timeout_s: float | None
    cancel_grace_s: float
    retries: int
    on_unknown: OnUnknown
    max_concurrency: int | None
    max_result_chars: int | None


def policy_of(
    name: str, options: ToolOptions, *, is_async: bool, idempotent: bool, takes_context: bool
) -> ToolPolicy:
    """The policy of a tool. Raises `ConfigError` with the option's name and what would be right."""
    unknown = set(options) - set(ToolOptions.__annotations__)
    if unknown:
        raise ConfigError(
            f"tool {name}: no option {', '.join(sorted(unknown))}; there are "
            f"{', '.join(sorted(ToolOptions.__annotations__))}"
        )
    check = _Checks(name)
    retries = check.whole("retries", options.get("retries"), least=0) or 0
    may_repeat = retries > 0 or (idempotent and takes_context)
    policy = ToolPolicy(
        kind=_kind(name, options, is_async),
        demand=_demand(check, options),
        is_async=is_async,
        idempotent=idempotent,
        timeout_s=check.number("timeout_s", options.get("timeout_s"), above=0),
        cancel_grace_s=check.number("cancel_grace_s", options.get("cancel_grace_s"), least=0)
        or (0.0 if "cancel_grace_s" in options else CANCEL_GRACE_S),
        retries=retries,
        on_unknown=options.get("on_unknown") or ("retry" if may_repeat else "report"),
        max_concurrency=check.whole("max_concurrency", options.get("max_concurrency"), least=1),
        max_result_chars=check.whole(
            "max_result_chars",
            options.get("max_result_chars", MAX_RESULT_CHARS),
            least=LEAST_RESULT_CHARS,
        ),
    )
    if policy.on_unknown not in get_args(OnUnknown):
        raise ConfigError(
            f"tool {name}: on_unknown is one of {', '.join(get_args(OnUnknown))}, "
            f"not {policy.on_unknown!r:.80}"
        )
    if policy.kind is CallKind.INLINE and policy.demand != ToolDemand():
        raise ConfigError(
            f"tool {name}: an inline tool runs in the agent's process and can demand nothing; "
            "give the agent's ActorOptions what it needs, or leave inline=True out"
        )
    return policy


def _kind(name: str, options: ToolOptions, is_async: bool) -> CallKind:
    kind, inline = options.get("kind"), options.get("inline", False)
    if kind not in (None, "cpu"):
        raise ConfigError(f'tool {name}: kind is "cpu" or left out, not {kind!r:.80}')
    if kind == "cpu" and inline:
        raise ConfigError(f'tool {name}: kind="cpu" and inline=True exclude each other')
    if kind == "cpu":
        return CallKind.CPU
    if inline:
        return CallKind.INLINE
    return CallKind.ASYNC if is_async else CallKind.PLAIN


def _demand(check: _Checks, options: ToolOptions) -> ToolDemand:
    environment = options.get("runtime_env")
    return ToolDemand(
        num_cpus=check.number("num_cpus", options.get("num_cpus"), least=0),
        num_gpus=check.number("num_gpus", options.get("num_gpus"), least=0),
        memory_bytes=check.whole("memory", options.get("memory"), least=1),
        resources=FrozenDict(
            {
                name: check.number(f"resources[{name!r}]", amount, above=0)
                for name, amount in options.get("resources", EMPTY).items()
            }
        ),
        label_selector=freeze_object(options.get("label_selector", EMPTY), "label_selector"),
        runtime_env=None if environment is None else freeze_object(environment, "runtime_env"),
    )


class _Checks:
    """Numbers that a tool's options may be."""

    def __init__(self, tool_name: str) -> None:
        self._tool_name = tool_name

    def number(
        self, option: str, value: object, *, above: float | None = None, least: float | None = None
    ) -> float | None:
        """A finite number above, or not below, a bound; None if it was not given."""
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            in_bounds = (above is None or value > above) and (least is None or value >= least)
            if in_bounds:
                return value
        bound = f"above {above}" if above is not None else f"of at least {least}"
        raise ConfigError(
            f"tool {self._tool_name}: {option} is a number {bound}, not {value!r:.80}"
        )

    def whole(self, option: str, value: object, *, least: int) -> int | None:
        """A whole number not below a bound; None if it was not given."""
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        raise ConfigError(
            f"tool {self._tool_name}: {option} is a whole number of at least {least}, "
            f"not {value!r:.80}"
        )
