"""What the bus carries: whole batches with a header, and what one asks of them.

What may live here: data. A batch's payload is never decoded on its way; its header says which
runs, agents and event types are inside, so that a reader may leave a whole batch unopened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of one publisher, packed, in order. The sets say what is inside.

    `numbers` names each event by its run and number: what the bus has already, from another
    incarnation of the run's host, it does not take again. Without them it takes everything.
    """

    packed: tuple[bytes, ...]
    run_ids: frozenset[str]
    agents: frozenset[str]
    types: frozenset[str]
    numbers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BusQuery:
    """What a subscriber asks for. `after` is a position (None = the oldest held)."""

    after: int | None
    run_id: str | None = None
    agent: str | None = None
    types: frozenset[str] | None = None
    wait_s: float = 0.0

    def may_match(self, batch: EventBatch) -> bool:
        """False when nothing in the batch can be meant."""
        return (
            (self.run_id is None or self.run_id in batch.run_ids)
            and (self.agent is None or self.agent in batch.agents)
            and (self.types is None or not self.types.isdisjoint(batch.types))
        )


@dataclass(frozen=True, slots=True)
class BusPage:
    """Batches that may match, each with the position of its first event.

    `next` is the position to ask after; `missed` counts events that were dropped before they
    were read, and is None when the log has begun anew since: nobody knows how many; `oldest` is the
    position of the oldest event held, `end` that after the newest.
    """

    batches: Sequence[tuple[int, EventBatch]]
    next: int
    missed: int | None
    oldest: int
    end: int
