"""A Model Context Protocol server for the tests: a program of its own, over stdio or HTTP.

server.py stdio [--stubborn]       --stubborn: does not end when its input does
server.py http PORT [--legacy]     --legacy: knows only sessions, the protocol until 2025
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import METHOD_NOT_FOUND

server = MCPServer("test", log_level="ERROR")


@server.tool()
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def environment() -> list[str]:
    """The names of the variables it was given."""
    return sorted(os.environ)


@server.tool()
async def nap(seconds: float) -> str:
    """Sleep."""
    await anyio.sleep(seconds)
    return "rested"


@server.tool()
def fail(message: str) -> str:
    """Raise; what is named as $NAME is the value of that variable."""
    raise ToolError(os.path.expandvars(message))


@server.tool()
def header(name: str, ctx: Context[Any]) -> str:
    """A header of the request."""
    request = ctx.request_context.request
    return str(request.headers.get(name)) if request else "no request"


@server.tool(name="take.picture", structured_output=False)
def picture() -> list[object]:
    """A text and an image."""
    return ["a tulip", Image(data=bytes(3000), format="png")]


@server.tool(structured_output=False)
def lines() -> list[str]:
    """Two texts, without structure."""
    return ["one", "two"]


@server.tool()
def table() -> dict[str, int]:
    """An object."""
    return {"rows": 2}


class Legacy:
    """Lets a server look like one of 2025: it knows no `server/discover`."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await receive()
        asked = json.loads(body["body"])
        if asked["method"] != "server/discover":
            parts = iter([body])

            async def replay() -> Any:
                return next(parts, None) or await receive()

            await self._app(scope, replay, send)
            return
        error = {"code": METHOD_NOT_FOUND, "message": "no such method"}
        answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode()
        start = {"status": 400, "headers": [(b"content-type", b"application/json")]}
        await send({"type": "http.response.start", **start})
        await send({"type": "http.response.body", "body": answer})


def main() -> None:
    """Serve until ended."""
    if sys.argv[1] == "http":
        app: Any = server.streamable_http_app()
        if "--legacy" in sys.argv:
            app = Legacy(app)
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
    else:
        server.run("stdio")


if __name__ == "__main__":
    main()
