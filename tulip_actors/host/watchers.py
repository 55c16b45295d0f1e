"""Whoever is shown every event of a run where it is hosted: the hooks with `on_event`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tulip_actors.core.events import TerminateEvent, TulipEvent

_log = logging.getLogger(__name__)


class Watchers:
    """One run's watchers. One that raises never tears out the node that emits."""

    def __init__(self) -> None:
        self._watchers: list[Callable[[TulipEvent], None]] = []
        self._failure: Exception | None = None

    def add(self, watcher: Callable[[TulipEvent], None]) -> None:
        """Show every event from now on to `watcher`."""
        self._watchers.append(watcher)

    @property
    def any(self) -> bool:
        """Whether there is anybody to show events to."""
        return bool(self._watchers)

    def show(self, event: TulipEvent) -> None:
        """Show an event; after a failure nobody is shown any."""
        for watcher in self._watchers:
            try:
                watcher(event)
            except Exception as failure:  # raised where the node may be left
                self._watchers = []
                if isinstance(event, TerminateEvent):
                    _log.exception("a hook's on_event failed on the last event")
                else:
                    self._failure = failure
                return

    @property
    def failed(self) -> bool:
        """Whether a watcher raised what was not raised yet."""
        return self._failure is not None

    def raise_failure(self) -> None:
        """Raise what a watcher raised, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
