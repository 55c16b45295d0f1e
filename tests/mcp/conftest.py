"""Servers for the tests: what a command line is, and one that listens on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tulip_actors import MCPTools

SDK_SERVER = str(Path(__file__).with_name("sdk_server.py"))
LIGHT_SERVER = str(Path(__file__).with_name("light_server.py"))
START_S = 60.0


class Listening:
    """A server over HTTP, which a test may kill and start again at the same address."""

    def __init__(self, *flags: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._flags = flags
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = subprocess.Popen(
            [sys.executable, SDK_SERVER, "http", str(self.port), *self._flags]
        )
        ends_s = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert self._process.poll() is None, "the server has ended"
                assert time.monotonic() < ends_s, "the server does not listen"
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def listening() -> Iterator[Listening]:
    made = Listening()
    yield made
    made.kill()


def light(*flags: str, **options: Any) -> MCPTools:
    """The server that starts in a moment."""
    return MCPTools.stdio(sys.executable, [LIGHT_SERVER, *flags], **options)


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return status != "Z"


def kill(pid: int) -> None:
    """End a server as a crash would."""
    os.kill(pid, signal.SIGKILL)
