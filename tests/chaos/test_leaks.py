"""A small `scripts/chaos --leaks`: what cancelled runs leave behind."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.chaos.leaks import SETTLE_S, cancelled, held
from tests.chaos.refunds import TOOLS, cashier
from tests.runtime.support import eventually, within
from tulip_actors import Agent
from tulip_actors.testing import FunctionModel

pytestmark = [pytest.mark.usefixtures("ray_cluster"), pytest.mark.slow]


async def test_f14_cancelled_runs_leave_no_process_connection_actor_or_object(
    tmp_path: Path,
) -> None:
    async with Agent(FunctionModel(cashier), TOOLS, name="cashier", runtime="ray") as agent:
        await within(cancelled(agent, tmp_path, Random(1), 10), 60)
        before = held()
        await within(cancelled(agent, tmp_path, Random(2), 20), 60)
        await eventually(lambda: held().is_about(before), "all is let go of", SETTLE_S)
        assert (await agent.observe()).active_runs == 0
