"""Who holds a thread, told by process, for backends that several processes of one machine share.

A process that was killed cannot give its threads back. Whoever can see that it has ended need not
wait for its lease.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


def this_process() -> str:
    """This process: its id, when it began (ids come back), and where that id means something."""
    return f"{_process(os.getpid())}:{_place()}"


def is_held_by_another(
    owner: str | None, lease_ends_s: float, process: str, *, than: str, now_s: float
) -> bool:
    """Whether somebody else than the owner `than` may write, and is still there to do so."""
    return owner not in (None, than) and lease_ends_s > now_s and is_alive(process)


def is_alive(process: str) -> bool:
    """False for a process that has ended. One that cannot be seen from here counts as alive."""
    pid, _, rest = process.partition(":")
    if not pid.isdigit() or rest.partition(":")[2] != _place():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return process == f"{_process(int(pid))}:{_place()}"


def _process(pid: int) -> str:
    return f"{pid}:{_began(pid)}"


def _began(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):  # no such process, or no /proc
        return ""


@cache
def _place() -> str:
    """The boot of this machine and the namespace of process ids: a container has its own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:  # no /proc
        return ""
