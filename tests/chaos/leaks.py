"""`scripts/chaos --leaks`: runs cancelled and processes killed by the hundred, and what they leave.

What may live here: what can be leaked (processes, sockets, named actors, the object store), counted
before and after. Of the first two all that belong to this program's Ray are counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.chaos.refunds import TOOLS, cashier, order_for
from tests.cli.process import processes_below
from tests.runtime.support import eventually
from tulip_actors import Agent, TulipError
from tulip_actors.testing import FunctionModel

AT_ONCE = 10
SETTLE_S = 90.0
"""How long what is left may take to go: Ray keeps idle processes for a while."""
SLACK_PROCESSES, SLACK_SOCKETS, SLACK_BYTES = 3, 24, 20_000_000
"""Ray's reserve of idle processes, and their connections, vary."""


@dataclass(frozen=True)
class Held:
    """What this program and its Ray hold."""

    processes: int
    sockets: int
    actors: int
    store_bytes: float

    def is_about(self, before: Held) -> bool:
        """Whether nothing has been left since."""
        return (
            self.processes <= before.processes + SLACK_PROCESSES
            and self.sockets <= before.sockets + SLACK_SOCKETS
            and self.actors <= before.actors
            and self.store_bytes <= before.store_bytes + SLACK_BYTES
        )


def held() -> Held:
    """What is held now."""
    import ray

    pids = [os.getpid(), *processes_below(os.getpid())]
    name = "object_store_memory"
    taken = ray.cluster_resources()[name] - ray.available_resources().get(name, 0.0)
    actors = len(ray.util.list_named_actors(all_namespaces=True))
    return Held(len(pids), sum(map(_sockets, pids)), actors, float(taken))


def _sockets(pid: int) -> int:
    count = 0
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                count += os.readlink(descriptor).startswith("socket:")
    return count


async def cancelled(agent: Agent, folder: Path, moments: random.Random, count: int) -> None:
    """So many runs, each cancelled somewhere in the middle, in the two ways there are."""
    for begun in range(0, count, AT_ONCE):
        orders = [
            order_for(f"c{begun + n}", "refund_plain", folder / "c", 0.1) for n in range(AT_ONCE)
        ]
        handles = [agent.start(order) for order in orders]
        await asyncio.sleep(moments.uniform(0.0, 0.5))
        for number, handle in enumerate(handles):
            if number % 2:
                handle.cancel()
            else:
                agent.cancel(handle.run_id)
        for handle in handles:
            with contextlib.suppress(TulipError):
                await asyncio.wait_for(handle.result(), 60)


async def killed(agent: Agent, folder: Path, moments: random.Random, count: int) -> None:
    """So many kills of the agent's process in mid-run; each run ends well."""
    for number in range(count):
        pid = (await agent.observe()).pid
        handle = agent.start(order_for(f"k{number}", "refund_plain", folder / "k", 0.1))
        await asyncio.sleep(moments.uniform(0.0, 0.4))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        result = await asyncio.wait_for(handle.result(), 60)
        assert result.success, result


async def look(
    folder: Path, seed: int, cancels: int, kills: int, say: Callable[[str], None]
) -> bool:
    """Say what is held before and after; true if that is about the same."""
    moments = random.Random(seed)
    async with Agent(FunctionModel(cashier), TOOLS, name="cashier", runtime="ray") as agent:
        await cancelled(agent, folder, moments, AT_ONCE)
        await killed(agent, folder, moments, 2)
        await asyncio.sleep(5)
        before = held()
        say(f"before: {asdict(before)}")
        await cancelled(agent, folder, moments, cancels)
        say(f"after {cancels} cancels: {asdict(held())}")
        await killed(agent, folder, moments, kills)
        with contextlib.suppress(AssertionError):  # told by the figures
            await eventually(lambda: held().is_about(before), "all is let go of", SETTLE_S)
        after = held()
        say(f"after {kills} kills: {asdict(after)}")
    return after.is_about(before)
