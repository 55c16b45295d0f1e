"""Programs whose end, or whose cluster's, is what a test is about; each runs in its own process.

Each prints lines of JSON; `python -m tests.runtime.recovery_programs NAME [ARG...]`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.runtime.recovery_tools import RECOVERY_TOOLS, pay_one
from tests.runtime.support import play, script
from tulip_actors import ActorOptions, Agent, RunRecoveredEvent
from tulip_actors.testing import FunctionModel

HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
}
"""The settings that the README gives for a head."""
PAYMENTS = 30


def say(told: object) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def payer(**options: Any) -> Agent:
    tools = [*RECOVERY_TOOLS, pay_one]
    return Agent(FunctionModel(play), tools, name="payer", max_iterations=PAYMENTS + 2, **options)


def payments(log: str) -> str:
    """A prompt for payments one after the other, each a tenth of a second."""
    turns = [[["pay_one", {"log": log, "number": number}]] for number in range(PAYMENTS)]
    return script(*turns, "done")


def lost_node(folder: str) -> None:
    """The node of an agent, its dispatcher and its workers is lost: its raylet is killed."""
    from ray.cluster_utils import Cluster

    settings = {"num_cpus": 1, "_system_config": HEALTH}
    cluster = Cluster(initialize_head=True, head_node_args=settings)
    nodes = [cluster.add_node(num_cpus=1, resources={"spot": 1}) for _ in range(2)]
    os.environ["RAY_ADDRESS"] = cluster.address
    log = str(Path(folder) / "log")

    async def main() -> dict[str, object]:
        agent = payer(actor=ActorOptions(resources={"spot": 0.1}))
        await agent.arun(script([["pay_one", {"log": f"{log}-warm", "number": 0}]], "warm"))
        there = (await agent.observe()).node_id
        (node,) = [one for one in nodes if one.node_id == there]
        handle = agent.start(payments(log))
        lost_at_s, numbers, took_s, after = 0.0, [], 0.0, ""
        async for event in handle.events():
            assert event.source is not None
            numbers.append(event.source.seq)
            if len(numbers) == 6:
                os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)
                lost_at_s = time.monotonic()
            if isinstance(event, RunRecoveredEvent):
                took_s, after = time.monotonic() - lost_at_s, event.source.node_id
        result = await handle.result()
        errors = [one.error for one in result.tool_executions if one.error]
        await agent.stop()
        return {
            "numbers": numbers,
            "before": there,
            "after": after,
            "took_s": took_s,
            "paid": Path(f"{log}.ledger").read_text().split(),
            "errors": errors,
            "text": result.text,
        }

    try:
        say(asyncio.run(asyncio.wait_for(main(), 150)))
    finally:
        import ray

        ray.shutdown()
        cluster.shutdown()


def dying_driver(folder: str) -> None:
    """Starts a run on a detached agent, tells what it sees of it, and does not end by itself."""

    async def main() -> None:
        agent = payer(actor=ActorOptions(detached=True))
        handle = agent.start(payments(str(Path(folder) / "log")))
        async for event in handle.events():
            assert event.source is not None
            say([handle.run_id, handle.cursor, event.source.seq])
        await asyncio.Event().wait()

    asyncio.run(main())


def life(number: str, url: str, folder: str) -> None:
    """One life of a cluster: a conversation begins and pauses in the first, goes on in the next."""
    log = str(Path(folder) / "log")
    gate = str(Path(folder) / "gate")
    Path(f"{gate}.open").touch()
    asks = script([["ask_and_refund", {"log": log, "gate": gate}]], "asked")

    async def main() -> dict[str, object]:
        async with payer(checkpointer=url) as agent:
            if number == "1":
                first = await agent.arun(script("hello"), thread_id="t")
                paused = await agent.arun(asks, thread_id="t")
                return {
                    "runs": [first.run_id, paused.run_id],
                    "interrupt": paused.interrupts[0].interrupt_id,
                }
            state = await agent.get_state("t")
            resumed = await agent.aresume("yes", thread_id="t")
            found = agent.attach(resumed.run_id)
            return {
                "run": None if state is None else state.run_id,
                "resumed": [resumed.run_id, resumed.stop_reason, resumed.text],
                "numbers": [e.source.seq async for e in found.events() if e.source],
                "texts": [message.content for message in resumed.messages],
            }

    say(asyncio.run(asyncio.wait_for(main(), 90)))


PROGRAMS: dict[str, Callable[..., None]] = {
    function.__name__: function for function in (lost_node, dying_driver, life)
}

if __name__ == "__main__":
    wanted, *rest = sys.argv[1:]
    PROGRAMS[wanted](*rest)
