"""A real MCP server in a separate process, over stdio, streamable HTTP or SSE. It appends a line about itself to a file.

`python echo_server.py stdio LOG`, or `python echo_server.py http|sse`, which prints its URL.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import uvicorn

try:
    from mcp.server.mcpserver import MCPServer
    from mcp_types import ToolAnnotations

    server = MCPServer("echo", version="3.2.1", log_level="ERROR")
except ModuleNotFoundError:  # mcp 1.x
    from mcp.server.fastmcp import FastMCP
    from mcp.types import ToolAnnotations

    server = FastMCP("echo", log_level="ERROR")
    server._mcp_server.version = "3.2.1"


@server.tool(annotations=ToolAnnotations.model_validate({"readOnlyHint": True}))
def echo(text: str) -> str:
    return text


@server.tool()
def erase() -> str:
    raise NotImplementedError


class OnlyWithToken:
    """Refuses requests that do not bring the token."""

    def __init__(self, app) -> None:  # type: ignore[no-untyped-def]
        self.app = app

    async def __call__(self, scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != b"Bearer open-sesame":
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self.app(scope, receive, send)


def main(mode: str, log: str = "") -> None:
    if mode == "stdio":
        with Path(log).open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), "env": dict(os.environ)}) + "\n")
        server.run("stdio")
        return
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        app = server.streamable_http_app() if mode == "http" else server.sse_app()
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/{'mcp' if mode == 'http' else 'sse'}", flush=True)
        config = uvicorn.Config(OnlyWithToken(app), log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


main(*sys.argv[1:])
