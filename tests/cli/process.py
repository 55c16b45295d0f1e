"""The command line as a process of its own, and what it leaves. Used by tests/examples too."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Cli:
    """Starts `tulip-actors` in a folder of its own, with a clean environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("OPENAI_", "RAY_", "TULIP_"))
        }

    def start(self, *arguments: object, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tulip_actors.cli", *map(str, arguments)],
            cwd=self.folder,
            env={**self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # what a terminal makes: a process group to send Ctrl-C to
        )

    def run(self, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **env)
        try:
            out, err = process.communicate(timeout=100)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def processes_below(pid: int) -> dict[int, str]:
    """Every process that a process started, directly or not, with its command line."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(after_name[1])
    below: dict[int, str] = {}
    wanted = {pid}
    while wanted:
        wanted = {child for child, parent in parents.items() if parent in wanted}
        for child in wanted:
            below[child] = command_of(child)
    return below


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def still_there(pids: Iterable[int], within_s: float) -> list[int]:
    """Those processes that have not ended in time; each is waited for."""
    left = []
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if not select.select([fd], [], [], within_s)[0]:
                left.append(pid)
        finally:
            os.close(fd)
    return left
