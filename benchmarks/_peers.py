"""The same work on other libraries, each in a process of its own, printed beside ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

QUIET = {
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LOGFIRE_SEND_TO_LOGFIRE": "false",
}


def side_by_side(names: Sequence[str], how: str, work: Mapping[int, int]) -> None:
    """Print us per turn of ours, and of those that are installed. `work`: runs, by their turns;
    `how` as in `benchmarks.peers`."""
    turns = " and ".join(map(str, work))
    print(f"side by side ({how}), us per turn at {turns} turns:")
    ours = _figures("tulip_actors", how, work)
    if ours is None:
        return
    print(_row("tulip_actors", ours, ours))
    for name in names:
        theirs = _figures(name, how, work)
        if theirs is not None:
            print(_row(name, theirs, ours), flush=True)


def _row(name: str, theirs: Sequence[float], ours: Sequence[float]) -> str:
    columns = [f"{them:10.1f} ({them / us:.2f} x)" for them, us in zip(theirs, ours, strict=True)]
    return f"  {name:14}{''.join(columns)}"


def _figures(name: str, how: str, work: Mapping[int, int]) -> list[float] | None:
    asked = [f"{turns}={runs}" for turns, runs in work.items()]
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers", name, how, *asked],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **QUIET},
    )
    lines = ended.stdout.split("\n")[:-1]
    if ended.returncode == 0 and len(lines) == len(work):
        return [float(line.split()[1]) for line in lines]
    told = (ended.stderr.strip() or "no figures").split("\n")[-1]
    missing = told.startswith("ModuleNotFoundError")
    print(f"  {name:14}{'not installed' if missing else 'failed'}: {told:.150}")
    return None
