"""Hooks that come with the package."""

from tulip_actors.hooks.builtin.logging import LoggingHook, StructuredLoggingHook

__all__ = ["LoggingHook", "StructuredLoggingHook"]
