"""Errors that name the setting which caused them. A file of the operator that is certainly a mistake stops the start."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI

from ambient_runner import Settings, add_ambient_endpoints, create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.cli.errors import find_error
from ambient_runner.errors import ConfigError
from ambient_runner.services.mcp.config import load_layer, resolve_servers
from tests.server.worker import WorkerBridge
from tests.services.world import mcp_file, server, settings_of


@pytest.mark.parametrize("url", ["file:///srv/app", "/srv/app", "http://host.example/app"])
@pytest.mark.parametrize(("route", "member"), [("/repos/add", "url"), ("/workflow", "gitUrl")])
async def test_a_scheme_that_is_not_allowed_is_refused_with_the_setting_that_allows_it(
    tmp_path: Path, route: str, member: str, url: str
) -> None:
    async with server(WorkerBridge(), settings_of(tmp_path, git_schemes=("https", "ssh"))) as client:
        response = await client.post(route, json={"threadId": "t", member: url})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (403, "forbidden")
    assert "`git.schemes`" in error["message"]


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": []}', '{"servers": {}}', "\xff"])
def test_a_configuration_of_mcp_servers_that_cannot_be_used_stops_the_start(tmp_path: Path, text: str) -> None:
    """A missing file did, a broken one was said to clients, run by run."""
    file = tmp_path / "mcp.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        add_ambient_endpoints(FastAPI(), WorkerBridge(), settings=settings_of(tmp_path, mcp_config=str(file)))
    assert str(file) in caught.value.message


def test_one_server_with_a_mistake_does_not_stop_the_start(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, mcp_config=mcp_file(tmp_path, {"bad": {}, "good": {"command": "true"}}))
    add_ambient_endpoints(FastAPI(), WorkerBridge(), settings=settings)


def test_servers_under_the_name_that_others_use_get_a_hint() -> None:
    """It was taken for a file in which there are none."""
    (mistake,) = resolve_servers([load_layer({"servers": {"a": {"command": "x"}}}, "this")], {}).problems
    assert "`mcpServers`" in mistake.message
    assert resolve_servers([load_layer({"servers": {}, "mcpServers": {}}, "this")], {}).problems == ()


@pytest.mark.parametrize("thread", ["..", ".", "a\nb", "a" * 257])
def test_a_default_thread_that_no_request_may_name_stops_the_start(thread: str) -> None:
    """Every request without a thread was 422, as if its client had sent it."""
    with pytest.raises(ConfigError) as caught:
        create_app(Settings(store="memory://", default_thread=thread), {"demo": DemoBridge()})
    assert "default_thread" in caught.value.message


async def test_the_directory_of_the_workspaces_is_created_at_the_start(tmp_path: Path) -> None:
    async with server(WorkerBridge(), settings_of(tmp_path)):
        assert (tmp_path / "workspaces").is_dir()


@pytest.mark.parametrize("workspace", ["file", "file/below"])
async def test_a_directory_of_workspaces_that_cannot_be_created_stops_the_start(tmp_path: Path, workspace: str) -> None:
    """The server started, and every run of an agent that works on files failed."""
    (tmp_path / "file").touch()
    with pytest.raises(ExceptionGroup) as caught:
        async with server(WorkerBridge(), settings_of(tmp_path, workspace=tmp_path / workspace)):
            raise NotImplementedError
    error = find_error(caught.value)
    assert isinstance(error, ConfigError)
    assert (str(tmp_path / workspace) in error.message, "AMBIENT_WORKSPACE" in error.message) == (True, True)
