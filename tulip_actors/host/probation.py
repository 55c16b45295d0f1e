"""What is done about runs that were taken up and came to nothing: delayed, alone, given up.

A run whose process dies again before it has recorded anything may be what kills it. Such runs are
made one at a time, each after a pause that grows, until they get further or have been there for a
while; so the one that kills is found out, and given up, while the others go on. How often a run
came to nothing stands in its own records, so it does not matter where it is taken up, or by whom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum

from tulip_actors.core.ports import Clock
from tulip_actors.core.runs import Record, Recovered

FRUITLESS_MAX = 5
"""After so many recoveries in a row without a record a run is given up."""
PAUSE_S = 0.5
PAUSE_MAX_S = 10.0
"""Before the second fruitless recovery of a run; it doubles each time."""

ALONE_S = 5.0
"""How long a run that does not get further keeps others waiting: it has not killed so far."""


class Verdict(StrEnum):
    """What is to be done with a run whose process ended."""

    TAKE_UP = "take_up"
    TAKE_UP_ALONE = "take_up_alone"
    GIVE_UP = "give_up"


def fruitless(records: Sequence[Record]) -> int:
    """How often the run was taken up since it last recorded anything."""
    count = 0
    for record in reversed(records):
        if not isinstance(record, Recovered):
            break
        count += 1
    return count


def verdict_on(records: Sequence[Record]) -> Verdict:
    """What is to be done with a run that has these records."""
    count = fruitless(records)
    if count == 0:
        return Verdict.TAKE_UP
    return Verdict.TAKE_UP_ALONE if count < FRUITLESS_MAX else Verdict.GIVE_UP


class Probation:
    """Runs of one host that are taken up one at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()

    async def enter(self, records: Sequence[Record]) -> None:
        """Wait until no other run is on probation, and then for the pause that is due."""
        await self._lock.acquire()
        try:
            pause_s = PAUSE_S * 2 ** (fruitless(records) - 1)
            await self._clock.sleep(min(pause_s, PAUSE_MAX_S))
        except BaseException:
            self._lock.release()
            raise

    def leave(self) -> None:
        """The run has got further, has ended, or has been there for long enough."""
        self._lock.release()
