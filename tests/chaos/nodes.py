"""A cluster of simulated nodes, of which one at a time is lost.

What may live here: how such a node begins and ends. The head has the settings of docs/cluster.md
and is never lost: the services actor lives there, and Ray's own memory.
"""

from __future__ import annotations

import os
import signal
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from tests.runtime.recovery_programs import HEALTH
from tulip_actors import ActorOptions, Agent

SPOT = "spot"
"""The resource of the nodes that may be lost."""
ON_SPOT = ActorOptions(resources={SPOT: 0.1})
SPOT_NODES = 2


class SpotNodes(AbstractContextManager["SpotNodes"]):
    """A head and two nodes, one CPU each; drivers of this process connect to it."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        settings = {"num_cpus": 1, "_system_config": HEALTH}
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=settings)
        self._nodes: list[Any] = []
        os.environ["RAY_ADDRESS"] = self._cluster.address
        self.fill()

    async def lose(self, agent: Agent, *, home: bool) -> None:
        """Kill the raylet of the node of the agent's process, or of the other node. What runs
        there goes on until it notices: it must be kept from writing, not only be replaced."""
        there = (await agent.observe()).node_id
        lost = next(one for one in self._nodes if (one.node_id == there) is home)
        self._nodes.remove(lost)
        os.kill(lost.all_processes["raylet"][0].process.pid, signal.SIGKILL)

    def fill(self) -> None:
        """Put a new node in the place of a lost one. Blocks, as Ray wants it in the main thread."""
        while len(self._nodes) < SPOT_NODES:
            self._nodes.append(self._cluster.add_node(num_cpus=1, resources={SPOT: 1}))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import ray

        ray.shutdown()
        self._cluster.shutdown()
