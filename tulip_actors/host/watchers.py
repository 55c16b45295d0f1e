"""Whoever is shown every event of a run where it is hosted: the hooks with `on_event`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tulip_actors.core.events import TerminateEvent, TulipEvent

_log = logging.getLogger(__name__)


class Watchers:
    """One run's watchers. One that raises never tears out the node that emits.

    `watching` are those that are shown events; `failure` is what one raised, until it is raised
    again.
    """

    def __init__(self) -> None:
        self.watching: list[Callable[[TulipEvent], None]] = []
        self.failure: Exception | None = None

    def add(self, watcher: Callable[[TulipEvent], None]) -> None:
        """Show every event from now on to `watcher`."""
        self.watching.append(watcher)

    def show(self, event: TulipEvent) -> None:
        """Show an event; after a failure nobody is shown any."""
        for watcher in self.watching:
            try:
                watcher(event)
            except Exception as failure:  # raised where the node may be left
                self.watching = []
                if isinstance(event, TerminateEvent):
                    _log.exception("a hook's on_event failed on the last event")
                else:
                    self.failure = failure
                return

    def raise_failure(self) -> None:
        """Raise what a watcher raised, once."""
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
