"""What the cluster has, as far as it decides how many workers make sense and whether any can be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from tulip_actors.core.calls import ToolDemand


class ClusterSize:
    """The living nodes and their resources, by Ray's names; as of the last `look`."""

    def __init__(self) -> None:
        self.node_id = ""
        self._nodes: Sequence[Mapping[str, Any]] = ()

    async def look(self) -> None:
        """Ask the cluster."""
        self.node_id = ray.get_runtime_context().get_node_id()
        nodes = await asyncio.to_thread(ray.nodes)
        self._nodes = [node for node in nodes if node["Alive"]]

    @property
    def nodes(self) -> int:
        """How many nodes live."""
        return len(self._nodes)

    @property
    def cpus(self) -> int:
        """The CPUs of all nodes, as Ray counts them."""
        return int(sum(node["Resources"].get("CPU", 0) for node in self._nodes))

    def emptiest(self, workers: Mapping[str, int], *, per_cpu: bool) -> str | None:
        """The node that should have the next worker: they are spread evenly over the nodes, or over
        their CPUs. A node without CPUs is left out where others have some; this one comes first
        among equals. `workers` is how many each node has."""
        with_cpus = [node for node in self._nodes if node["Resources"].get("CPU", 0) >= 1]

        def load(node: Mapping[str, Any]) -> tuple[float, bool]:
            weight = node["Resources"].get("CPU", 0) if per_cpu else 1
            name = node["NodeID"]
            return workers.get(name, 0) / max(weight, 1), name != self.node_id

        nodes = with_cpus or self._nodes
        return str(min(nodes, key=load)["NodeID"]) if nodes else None

    def fitting(self, demand: ToolDemand) -> int | None:
        """How many such calls the cluster can hold at once; None if it has no bound for them."""
        wanted = _wanted(demand)
        if not wanted:
            return None
        return sum(
            min(int(node["Resources"].get(name, 0) // amount) for name, amount in wanted.items())
            for node in self._nodes
            if _has_labels(node, demand)
        )

    async def can_meet(self, demand: ToolDemand) -> bool:
        """Whether some node has enough, were it empty. Looks again."""
        await self.look()
        wanted = _wanted(demand)
        return any(
            _has_labels(node, demand)
            and all(node["Resources"].get(name, 0) >= amount for name, amount in wanted.items())
            for node in self._nodes
        )

    def missing(self, demand: ToolDemand) -> str:
        """Why a demand cannot be met, for who made it."""
        wanted = [f"{name}={amount:g}" for name, amount in _wanted(demand).items()]
        wanted += [f"label {name}={value}" for name, value in demand.label_selector.items()]
        has: dict[str, float] = {}
        for node in self._nodes:
            for name, amount in node["Resources"].items():
                if ":" not in name:
                    has[name] = max(has.get(name, 0), amount)
        most = ", ".join(f"{name}={amount:g}" for name, amount in sorted(has.items()))
        return (
            f"no node of the cluster has {', '.join(wanted)}, which the tool demands; "
            f"the most that one has: {most}"
        )


def _wanted(demand: ToolDemand) -> dict[str, float]:
    """A demand by Ray's names, without what is zero."""
    wanted = {
        "CPU": demand.num_cpus or 0,
        "GPU": demand.num_gpus or 0,
        "memory": demand.memory_bytes or 0,
        **{name: float(str(amount)) for name, amount in demand.resources.items()},
    }
    return {name: amount for name, amount in wanted.items() if amount}


def _has_labels(node: Mapping[str, Any], demand: ToolDemand) -> bool:
    """Whether a node has the labels asked for; Ray's operators (`!v`, `in(...)`) are left to it."""
    labels = node.get("Labels", {})
    return all(
        labels.get(name) == value
        for name, value in demand.label_selector.items()
        if isinstance(value, str) and not value.startswith(("!", "in("))
    )
