"""Which node gets the next worker, and what a cluster can hold."""

from __future__ import annotations

from typing import Any

import pytest

from tulip_actors.core.calls import ToolDemand
from tulip_actors.core.frozen import FrozenDict
from tulip_actors.runtime.cluster_size import ClusterSize


def cluster(*nodes: dict[str, Any]) -> ClusterSize:
    """A cluster of nodes a, b, c ... with these resources; this process is on the first."""
    size = ClusterSize()
    size.node_id = "a"
    size._nodes = [
        {"NodeID": "abc"[n], "Resources": resources, "Labels": {"zone": f"z{n}"}}
        for n, resources in enumerate(nodes)
    ]
    return size


def test_workers_are_spread_over_nodes_the_own_one_first() -> None:
    size = cluster({"CPU": 1}, {"CPU": 8}, {"CPU": 1})
    assert size.emptiest({}, per_cpu=False) == "a"
    assert size.emptiest({"a": 1}, per_cpu=False) == "b"
    assert size.emptiest({"a": 1, "b": 1}, per_cpu=False) == "c"


def test_workers_of_plain_functions_are_spread_over_cpus() -> None:
    size = cluster({"CPU": 1}, {"CPU": 8}, {"CPU": 1})
    assert size.emptiest({"a": 1, "b": 3, "c": 1}, per_cpu=True) == "b"
    assert size.emptiest({"a": 1, "b": 8}, per_cpu=True) == "c"


def test_a_head_without_cpus_gets_no_workers_where_others_have_some() -> None:
    assert cluster({"memory": 1}, {"CPU": 2}).emptiest({"b": 5}, per_cpu=False) == "b"
    assert cluster({"memory": 1}).emptiest({}, per_cpu=True) == "a"
    assert ClusterSize().emptiest({}, per_cpu=True) is None


@pytest.mark.parametrize(
    ("demand", "fitting"),
    [
        (ToolDemand(), None),
        (ToolDemand(num_cpus=1), 10),
        (ToolDemand(num_cpus=2), 4),
        (ToolDemand(num_cpus=1, resources=FrozenDict(disk=1)), 3),
        (ToolDemand(num_cpus=1, label_selector=FrozenDict(zone="z0")), 1),
        (ToolDemand(num_gpus=1), 0),
    ],
)
def test_how_many_calls_a_cluster_can_hold(demand: ToolDemand, fitting: int | None) -> None:
    size = cluster({"CPU": 1}, {"CPU": 8, "disk": 3}, {"CPU": 1})
    assert size.fitting(demand) == fitting


def test_what_is_missing_is_named_with_the_most_that_a_node_has() -> None:
    demand = ToolDemand(num_gpus=1, label_selector=FrozenDict(zone="z9"))
    text = cluster({"CPU": 1}, {"CPU": 8, "node:1.2.3.4": 1}).missing(demand)
    assert "GPU=1, label zone=z9" in text
    assert "the most that one has: CPU=8" in text
