"""Clock, ids and fault points as they are outside of tests."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from datetime import UTC, datetime


class SystemClock:
    """The machine's time."""

    def now(self) -> datetime:
        """UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class RandomIds:
    """Random ids: 80 bits, as in `run_7f3a...`."""

    def new(self, kind: str) -> str:
        """A new id."""
        return f"{kind}_{uuid.uuid4().hex[:20]}"


class NoFaults:
    """Nothing ever goes wrong on purpose."""

    async def reach(self, point: str, run_id: str) -> None:
        """Pass."""


def derived_id(kind: str, parent: str, key: str) -> str:
    """The same id for the same parent and key, in any process, for ever."""
    digest = hashlib.sha256(f"{parent}\0{key}".encode()).hexdigest()
    return f"{kind}_{digest[:20]}"
