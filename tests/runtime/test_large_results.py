"""Large results pass through and leave nothing behind. On Ray."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from tests.runtime.policy_tools import gives_a_megabyte, maps_over_megabytes
from tests.runtime.support import eventually, play, script, within
from tulip_actors import Agent
from tulip_actors.testing import FunctionModel

pytestmark = pytest.mark.usefixtures("ray_cluster")

RESULTS = int(os.environ.get("TULIP_LARGE_RESULTS", "40"))
"""With TULIP_LARGE_RESULTS=1000 in the environment this is the whole of F44."""
MEGABYTE = 1_050_000
SLACK_BYTES = 30_000_000


@pytest.fixture
def giver(ray_cluster: str) -> Iterator[Agent]:
    """An agent whose tools return long texts."""
    made = Agent(
        FunctionModel(play), [gives_a_megabyte, maps_over_megabytes], name="giver", runtime="ray"
    )
    yield made
    asyncio.run(made.stop())


def store_bytes() -> float:
    """What the object stores of all nodes hold, as their nodes report it."""
    import ray

    name = "object_store_memory"
    return float(ray.cluster_resources()[name] - ray.available_resources()[name])


async def test_f44_large_results_of_a_map_leave_the_object_store_as_it_was(giver: Agent) -> None:
    async def mapped(items: int) -> None:
        prompt = script([("maps_over_megabytes", {"items": items})], "done")
        result = await within(giver.arun(prompt), 100)
        assert result.tool_executions[0].result == str(items * MEGABYTE)

    await mapped(5)
    held = store_bytes()
    await mapped(RESULTS)
    await eventually(lambda: store_bytes() <= held + SLACK_BYTES, "the object store is as it was")
