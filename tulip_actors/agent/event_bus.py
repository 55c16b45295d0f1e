"""`EventBus`: what a program sees of the bus."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from tulip_actors.agent.runtimes import runtime_named
from tulip_actors.core.bus import BusQuery
from tulip_actors.core.codec import pack_event, unpack_event
from tulip_actors.core.events import TulipEvent
from tulip_actors.core.ports import BusLog
from tulip_actors.errors import ConfigError, SubscriberLagged
from tulip_actors.host.publisher import batch_of

POLL_S = 10.0
"""How long one poll waits; short enough that a lost subscriber is soon forgotten."""


@dataclass(frozen=True, slots=True)
class BusRecord:
    """An event on the bus. `cursor` continues after it: pass it as `after`."""

    cursor: str
    event: TulipEvent


class EventBus:
    """Everything that happens on a cluster, in order per run, replayable.

    `EventBus.connect()` finds the bus of the cluster (or, with `runtime="inline"`, of this
    process).
    """

    def __init__(self, log: BusLog) -> None:
        self._log = log

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        *,
        runtime: str | None = None,
        namespace: str | None = None,
    ) -> EventBus:
        """The bus of a running cluster, by its address, RAY_ADDRESS, or this process's Ray."""
        return cls(runtime_named(runtime, namespace).bus(address))

    async def publish(self, events: Sequence[TulipEvent]) -> None:
        """Put events on the bus; returns when they are there."""
        await self._log.publish(batch_of(events, [pack_event(event) for event in events]))

    async def subscribe(
        self,
        run_id: str | None = None,
        agent: str | None = None,
        types: Iterable[str | type[TulipEvent]] | None = None,
        after: str | None = None,
        follow: bool = True,
    ) -> AsyncIterator[BusRecord]:
        """Records after a cursor (None = from the oldest held) that match all that is given.

        `types` are event classes or their `event_type`. With `follow=False` it ends at what the
        bus held when called. Raises `SubscriberLagged` when records after the cursor have been
        dropped; its own cursor goes on from what is left.
        """
        names = None if types is None else frozenset(_type_name(one) for one in types)
        position = None if after is None else _position(after)
        until: int | None = None
        while True:
            query = BusQuery(position, run_id, agent, names, POLL_S if follow else 0.0)
            page = await self._log.poll(query)
            if page.missed != 0:
                what = (
                    "the bus has begun anew since, with the runs that are under way"
                    if page.missed is None
                    else f"{page.missed} records after the cursor are no longer on the bus"
                )
                raise SubscriberLagged(
                    f"{what}; subscribe again with this error's cursor to go on from the oldest "
                    "held",
                    missed=page.missed,
                    cursor=_cursor(page.oldest),
                )
            until = page.end if until is None else until
            for start, batch in page.batches:
                for offset, packed in enumerate(batch.packed, start):
                    if offset < (position or 0) or (not follow and offset >= until):
                        continue
                    event = unpack_event(packed)
                    if _matches(event, run_id, agent, names):
                        yield BusRecord(_cursor(offset + 1), event)
            position = page.next
            if not follow and position >= until:
                return


def _matches(
    event: TulipEvent, run_id: str | None, agent: str | None, types: frozenset[str] | None
) -> bool:
    source = event.source
    return (
        (run_id is None or (source is not None and source.run_id == run_id))
        and (agent is None or (source is not None and source.agent == agent))
        and (types is None or event.event_type in types)
    )


def _type_name(one: str | type[TulipEvent]) -> str:
    if isinstance(one, str):
        return one
    default = one.model_fields["event_type"].default
    if not isinstance(default, str):
        raise ConfigError(f"types: {one!r} is a base class; name the event classes you want")
    return default


def _cursor(position: int) -> str:
    return base64.urlsafe_b64encode(b"b1:%d" % position).decode()


def _position(cursor: str) -> int:
    try:
        version, _, number = base64.urlsafe_b64decode(cursor).decode().partition(":")
        if version == "b1":
            return int(number)
    except (binascii.Error, ValueError):
        pass
    raise ConfigError(f"after: {cursor!r:.40} is not a cursor of this bus; pass a record.cursor")
