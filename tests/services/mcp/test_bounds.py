"""What a look at an MCP server may cost: bytes, and how often it is looked at while tokens change."""

from __future__ import annotations

import gzip
import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mcp
import pytest

from ambient_runner.services.credentials import CredentialSubject
from ambient_runner.services.mcp import status as status_module
from ambient_runner.services.mcp.config import McpServer, ResolvedMcpServers, load_layer, resolve_servers
from ambient_runner.services.mcp.status import McpStatus
from tests.machine_speed import HANG_SECONDS, unless_hung
from tests.raw import Raw, endless, raw_server
from tests.server.worker import WorkerBridge
from tests.services.mcp_paths import MCP_SERVER
from tests.services.world import by_header, mcp_file, server, settings_of

TOO_MUCH = 64 << 20
TELLTALE = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "initialize":
        about = {"name": "telltale", "version": os.environ["T"]}
        result = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    elif request.get("method") == "tools/list":
        result = {"tools": [{"name": os.environ["T"], "inputSchema": {"type": "object"}}]}
    elif "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""
"""A server that says its token, as its version and as a tool."""


BROKEN_STREAM_TIMEOUT = 2.0  # seconds; mcp 1.x waits for the timeout after an event stream has broken


def of_http(kind: str, url: str) -> ResolvedMcpServers:
    return resolve_servers([load_layer({"mcpServers": {"loud": {"type": kind, "url": f"{url}/mcp"}}}, "this")], {})


@pytest.mark.parametrize(
    ("kind", "content"),
    [("http", b"application/json"), ("http", b"text/event-stream"), ("sse", b"text/event-stream")],
)
async def test_a_server_that_never_stops_sending_is_read_up_to_a_limit(kind: str, content: bytes) -> None:
    """As JSON it was read and kept for the whole time of a look, as fast as it came."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: " + content + b"\r\n\r\n"
    with unless_hung(), raw_server(endless(head + b'data: "', most=TOO_MUCH)) as loud:
        async with McpStatus(timeout=HANG_SECONDS if hasattr(mcp, "Client") else BROKEN_STREAM_TIMEOUT) as status:
            (row,) = await status.probe(of_http(kind, loud.url))
        assert row["status"] == "failed"
        assert loud.sent < TOO_MUCH


async def test_a_compressed_response_is_not_expanded() -> None:
    """A few kilobytes can be unpacked to gigabytes: what is packed, though the client did not accept it, is not unpacked."""
    packed = gzip.compress(b'{"jsonrpc": "2.0", "id": 1, "result": {}}' + b" " * (1 << 20))
    requests: list[bytes] = []

    def speak(server: Raw, client: socket.socket) -> None:
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"
        )
        server.send(client, head + packed)

    with unless_hung(), raw_server(speak, requests.append) as dense:
        async with McpStatus(timeout=HANG_SECONDS) as status:
            (row,) = await status.probe(of_http("http", dense.url))
    assert row["status"] == "failed"
    assert b"gzip" not in requests[0]


def with_token(log: Path, token: str, written: str = "the same") -> ResolvedMcpServers:
    config = {"type": "stdio", "command": sys.executable, "args": [MCP_SERVER, "stdio", str(log)], "env": {"T": token}}
    return ResolvedMcpServers(servers=(McpServer(name="echo", display_name="Echo", config=config, digest=written),))


def started(log: Path) -> list[str]:
    return [json.loads(line)["env"]["T"] for line in log.read_text().splitlines()]


async def test_a_new_token_starts_no_new_probe_but_another_thread_does(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with unless_hung():
        async with McpStatus(timeout=HANG_SECONDS) as status:
            for token in ("1", "2", "3"):
                rows = await status.probe(with_token(log, token), subject="ann")
                assert [row["status"] for row in rows] == ["connected"]
            await status.probe(with_token(log, "4"), subject="bob")
            await status.probe(with_token(log, "5", "another"), subject="ann")
    assert started(log) == ["1", "4", "5"]


async def test_a_new_token_is_tried_where_the_old_one_failed_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(token: str) -> ResolvedMcpServers:
        code = f"open({str(tmp_path / 'log')!r}, 'a').write({token!r})"
        config: dict[str, Any] = {"type": "stdio", "command": sys.executable, "args": ["-c", code], "env": {"T": token}}
        return ResolvedMcpServers(servers=(McpServer(name="no", display_name="no", config=config, digest="x"),))

    with unless_hung():
        async with McpStatus(timeout=HANG_SECONDS) as status:
            for token in ("1", "2", "3"):
                await status.probe(refusing(token))
            monkeypatch.setattr(status_module, "_RETRY_DELAY", 0.0)
            for token in ("3", "4", "4"):
                await status.probe(refusing(token))
    assert (tmp_path / "log").read_text() == "134"


async def test_asking_again_and_again_while_tokens_rotate_starts_one_process(tmp_path: Path) -> None:
    """Every request had a token of its own, and so a process of its own."""
    log, values = tmp_path / "log", iter(range(100))

    async def rotating(asker: CredentialSubject) -> Mapping[str, str]:
        return {"GITHUB_TOKEN": f"short-lived-{next(values)}"}

    entry = {"command": sys.executable, "args": [MCP_SERVER, "stdio", str(log)], "env": {"T": "${GITHUB_TOKEN}"}}
    settings = settings_of(tmp_path, mcp_config=mcp_file(tmp_path, {"s": entry}))
    async with server(WorkerBridge(), settings, authorize=by_header, credentials=rotating) as client:
        for _ in range(3):
            response = await client.get("/mcp/status?threadId=t", headers={"x-owner": "ann"})
            assert [row["status"] for row in response.json()["servers"]] == ["connected"]
        await client.get("/mcp/status?threadId=t", headers={"x-owner": "bob"})
    assert started(log) == ["short-lived-0", "short-lived-3"]


async def test_a_status_found_with_an_old_token_does_not_contain_it(tmp_path: Path) -> None:
    """The answer is kept for a while, and only the newest token is taken out of what a request says."""
    values = iter(["first-token-0123", "second-token-4567"])

    async def rotating(asker: CredentialSubject) -> Mapping[str, str]:
        return {"GITHUB_TOKEN": next(values)}

    entry = {"command": sys.executable, "args": ["-c", TELLTALE], "env": {"T": "${GITHUB_TOKEN}"}}
    settings = settings_of(tmp_path, mcp_config=mcp_file(tmp_path, {"s": entry}))
    async with server(WorkerBridge(), settings, credentials=rotating) as client:
        rows = [(await client.get("/mcp/status?threadId=t")).json()["servers"] for _ in range(2)]
    assert rows[0] == rows[1]
    assert rows[0][0]["status"] == "connected"
    assert "token" not in str(rows)
