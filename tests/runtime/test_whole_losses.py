"""A node, a program and a whole cluster are lost; the runs go on elsewhere, or later. On Ray."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.recovery_programs import PAYMENTS
from tests.runtime.support import collected, within
from tulip_actors import Agent

ROOT = Path(__file__).parents[2]
NODE_LOSS_S = 30.0
"""On a busy machine. On a quiet one it is below 5: see benchmarks/RESULTS.md."""


def begun(name: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """One of `recovery_programs`, in a session of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "TULIP_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.recovery_programs", name, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "TULIP_QUIET": "1", **environment},
        start_new_session=True,
    )


def told(name: str, *arguments: str, **environment: str) -> Any:
    """What a program told that has ended well."""
    process = begun(name, *arguments, **environment)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err[-3000:]
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1])


def test_f8_a_run_whose_node_is_lost_goes_on_on_another(tmp_path: Path) -> None:
    seen = told("lost_node", str(tmp_path))
    assert seen["after"] not in ("", seen["before"])
    assert seen["numbers"] == list(range(len(seen["numbers"])))
    assert seen["text"] == "done"
    assert len(seen["paid"]) == len(set(seen["paid"])), "nothing is paid twice"
    unknown = [error for error in seen["errors"] if "may have happened" in error]
    assert seen["errors"] == unknown
    assert len(seen["paid"]) >= PAYMENTS - len(unknown)
    assert seen["took_s"] < NODE_LOSS_S


@pytest.fixture
def driver(ray_cluster: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    auth = os.environ.get("RAY_AUTH_MODE", "disabled")
    process = begun("dying_driver", str(tmp_path), RAY_ADDRESS=ray_cluster, RAY_AUTH_MODE=auth)
    yield process
    process.kill()
    process.communicate()


async def test_f17_a_new_process_gets_the_rest_of_the_events_and_the_result_of_a_dead_drivers_run(
    driver: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert driver.stdout is not None
    lines: list[tuple[str, str, int]] = []
    while len(lines) < 5:
        line = await within(asyncio.to_thread(driver.stdout.readline))
        lines.append(tuple(json.loads(line)))
    os.kill(driver.pid, signal.SIGKILL)
    run_id, cursor, number = lines[-1]
    handle = Agent.attach(run_id, cursor, runtime="ray")
    events = await collected(handle.events(), 90)
    numbers = [event.source.seq for event in events if event.source]
    assert numbers == list(range(number + 1, number + 1 + len(numbers)))
    assert (await within(handle.result())).text == "done"
    paid = (tmp_path / "log.ledger").read_text().split()
    assert paid == [str(number) for number in range(PAYMENTS)]


def test_a_conversation_goes_on_after_its_whole_cluster_was_stopped(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    first = told("life", "1", url, str(tmp_path))
    second = told("life", "2", url, str(tmp_path))
    assert second["run"] == first["runs"][1]
    assert second["resumed"] == [first["runs"][1], "complete", "asked"]
    assert second["texts"][-1] == "asked"
    assert second["numbers"] == list(range(len(second["numbers"]))), "of both segments"
