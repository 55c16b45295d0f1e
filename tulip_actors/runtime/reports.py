"""What a body in a worker tells of its run, on its way to the dispatcher."""

from __future__ import annotations

import logging
import threading
from queue import Queue
from typing import Any

import ray
from ray.exceptions import RayError

from tulip_actors.core.calls import CallReport

CLOSE_TIMEOUT_S = 5.0
"""How long a body's result waits for a dispatcher that takes no reports."""
_log = logging.getLogger(__name__)


class Reports:
    """One body's reports: buffered, in order, one call in flight.

    A thread sends them, from the first one on: the body tells without waiting, in whatever thread
    or event loop it likes, and may block its own.
    """

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher
        self._queue: Queue[CallReport | None] = Queue()
        self._lock = threading.Lock()
        self._sender: threading.Thread | None = None
        self._closed = False

    def tell(self, report: CallReport) -> None:
        """Take a report; returns at once. After `close` it is dropped."""
        with self._lock:
            if self._closed:
                return
            self._queue.put(report)
            if self._sender is None:
                self._sender = threading.Thread(
                    target=self._send, name="tulip-reports", daemon=True
                )
                self._sender.start()

    @property
    def used(self) -> bool:
        """Whether the body has told anything."""
        return self._sender is not None

    def flush(self) -> None:
        """Return when the dispatcher has what was told so far, or is gone."""
        if self.used:
            self._queue.join()

    def close(self) -> None:
        """Take no more; returns when the dispatcher has everything, or is gone."""
        with self._lock:
            self._closed = True
        if self._sender is not None:
            self._queue.put(None)
            self._sender.join(CLOSE_TIMEOUT_S)

    def _send(self) -> None:
        is_open = True
        while is_open:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            is_open = batch[-1] is not None
            told = [report for report in batch if report is not None]
            try:
                ray.get(self._dispatcher.report.remote(told))
            except RayError as error:  # it is gone, and this worker ends with it
                _log.debug("report: %s", error)
            for _ in batch:
                self._queue.task_done()
