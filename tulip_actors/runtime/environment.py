"""What Ray reads from the environment when it is first imported; so this comes before.

What may live here: defaults of environment variables, without Ray. What a user has set stays.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

CONNECT_TIMEOUT_S = 3.0

DEFAULTS = {
    # Many small actors are this package's way; the advice to use fewer is no news to its users.
    "RAY_DEDUP_LOGS_SKIP_REGEX": r"PYTHON worker processes have been started on node",
    # How soon a call to an actor that just died fails: 1 s by default.
    "RAY_timeout_ms_task_wait_for_death_info": "100",
}


def prepare() -> None:
    """Set the defaults, and authenticate to a cluster on this machine if there is a token.

    Where Ray has been imported already it is too late: it has read what it reads, and its parts
    would disagree.

    Ray starts with authentication wherever it finds a token, but attaches without it. Of another
    machine's cluster nothing can be presumed: there RAY_AUTH_MODE says it.
    """
    if "ray" in sys.modules:
        return
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    if "RAY_AUTH_MODE" in os.environ or not _has_token():
        return
    address = os.environ.get("RAY_ADDRESS", "auto")
    if address in ("auto", "local") or is_on_this_machine(address):
        os.environ["RAY_AUTH_MODE"] = "token"


def is_on_this_machine(address: str) -> bool:
    """Whether HOST:PORT is this machine's. False as well when nothing answers there."""
    host, port = host_and_port(address)
    if port is None:
        return False
    try:
        with socket.create_connection((host, port), CONNECT_TIMEOUT_S) as probe:
            return bool(probe.getsockname()[0] == probe.getpeername()[0])
    except OSError:
        return False


def host_and_port(address: str) -> tuple[str, int | None]:
    """The parts of HOST:PORT or ray://HOST:PORT; the port is None for anything else."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        return address, None
    return host.strip("[]"), int(port)


def _has_token() -> bool:
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    token = Path(path) if path else Path.home() / ".ray" / "auth_token"
    return "RAY_AUTH_TOKEN" in os.environ or token.exists()
