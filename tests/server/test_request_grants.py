"""Requests outside of runs: they use the tokens they bring and the credentials they are granted, which no one else learns."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ambient_runner.server import platform
from ambient_runner.services.credentials import CredentialSubject
from tests.machine_speed import HANG_SECONDS, unless_hung
from tests.server.demo_server import error_of
from tests.server.worker import WorkerBridge
from tests.services.mcp_paths import MCP_SERVER
from tests.services.remotes import git_server, make_repo
from tests.services.world import BYTES, by_header, facts, repository, server, settings_of, talk


def said_in(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


async def test_the_token_a_request_brings_opens_its_own_host_and_is_a_secret(tmp_path: Path) -> None:
    make_repo(tmp_path / "origin" / "api", {"README": "hi"})
    settings = settings_of(tmp_path, git_schemes=("http",), git_private=True, default_thread="t")
    granted: dict[str, str] = {}

    async def give(asker: CredentialSubject) -> Mapping[str, str]:
        return granted

    with git_server(tmp_path / "origin", login="x-access-token:brought-token-1") as remote:
        granted["GH_HOST"] = f"127.0.0.1:{remote.port}"
        async with server(WorkerBridge(), settings, credentials=give) as client:
            without = await client.post("/repos/add", json={"url": remote.url("api")})
            brought = {"X-GitHub-Token": "brought-token-1"}
            added = await client.post("/repos/add", json={"url": remote.url("api")}, headers=brought)
            said = without.text + added.text + (await client.get("/repos/status")).text
    assert (without.status_code, added.status_code) == (502, 200)
    assert "brought-token" not in said
    written = [path for path in (tmp_path / "workspaces").rglob("*") if path.is_file()]
    assert [path for path in written if b"brought-token" in path.read_bytes()] == []


async def test_the_token_of_a_request_is_redacted_in_its_response_only(tmp_path: Path) -> None:
    """A word in one person's header was taken out of everybody's texts until the server was started again."""
    url = repository(tmp_path / "origin" / "thousand-words", {})

    async def give(asker: CredentialSubject) -> Mapping[str, str]:
        return {"OTHER": "artifacts"} if asker.actor.owner == "alice" else {}

    alice, bob = {"x-owner": "alice"}, {"x-owner": "bob"}
    settings = settings_of(tmp_path, default_thread="t")
    async with server(WorkerBridge(mcp=False), settings, authorize=by_header, credentials=give) as client:
        await talk(client, "hello", "u1", headers=alice)
        brought = {**alice, "X-GitHub-Token": "thousand"}
        added = await client.post("/repos/add", json={"url": url, "name": "api"}, headers=brought)
        found = await facts(client, headers=alice)
        await client.post("/files?name=thousand", content=b"x", headers={**bob, **BYTES})
        after = await talk(client, "hello", "u1", headers=bob)
    assert added.status_code == 200
    (noted,) = [value for name, value in found if name == "ambient:repo_added"]
    assert noted["url"] == url.replace("thousand", "[redacted]")
    assert "[redacted]" not in said_in(after)
    assert "/artifacts" in said_in(after)


async def test_an_error_does_not_repeat_the_request(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "api", {})
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        await talk(client, "hello", "u1")
        brought = {"X-GitHub-Token": "spelling"}
        failed = await client.post("/repos/add", json={"url": url, "branch": "none"}, headers=brought)
        found = await facts(client)
    assert failed.status_code == 422
    assert "[redacted]" in failed.json()["error"]["message"]
    assert "spelling" not in failed.text + json.dumps(found)


@pytest.mark.parametrize("header", ["X-GitHub-Token", "X-GitLab-Token"])
@pytest.mark.parametrize("token", ["a", "sevenup", "x" * 4097])
async def test_a_token_of_no_likely_length_is_refused(tmp_path: Path, header: str, token: str) -> None:
    url = repository(tmp_path / "origin" / "api", {})
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        for path, body in (("/repos/add", {"url": url}), ("/workflow", {"gitUrl": url})):
            assert error_of(await client.post(path, json=body, headers={header: token})) == (422, "invalid_input")


async def test_mcp_status_connects_to_the_servers_with_the_granted_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "McpStatus", partial(platform.McpStatus, timeout=HANG_SECONDS))
    log = tmp_path / "log"
    servers = {
        "echo": {
            "command": sys.executable,
            "args": [MCP_SERVER, "stdio", str(log)],
            "env": {"TOKEN": "${GITHUB_TOKEN}"},
            "displayName": "Echo chamber",
        },
        "off": {"url": "https://off.example", "disabled": True},
        "bad": {"command": 1},
    }
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}))

    async def give(asker: CredentialSubject) -> Mapping[str, str]:
        return {"GITHUB_TOKEN": f"token-of-{asker.actor.owner}"}

    settings = settings_of(tmp_path, mcp_config=str(config), default_thread="t")
    with unless_hung():
        async with server(WorkerBridge(file_system=False), settings, credentials=give) as client:
            found = await client.get("/mcp/status")
            again = await client.get("/mcp/status")
    children = [json.loads(line) for line in log.read_text().splitlines()]
    assert found.json() == again.json()
    assert found.json() == {
        "servers": [
            {
                "name": "echo",
                "displayName": "Echo chamber",
                "status": "connected",
                "version": "3.2.1",
                "tools": [
                    {"name": "echo", "annotations": {"readOnlyHint": True}},
                    {"name": "erase", "annotations": {}},
                ],
            },
            {"name": "off", "displayName": "off", "status": "disabled", "version": "", "tools": []},
            {
                "name": "bad",
                "displayName": "bad",
                "status": "invalid",
                "version": "",
                "tools": [],
                "error": "The MCP server 'bad' needs a `command`. It is left out.",
            },
        ],
        "totalCount": 3,
    }
    assert [child["env"]["TOKEN"] for child in children] == ["token-of-local"]


async def test_a_source_of_credentials_that_fails_fails_the_request_and_not_the_server(tmp_path: Path) -> None:
    async def fail(asker: CredentialSubject) -> Mapping[str, str]:
        raise RuntimeError("the token was granted-token")

    url = repository(tmp_path / "origin" / "api", {})
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t"), credentials=fail) as client:
        added = await client.post("/repos/add", json={"url": url})
        status = await client.get("/mcp/status")
        well = await client.get("/repos/status")
    assert (error_of(added), error_of(status)) == ((502, "credentials_error"), (502, "credentials_error"))
    assert "granted-token" not in added.text + status.text
    assert well.status_code == 200
