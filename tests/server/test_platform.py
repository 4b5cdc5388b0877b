"""The platform around the runs: where its routes exist, whom they let in, and what is left of an erased thread."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from ambient_runner import Settings, add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.errors import ConfigError
from tests.files.test_safe_trees import deep
from tests.server.demo_server import client_of, demo, error_of, frames, run_body
from tests.server.worker import WorkerBridge
from tests.services.world import (
    BYTES,
    announcements,
    by_header,
    ending,
    repository,
    server,
    settings_of,
    talk,
    unerasable,
)

FILES = {
    ("POST", "/repos/add"),
    ("POST", "/repos/remove"),
    ("GET", "/repos/status"),
    ("POST", "/workflow"),
    ("POST", "/files"),
    ("GET", "/files"),
    ("GET", "/files/{name}"),
    ("DELETE", "/files/{name}"),
    ("GET", "/artifacts"),
    ("GET", "/artifacts/{path}"),
}
MCP = {("GET", "/mcp/status")}


async def shown(client: httpx.AsyncClient) -> set[tuple[str, str]]:
    schema = (await client.get("/openapi.json")).json()
    return {(method.upper(), path) for path, methods in schema["paths"].items() for method in methods}


def plain(path: str) -> str:
    return path.replace("{name}", "x").replace("{path}", "x")


@pytest.mark.parametrize(
    ("file_system", "mcp", "there"),
    [(False, False, set()), (True, False, FILES), (False, True, MCP), (True, True, FILES | MCP)],
)
async def test_routes_exist_exactly_where_an_agent_has_a_use_for_them(
    tmp_path: Path, file_system: bool, mcp: bool, there: set[tuple[str, str]]
) -> None:
    app = FastAPI()
    agents = {"chat": DemoBridge(), "worker": WorkerBridge(file_system=file_system, mcp=mcp)}
    add_ambient_endpoints(app, agents=agents, settings=settings_of(tmp_path))
    async with client_of(app) as client:
        assert await shown(client) & (FILES | MCP) == there
        answers = {
            (method, path): (await client.request(method, plain(path), params={"threadId": "t"})).status_code
            for method, path in FILES | MCP
        }
        missing = {route for route, status in answers.items() if status == 404}
        features = (await client.get("/capabilities")).json()["platform"]["features"]
    # A thread without a workspace has no file `x` either, so these two answer 404 where they exist.
    no_such_file = {("GET", "/files/{name}"), ("DELETE", "/files/{name}"), ("GET", "/artifacts/{path}")}
    assert missing - no_such_file == (FILES | MCP) - there - no_such_file
    assert features == [
        *(["repos", "workflows", "files", "artifacts"] if file_system else []),
        *(["mcp_diagnostics"] if mcp else []),
    ]


async def test_an_agent_without_files_does_not_announce_those_of_another(tmp_path: Path) -> None:
    app = FastAPI()
    agents = {"chat": DemoBridge(), "worker": WorkerBridge(file_system=True, mcp=False)}
    add_ambient_endpoints(app, agents=agents, settings=settings_of(tmp_path))
    files = ["repos", "workflows", "files", "artifacts"]
    announced: dict[str, list[str]] = {}
    described: dict[str, tuple[list[str], bool]] = {}
    async with client_of(app) as client:
        for name in agents:
            response = await client.post(f"/agents/{name}", json=run_body("say hi", thread=name))
            values = [event["value"] for _, event in frames(response) if event.get("name") == "ambient:capabilities"]
            announced[name] = values[0]["platform"]["features"]
            capabilities = (await client.get("/capabilities", params={"agent": name})).json()
            described[name] = (capabilities["platform"]["features"], capabilities["framework"]["file_system"])
        unknown = await client.get("/capabilities", params={"agent": "none"})
        whole = (await client.get("/capabilities")).json()
    assert announced == {"chat": [], "worker": files}
    assert described == {"chat": ([], False), "worker": (files, True)}
    assert whole["platform"]["features"] == files
    assert {name: agent["custom"]["ambient"]["features"] for name, agent in whole["agents"].items()} == announced
    assert error_of(unknown) == (404, "unknown_agent")


@pytest.mark.parametrize(("method", "path"), sorted(FILES | MCP))
async def test_every_route_authorizes_before_anything_else(tmp_path: Path, method: str, path: str) -> None:
    async with server(WorkerBridge(), settings_of(tmp_path)) as client:
        foreign = await client.request(method, plain(path), headers={"host": "evil.example"})
    async with server(WorkerBridge(), settings_of(tmp_path), authorize=by_header) as client:
        nobody = await client.request(method, plain(path))
    assert (error_of(foreign), error_of(nobody)) == ((403, "forbidden"), (401, "unauthorized"))
    assert list((tmp_path / "workspaces").iterdir()) == []


def test_a_server_without_such_agents_does_not_import_git_or_mcp() -> None:
    code = (
        "import sys; from ambient_runner import Settings, create_app; from ambient_runner.bridges.demo import DemoBridge; "
        "create_app(Settings(store='memory://'), {'demo': DemoBridge()}); "
        "lazy = ('mcp', 'httpx2', 'ambient_runner.services.workspaces.git', 'ambient_runner.services.workspaces.layout'); "
        "print([name for name in lazy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_mounted_app_without_a_lifespan_serves_the_platform_too(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "api", {})
    inner, outer = FastAPI(), FastAPI()
    add_ambient_endpoints(inner, WorkerBridge(), settings=settings_of(tmp_path, default_thread="t"))
    outer.mount("/agents", inner)

    async def visit() -> tuple[int, list[str]]:
        async with client_of(outer) as client:
            added = await client.post("/agents/repos/add", json={"url": url})
            listed = (await client.get("/agents/repos/status")).json()["repos"]
        return added.status_code, [repo["name"] for repo in listed]

    # The end of its own loop is what closes such a server.
    assert asyncio.run(visit()) == (200, ["api"])


def test_the_settings_of_the_platform_have_safe_defaults() -> None:
    settings = Settings()
    assert (settings.git_schemes, settings.git_private, settings.mcp_project) == (("https", "ssh"), False, False)


@pytest.mark.parametrize("wrong", [{"mcp_config": "/nonexistent/mcp.json"}, {"git_schemes": ("ftp",)}])
def test_invalid_settings_are_refused_at_the_start(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        add_ambient_endpoints(FastAPI(), WorkerBridge(), settings=settings_of(tmp_path, **wrong))


async def test_no_user_reaches_the_workspace_of_another(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "api", {})
    alice, bob = {"x-owner": "alice"}, {"x-owner": "bob"}
    settings = settings_of(tmp_path, default_thread="t")
    async with server(WorkerBridge(), settings, authorize=by_header) as client:
        await client.post("/repos/add", json={"url": url}, headers=alice)
        await client.post("/files?name=a.txt", content=b"of alice", headers={**alice, **BYTES})
        listed = (await client.get("/repos/status", headers=bob)).json()
        removed = await client.post("/repos/remove", json={"name": "api"}, headers=bob)
        file = await client.get("/files/a.txt", headers=bob)
        erased = await client.delete("/thread/t", headers=bob)
        still = (await client.get("/repos/status", headers=alice)).json()
    assert listed == {"repos": []}
    assert [error_of(one) for one in (removed, file, erased)] == [
        (404, "unknown_repo"),
        (404, "unknown_file"),
        (404, "unknown_thread"),
    ]
    assert [repo["name"] for repo in still["repos"]] == ["api"]


async def test_erasing_a_thread_erases_its_workspace_with_everything_in_it(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "api", {"README": "hi"})
    bridge = WorkerBridge(mcp=False)
    async with server(bridge, settings_of(tmp_path)) as client:
        await client.post("/repos/add", json={"threadId": "t", "url": url})
        await client.post("/files", params={"name": "a", "threadId": "t"}, content=b"x", headers=BYTES)
        await talk(client, "hello", "u1")
        workspace = Path(bridge.contexts[0].workspace_path)
        assert (workspace / "file-uploads" / "a").exists()
        erased = await client.delete("/thread/t")
        fresh = await talk(client, "hello", "u1")
    assert erased.json() == {"threadId": "t", "deleted": True}
    assert not (workspace / "file-uploads" / "a").exists()
    assert not (workspace / "repos" / "api").exists()
    assert announcements(fresh) == ["ambient:capabilities", "Workspace validated"]


async def test_a_workspace_without_a_run_can_be_erased_and_one_that_is_not_there_cannot(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "api", {"README": "hi"})
    async with server(WorkerBridge(), settings_of(tmp_path)) as client:
        added = await client.post("/repos/add", json={"threadId": "t", "url": url})
        erased = await client.delete("/thread/t")
        again = await client.delete("/thread/t")
    assert (erased.status_code, error_of(again)) == (200, (404, "unknown_thread"))
    assert not Path(added.json()["path"]).exists()


async def test_a_deep_tree_is_erased_with_its_thread_and_other_peoples_runs_continue(tmp_path: Path) -> None:
    bridge = WorkerBridge(mcp=False)
    alice, bob = {"x-owner": "alice"}, {"x-owner": "bob"}
    async with server(bridge, settings_of(tmp_path), authorize=by_header) as client:
        await talk(client, "hello", "u1", headers=alice)
        workspace = Path(bridge.contexts[0].workspace_path)
        deep(workspace / "artifacts", 1500)
        erased = await client.delete("/thread/t", headers=alice)
    async with server(WorkerBridge(mcp=False), settings_of(tmp_path), authorize=by_header) as client:
        after = await talk(client, "hello", "u1", headers=bob)
    assert (erased.status_code, workspace.exists()) == (200, False)
    assert list((tmp_path / "workspaces/.trash").iterdir()) == []
    assert ending(after) == ("RUN_FINISHED", "success")


@pytest.mark.parametrize("known", [True, False], ids=["with-runs", "without"])
async def test_an_incomplete_erasure_is_reported(tmp_path: Path, known: bool) -> None:
    """The answer was that the thread is deleted, whatever was left of it."""
    async with server(WorkerBridge(mcp=False), settings_of(tmp_path, default_thread="t")) as client:
        await client.post("/files?name=stuck", content=b"x", headers=BYTES)
        if known:
            await talk(client, "hello", "u1")
        with unerasable("stuck"):
            failed = await client.delete("/thread/t")
        after = await talk(client, "hello", "u1")
        erased = await client.delete("/thread/t")
    assert error_of(failed) == (502, "service_error")
    assert ending(after) == ("RUN_FINISHED", "success")
    assert erased.status_code == 200


@pytest.mark.parametrize("place", [".", "artifacts"])
async def test_a_thread_whose_directory_became_a_link_fails_until_it_is_deleted(tmp_path: Path, place: str) -> None:
    bridge = WorkerBridge(mcp=False)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").write_text("x")
    async with server(bridge, settings_of(tmp_path)) as client:
        await talk(client, "hello", "u1")
        directory = Path(os.path.normpath(Path(bridge.contexts[0].workspace_path) / place))
        shutil.rmtree(directory)
        directory.symlink_to(tmp_path / "outside")
        failed = await talk(client, "again", "u2")
        erased = await client.delete("/thread/t")
        gone = not os.path.lexists(directory)
        after = await talk(client, "hello", "u1")
    assert (ending(failed), erased.status_code, gone) == (("RUN_ERROR", "service_error"), 200, True)
    assert ending(after) == ("RUN_FINISHED", "success")
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["kept"]


async def test_facts_since_the_last_run_follow_the_start_of_the_next_one_without_ids(tmp_path: Path) -> None:
    """A client that only posts runs never received them."""
    url = repository(tmp_path / "origin" / "api", {})
    feedback = {"type": "META", "metaType": "thumbs_up", "threadId": "t", "payload": {}}
    patch = [{"op": "add", "path": "/plan", "value": 1}]
    async with server(WorkerBridge(), settings_of(tmp_path)) as client:
        await talk(client, "hello", "u1")
        await client.post("/repos/add", json={"threadId": "t", "url": url})
        await client.post("/feedback", json=feedback)
        await client.patch("/state/t", json=patch)
        second = await client.post("/", json=run_body("again", message="u2"), headers={"idempotency-key": "k"})
        repeated = await client.post("/", json=run_body("again", message="u2"), headers={"idempotency-key": "k"})
        third = frames(await client.post("/", json=run_body("and again", message="u3")))
        history = frames(await client.get("/threads/t/events?until=idle&snapshots=all"))
    events = frames(second)
    (first_cursor, started), *rest = events
    facts = [(cursor, event["name"]) for cursor, event in rest if event["type"] == "CUSTOM"]
    names = [name for _, name in facts if name != "ambient:repo_progress"]
    assert (started["type"], first_cursor is None) == ("RUN_STARTED", False)
    assert names == ["ambient:repo_added", "ambient:feedback"]
    assert [event.get("name") for _, event in rest[: len(facts)]] == [name for _, name in facts]
    assert {cursor for cursor, _ in facts} == {None}
    assert [event["snapshot"] for _, event in rest if event["type"] == "STATE_SNAPSHOT"] == [{"plan": 1}]
    assert repeated.text == second.text
    assert [event["name"] for _, event in third if event["type"] == "CUSTOM"] == []
    numbered = [pair for pair in events if pair[0] is not None]
    assert [pair for pair in history if pair[0] in dict(numbered)] == numbered


async def test_clients_before_1_0_and_readers_of_ndjson_get_the_facts_too(tmp_path: Path) -> None:
    feedback = {"type": "META", "metaType": "thumbs_up", "threadId": "t", "payload": {}}
    async with server(WorkerBridge(), settings_of(tmp_path)) as client:
        await talk(client, "hello", "u1")
        await client.post("/feedback", json=feedback)
        old = run_body("again", message="u2")
        del old["protocolVersion"]
        before = frames(await client.post("/", json=old))
        await client.post("/feedback", json=feedback)
        lines = await client.post("/", json=run_body("more", message="u3"), headers={"accept": "application/x-ndjson"})
    ndjson = [json.loads(line) for line in lines.text.splitlines()]
    for events in ([event for _, event in before], ndjson):
        assert [event.get("name", event["type"]) for event in events[:2]] == ["RUN_STARTED", "ambient:feedback"]


async def test_the_interrupts_that_a_stop_cancelled_are_named_in_the_next_run() -> None:
    async with demo() as client:
        asked = frames(await client.post("/", json=run_body("approve the deploy")))
        await client.post("/interrupt", json={"threadId": "t"})
        events = frames(await client.post("/", json=run_body("say hi", message="u2")))
    (question,) = asked[-1][1]["outcome"]["interrupts"]
    cancelled = [
        (cursor, event["value"]) for cursor, event in events if event.get("name") == "ambient:interrupts_cancelled"
    ]
    assert cancelled == [(None, {"interruptIds": [question["id"]]})]
