"""Where a run's events leave: stamped once, held until the record that rebuilds them is stored.

The loop never waits here. An event goes out, to the run's feed and to the bus, when every record
taken before it has been written; chunks too, in order, since they are few enough. The last event,
TerminateEvent, goes to the bus first and only then to whoever follows the run.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence

from tulip_actors.core.codec import pack_stamped, packed_source
from tulip_actors.core.emitted import Emitted
from tulip_actors.core.events import EventSource, TerminateEvent, TulipEvent
from tulip_actors.core.runs import RunRequest
from tulip_actors.host.feed import Feed
from tulip_actors.host.publisher import Publisher
from tulip_actors.host.record_writer import RecordWriter


class RunSink:
    """One run's sink. `next_seq` is the number its next event will get.

    `terminated` once the run's TerminateEvent was taken; whatever comes later is discarded.
    """

    def __init__(
        self,
        request: RunRequest,
        agent: str,
        node_id: str,
        feed: Feed,
        publisher: Publisher,
    ) -> None:
        self._agent = agent
        self._node_id = node_id
        self._set_source(request)
        self._feed = feed
        self._publisher = publisher
        self._writer: RecordWriter | None = None
        self._held: deque[tuple[int, Emitted, bool]] = deque()
        self._last: Emitted | None = None
        self.next_seq = 0
        self.terminated = False
        self._closed = False

    def follow(self, writer: RecordWriter) -> None:
        """Hold events back until this writer has stored what precedes them."""
        self._writer = writer

    def resume(self, request: RunRequest, next_seq: int) -> None:
        """Go on with a run that emitted events before."""
        self._set_source(request)
        self.next_seq = next_seq

    def replay(self, events: Sequence[Emitted], *, has_ended: bool) -> None:
        """Begin with what another incarnation of the run emitted, as it is stored.

        The bus takes what it has not yet. The last event may be the end of an earlier segment.
        """
        self._publisher.put(events)
        self._feed.append(events)
        self.next_seq = events[-1].seq + 1
        self.terminated = has_ended

    def emit(self, event: TulipEvent) -> TulipEvent:
        """Stamp and take an event of this run; returns it stamped. None is taken after the last.

        It is stamped in place: that happens once in its life, so it is no change that anybody could
        see between two looks, and a copy would double its cost. One that was emitted before keeps
        its first source and is copied.
        """
        if self.terminated:
            return event
        values = event.__dict__
        if values["source"] is not None:
            event = event.model_copy(update={"source": None})
            values = event.__dict__
        seq = self.next_seq
        self.next_seq = seq + 1
        packed = pack_stamped(event, self._packed_source, seq)
        source = values["source"] = self._source.numbered(seq)
        emitted = Emitted(source.run_id, seq, event, packed)
        writer = self._writer
        if writer is not None and writer.keeps_events:
            writer.add_event(emitted)
        if type(event) is TerminateEvent:
            self._last, self.terminated = emitted, True
        else:
            self._take(emitted, own=True)
        return event

    def emitted_so_far(self) -> list[Emitted]:
        """The run's own events, those that are held back included."""
        run_id = self._source.run_id
        out = [entry for entry in self._feed.peek(0) if entry.run_id == run_id]
        held = [entry for _, entry, is_own in self._held if is_own]
        return [*out, *held, *([self._last] if self._last is not None else [])]

    def take_no_more(self) -> None:
        """Discard whatever comes from now on; what was taken still goes out."""
        self.terminated = self._closed = True

    def abandon(self) -> None:
        """Another incarnation has the run: what was held back is not ours to tell."""
        self.take_no_more()
        self._held.clear()
        self._writer = None

    def forward(self, entries: Sequence[Emitted]) -> None:
        """Pass on a member's events: on this run's stream only, they are on the bus already."""
        for entry in () if self._closed else entries:
            self._take(entry, own=False)

    def release(self) -> None:
        """Let out what is no longer held back."""
        written = self._written()
        out: list[Emitted] = []
        own: list[Emitted] = []
        while self._held and self._held[0][0] <= written:
            _, emitted, is_own = self._held.popleft()
            out.append(emitted)
            if is_own:
                own.append(emitted)
        if own:
            self._publisher.put(own)
        if out:
            self._feed.append(out)

    def end_with_error(self) -> None:
        """What the last event says of the run could not be stored: it is said to have failed."""
        assert self._last is not None, "a run ends with a TerminateEvent"
        event = self._last.event.model_copy(
            update={"reason": "error", "stop_reason": "error", "condition": None}
        )
        self._last = Emitted(self._last.run_id, self._last.seq, event=event)

    async def finish(self) -> None:
        """Let out everything; the TerminateEvent reaches the feed once it is on the bus."""
        assert self._last is not None, "a run ends with a TerminateEvent"
        self._writer = None
        self.release()
        self._publisher.put([self._last])
        await self._publisher.flush()
        self._feed.append([self._last])

    def _set_source(self, request: RunRequest) -> None:
        self._source = _source_of(request, self._agent, self._node_id)
        self._packed_source = packed_source(self._source)

    def _take(self, emitted: Emitted, *, own: bool) -> None:
        writer = self._writer
        if self._held or (writer is not None and writer.blocked):
            self._held.append((writer.taken if writer else 0, emitted, own))
            return
        entries = (emitted,)
        if own:
            self._publisher.put(entries)
        self._feed.append(entries)

    def _written(self) -> int:
        writer = self._writer
        if writer is None:
            return self._held[-1][0] if self._held else 0
        return writer.written if writer.blocked else writer.taken


def _source_of(request: RunRequest, agent: str, node_id: str) -> EventSource:
    return EventSource(
        run_id=request.run_id,
        parent_run_id=request.parent_run_id,
        parent_call_id=request.parent_call_id,
        thread_id=request.thread_id,
        agent=agent,
        specialist_id=request.specialist_id,
        seq=0,
        node_id=node_id,
        pid=os.getpid(),
    )
