"""F8, F9, F12 and F18 without a cluster: a process is killed, and another goes on with its run.

What may live here: runs of the inline runtime over stores in files, in processes that are killed
with SIGKILL, and what an agent with the same store makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tulip_actors import Agent
from tulip_actors.core.runs import RunRequest, RunStarted
from tulip_actors.memory.backends import FileCheckpointer, SQLiteBackend
from tulip_actors.testing import ScriptedModel

AT = datetime(2026, 1, 2, tzinfo=UTC)
Store = FileCheckpointer | SQLiteBackend
Opens = Callable[[], Store]


@pytest.fixture(params=["file", "sqlite"])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Opens:
    """Opens the store of this test, as each process does for itself."""
    if request.param == "file":
        return lambda: FileCheckpointer(tmp_path / "threads")
    return lambda: SQLiteBackend(tmp_path / "runs.db")


async def test_c38_the_events_of_a_run_that_was_lost_before_its_first_begin_with_number_0(
    opens: Opens,
) -> None:
    store = opens()
    epoch = await store.acquire("t", "run_1", 60)
    request = RunRequest("run_1", "t", "hello")
    await store.append("t", epoch, [RunStarted("run_1", 0, AT, request, "agent_1")])
    async with Agent(ScriptedModel(["hi"]), runtime="inline", checkpointer=store) as agent:
        events = [event async for event in agent.attach("run_1").events()]
    assert [event.event_type for event in events] == ["run_recovered", "think", "terminate"]
    assert [event.source.seq for event in events if event.source] == [0, 1, 2]
