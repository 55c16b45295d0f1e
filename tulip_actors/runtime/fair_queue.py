"""Calls that wait for a slot, taken in turn from each run, so that no run waits behind another's
thousand."""

from __future__ import annotations

from collections import OrderedDict, deque

from tulip_actors.core.calls import CallKey


class FairQueue:
    """First in, first out within a run; the runs take turns."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, deque[CallKey]] = OrderedDict()

    def push(self, key: CallKey) -> None:
        """Add a call behind the others of its run."""
        self._runs.setdefault(key.run_id, deque()).append(key)

    def pop(self) -> CallKey:
        """The next call of the run whose turn it is. Raises IndexError when nothing waits."""
        if not self._runs:
            raise IndexError("nothing waits")
        run_id, waiting = self._runs.popitem(last=False)
        key = waiting.popleft()
        if waiting:
            self._runs[run_id] = waiting
        return key

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._runs.values())

    def __bool__(self) -> bool:
        return bool(self._runs)
