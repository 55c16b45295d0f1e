"""The runs that a run starts: its members' events join its stream, and its cancel reaches them."""

from __future__ import annotations

import asyncio
import contextlib

from tulip_actors.core.ports import ChildRun, RunStarter
from tulip_actors.core.runs import RunRequest
from tulip_actors.host.forwarded import Forwarded
from tulip_actors.host.sink import RunSink

CHILD_END_S = 5.0
"""How long a cancelled run waits for the end of a child: the grace of a body, and some more."""


class Members:
    """The children of one run that are under way."""

    def __init__(self, sink: RunSink) -> None:
        self._sink = sink
        self._running: set[ChildRun] = set()

    async def run(self, member: RunStarter, request: RunRequest) -> object:
        """Run a member as a child to its end, and return its result. Raises what it raised."""
        child = member.begin(request)
        forwarded = Forwarded(child, self._sink)
        self._running.add(child)
        try:
            await forwarded.to_the_end()
            return await child.result()
        except asyncio.CancelledError:
            child.cancel()
            with contextlib.suppress(TimeoutError):  # its last events belong to this stream too
                await asyncio.wait_for(forwarded.to_the_end(), CHILD_END_S)
            raise
        finally:
            self._running.discard(child)

    def cancel_at_boundary(self) -> None:
        """Ask all to stop at their next turn boundary."""
        for child in self._running:
            child.cancel_at_boundary()
