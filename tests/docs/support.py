"""Running programs as scripts, several in one process, since starting one takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

RUN_THEM = """
import contextlib, io, json, runpy, sys, traceback
told = []
for path in sys.argv[1:]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_path(path, run_name="__main__")
        except BaseException:
            traceback.print_exc(file=out)
            out.write("FAILED")
    told.append(out.getvalue())
print(json.dumps(told))
"""
"""Runs programs one after the other as scripts; prints what each printed."""


def printed_by(programs: Sequence[Path], folder: Path, **environment: str) -> list[str]:
    """What each program printed; the text of one that failed ends with FAILED."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_THEM, *map(str, programs)],
        capture_output=True,
        check=False,
        text=True,
        timeout=110,
        cwd=folder,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    told: list[str] = json.loads(done.stdout.splitlines()[-1])
    return told


def on_runtime(runtime: str) -> dict[str, str]:
    """The environment in which a program runs on that runtime; on Ray, on the tests' own."""
    if runtime != "ray":
        return {"TULIP_RUNTIME": runtime}
    import ray

    return {"TULIP_RUNTIME": runtime, "RAY_ADDRESS": str(ray.get_runtime_context().gcs_address)}
