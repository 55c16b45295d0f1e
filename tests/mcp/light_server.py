"""A Model Context Protocol server without the SDK, over stdio, that starts in a moment.

    light_server.py [--stubborn]       --stubborn: does not end when its input does, nor on SIGTERM

Written from the protocol of 2025-06-18: what the SDK's client meets in servers of others.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_waiting: dict[object, str] = {}
"""Calls of `wait` under way: their request ids and marks."""


def add(a: int, b: int = 1) -> str:
    """Add two numbers."""
    return str(a + b)


def pid() -> str:
    """The server's process."""
    return str(os.getpid())


def die(words: str) -> str:
    """End the process in the middle of a call."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()
    os._exit(3)


TOOLS = {
    "add": {"a": "integer", "b": "integer"},
    "pid": {},
    "die": {"words": "string"},
    "wait": {"mark": "string"},
}


def answer_to(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result of a request. Raises KeyError for a method that it does not know."""
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "light", "version": "1"},
        }
    if method == "tools/list":
        return {
            "tools": [
                {
                    "name": name,
                    "description": f"{name} of the light server",
                    "inputSchema": {
                        "type": "object",
                        "properties": {one: {"type": kind} for one, kind in arguments.items()},
                    },
                }
                for name, arguments in TOOLS.items()
            ]
        }
    if method == "tools/call":
        called = {"add": add, "pid": pid, "die": die}[params["name"]]
        text = called(**params.get("arguments", {}))  # type: ignore[operator]
        return {"content": [{"type": "text", "text": text}]}
    raise KeyError(method)


def take(message: Mapping[str, Any]) -> None:
    """Answer a message; a `wait` is answered by nobody, and ended by its cancellation."""
    method, params = message["method"], message.get("params", {})
    if method == "notifications/cancelled":
        mark = _waiting.pop(params["requestId"], None)
        if mark is not None:
            Path(f"{mark}.ended").touch()
    elif method == "tools/call" and params["name"] == "wait":
        _waiting[message["id"]] = mark = params["arguments"]["mark"]
        Path(f"{mark}.part").write_text(pid())
        Path(f"{mark}.part").rename(f"{mark}.started")
    elif "id" in message:
        try:
            answer = {"result": answer_to(method, params)}
        except KeyError:
            answer = {"error": {"code": -32601, "message": "no such method"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Serve to the end of the input."""
    is_stubborn = "--stubborn" in sys.argv
    if is_stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        take(json.loads(line))
    while is_stubborn:
        time.sleep(1)


if __name__ == "__main__":
    main()
