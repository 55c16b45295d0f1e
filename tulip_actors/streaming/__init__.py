"""Ways to show a stream of events. Nothing here knows where the events come from."""

from tulip_actors.streaming.console import ConsoleHandler

__all__ = ["ConsoleHandler"]
