"""Hooks: observing and steering the loop without forking it."""

from tulip_actors.hooks.provider import (
    AfterModelCallEvent,
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookPriority,
    HookProvider,
)

__all__ = [
    "AfterModelCallEvent",
    "AfterToolCallEvent",
    "BeforeModelCallEvent",
    "BeforeToolCallEvent",
    "HookPriority",
    "HookProvider",
]
