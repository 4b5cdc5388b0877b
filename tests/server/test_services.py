"""The platform's routes: where they exist, what they answer, and what those who follow the thread are told."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI

from ambient_runner import Settings, add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.errors import ConfigError
from ambient_runner.services.credentials import Asker
from tests.server.doors import client_of, frames, refused
from tests.server.worker import WorkerBridge
from tests.services.mcp_paths import MCP_SERVER
from tests.services.remotes import git, git_server, make_repo
from tests.services.test_trees import deep
from tests.services.world import by_header, ending, repository, server, settings_of, talk, told

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


async def facts(client: httpx.AsyncClient, thread: str = "t", **options: Any) -> list[tuple[str, Any]]:
    """What those who follow the thread are told outside of runs and messages."""
    response = await client.get(f"/threads/{thread}/events?until=idle", **options)
    return [(event["name"], event["value"]) for _, event in frames(response) if event["type"] == "CUSTOM"]


async def repos(client: httpx.AsyncClient, thread: str = "t") -> list[dict[str, Any]]:
    return (await client.get("/repos/status", params={"threadId": thread})).json()["repos"]


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


@pytest.mark.parametrize(("method", "path"), sorted(FILES | MCP))
async def test_every_route_asks_who_it_is_before_anything_else(tmp_path: Path, method: str, path: str) -> None:
    async with server(WorkerBridge(), settings_of(tmp_path)) as client:
        foreign = await client.request(method, plain(path), headers={"host": "evil.example"})
    async with server(WorkerBridge(), settings_of(tmp_path), authorize=by_header) as client:
        nobody = await client.request(method, plain(path))
    assert (refused(foreign), refused(nobody)) == ((403, "forbidden"), (401, "unauthorized"))
    assert not (tmp_path / "workspaces").exists()


async def test_a_repository_is_cloned_listed_and_removed(tmp_path: Path) -> None:
    origin = make_repo(tmp_path / "origin" / "api", {"README": "hi"}, branches=("next",))
    async with server(WorkerBridge(), settings_of(tmp_path)) as client:
        await talk(client, "hello", "u1")
        added = await client.post("/repos/add", json={"thread_id": "t", "url": origin.as_uri()})
        again = await client.post("/repos/add", json={"threadId": "t", "url": origin.as_uri()})
        listed = await repos(client)
        removed = await client.post("/repos/remove", json={"threadId": "t", "name": "api"})
        gone = await client.post("/repos/remove", json={"threadId": "t", "name": "api"})
        heard = await facts(client)
        left = await repos(client)
    body = added.json()
    path = Path(body["path"])
    assert (added.status_code, body) == (
        200,
        {"message": "Repository added", "name": "api", "path": str(path), "newly_cloned": True},
    )
    assert again.json() == {**body, "newly_cloned": False}
    assert git(path, "branch", "--show-current") == "ambient/t"
    assert [(repo["url"], repo["name"], repo["currentActiveBranch"], repo["defaultBranch"]) for repo in listed] == [
        (origin.as_uri(), "api", "ambient/t", "trunk")
    ]
    assert {"ambient/t", "next", "trunk"} <= set(listed[0]["branches"])
    assert (removed.status_code, removed.json()) == (200, {"message": "Repository removed"})
    assert refused(gone) == (404, "unknown_repo")
    told_of = [fact for fact in heard if fact[0] in {"ambient:repo_added", "ambient:repo_removed"}]
    assert told_of == [
        ("ambient:repo_added", {"name": "api", "url": origin.as_uri(), "branch": "ambient/t"}),
        ("ambient:repo_removed", {"name": "api"}),
    ]
    assert left == []


async def test_the_thread_is_named_in_the_body_or_the_query_or_is_the_servers_own(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "api", {})
    async with server(WorkerBridge(), settings_of(tmp_path)) as client:
        nowhere = [await client.post("/repos/add", json={"url": url}), await client.get("/repos/status")]
        wrong = await client.post("/repos/add", json={"url": url, "threadId": 7})
        long = await client.get("/repos/status", params={"threadId": "x" * 257})
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="main")) as client:
        added = await client.post("/repos/add", json={"url": url})
        mine = (await client.get("/repos/status")).json()["repos"]
        others = await repos(client, "t")
    assert [refused(one) for one in (*nowhere, wrong, long)] == [(422, "invalid_input")] * 4
    assert (added.status_code, [repo["name"] for repo in mine], others) == (200, ["api"], [])


@pytest.mark.parametrize("body", [{}, {"url": ""}, {"url": 7}, {"url": "x", "branch": 1}, {"url": "x", "name": []}])
async def test_a_body_that_says_too_little_is_refused(tmp_path: Path, body: dict[str, object]) -> None:
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        assert refused(await client.post("/repos/add", json=body)) == (422, "invalid_input")
        assert refused(await client.post("/repos/add", json=[body])) == (422, "invalid_input")
        assert refused(await client.post("/repos/add", content=b"{")) == (415, "wrong_type")
        assert refused(await client.post("/workflow", json=body)) == (422, "invalid_input")
        assert refused(await client.post("/repos/remove", json=body)) == (422, "invalid_input")


@pytest.mark.parametrize("wait", ["", "?wait=0"])
@pytest.mark.parametrize(
    ("order", "status"),
    [
        ({"url": "https://user:hunter2-hunter2@git.example/x.git"}, 422),
        ({"url": "ext::sh -c true"}, 422),
        ({"url": "--upload-pack=true"}, 422),
        ({"url": "ftp://git.example/x"}, 403),
        ({"url": "https://127.0.0.1/x.git"}, 403),
        ({"url": "https://127.0.0.1/x.git", "name": "../../x"}, 403),
    ],
)
async def test_what_may_not_be_cloned_is_refused_at_once_and_never_repeated(
    tmp_path: Path, wait: str, order: dict[str, str], status: int
) -> None:
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        response = await client.post(f"/repos/add{wait}", json=order)
    assert response.status_code == status
    assert "hunter2" not in response.text


async def test_names_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    """S1, S2 at the door: in the reference an empty name removed everything, and `../x` led out of the workspace."""
    url = repository(tmp_path / "origin" / "api", {})
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        await client.post("/repos/add", json={"url": url})
        for name in ("", ".", "..", "../api", "/tmp", "a/b", "-x"):
            removed = await client.post("/repos/remove", json={"name": name})
            added = await client.post("/repos/add", json={"url": url, "name": name or ".."})
            assert (refused(removed), refused(added)) == ((422, "invalid_input"), (422, "invalid_input"))
        assert refused(await client.post("/workflow", json={"gitUrl": url, "path": "../.."})) == (422, "invalid_input")
        assert [repo["name"] for repo in await repos(client)] == ["api"]


async def test_a_name_that_is_taken_is_a_conflict(tmp_path: Path) -> None:
    one, other = (repository(tmp_path / place / "api", {}) for place in ("one", "other"))
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        await client.post("/repos/add", json={"url": one})
        assert refused(await client.post("/repos/add", json={"url": other})) == (409, "repo_conflict")
        assert (await client.post("/repos/add", json={"url": other, "name": "second"})).status_code == 200


async def test_a_clone_that_fails_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, git_schemes=("http",), git_private=True)
    async with server(WorkerBridge(), settings) as client:
        await talk(client, "hello", "u1")
        with git_server(tmp_path) as remote:
            url = remote.url("nothing.git")
            failed = await client.post("/repos/add", json={"threadId": "t", "url": url})
        listed = await repos(client)
        heard = await facts(client)
        after = await talk(client, "again", "u2")
    assert refused(failed) == (502, "repo_missing")
    assert [(repo["name"], repo["status"]) for repo in listed] == [("nothing", "failed")]
    assert heard[-1] == ("ambient:setup_error", {"stage": "repos", "message": failed.json()["error"]["message"]})
    assert (told(after), ending(after)) == ([], ("RUN_FINISHED", "success"))


async def test_the_token_a_request_brings_opens_its_own_host_and_is_a_secret(tmp_path: Path) -> None:
    make_repo(tmp_path / "origin" / "api", {"README": "hi"})
    settings = settings_of(tmp_path, git_schemes=("http",), git_private=True, default_thread="t")
    granted: dict[str, str] = {}

    async def give(asker: Asker) -> Mapping[str, str]:
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


async def test_a_clone_goes_on_without_the_one_who_asked(tmp_path: Path) -> None:
    make_repo(tmp_path / "origin" / "api", {"README": "hi" * 5000})
    settings = settings_of(tmp_path, git_schemes=("http",), git_private=True)
    hold = threading.Event()
    with anyio.fail_after(60), git_server(tmp_path / "origin", stalled=hold) as remote:
        order = {"threadId": "t", "url": remote.url("api")}
        async with server(WorkerBridge(), settings) as client:
            await talk(client, "hello", "u1")
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: client.post("/repos/add", json=order))
                await anyio.to_thread.run_sync(remote.packs_asked.acquire)
                group.cancel_scope.cancel()
            under_way = await repos(client)
            at_once = await client.post("/repos/add?wait=0", json={**order, "url": remote.url("api.git")})
            hold.set()
            added = await client.post("/repos/add", json=order)
            heard = await facts(client)
    assert [(repo["name"], repo["status"]) for repo in under_way] == [("api", "cloning")]
    assert (at_once.status_code, at_once.json()) == (202, {"message": "Repository is being cloned", "name": "api"})
    assert added.status_code == 200
    assert [name for name, _ in heard].count("ambient:repo_added") == 1
    steps = [value for name, value in heard if name == "ambient:repo_progress"]
    assert {step["name"] for step in steps} == {"api"}
    assert 1 <= len(steps) <= 40
    assert not remote.packs_asked.acquire(blocking=False)


async def test_a_workflow_is_changed_kept_when_the_next_one_fails_and_cleared(tmp_path: Path) -> None:
    """C8: in the reference a failed clone was reported as an updated workflow, and the folder was empty."""
    config = json.dumps({"name": "Triage", "description": "Sorts."})
    flow = repository(tmp_path / "origin" / "flow", {"inner/.ambient/ambient.json": config})
    broken = repository(tmp_path / "origin" / "broken", {".ambient/ambient.json": "{"})
    bridge = WorkerBridge(mcp=False)
    async with server(bridge, settings_of(tmp_path)) as client:
        await talk(client, "hello", "u1")

        async def choose(**body: str) -> httpx.Response:
            return await client.post("/workflow", json={"threadId": "t", **body})

        first = await choose(gitUrl=flow, path="inner")
        again = await choose(gitUrl=flow, path="inner")
        gone = await choose(gitUrl=(tmp_path / "nothing").as_uri())
        bad = await choose(gitUrl=broken)
        await talk(client, "with it", "u2")
        cleared = await choose(gitUrl="")
        nothing = await choose(gitUrl="")
        heard = await facts(client)
        await talk(client, "without it", "u3")
    about = {"gitUrl": flow, "branch": "", "path": "inner"}
    assert (first.status_code, first.json()) == (200, {"message": "Workflow updated", **about})
    assert (again.status_code, again.json()) == (200, {"message": "Workflow already active", **about})
    assert gone.status_code >= 400
    assert bad.status_code >= 400
    none = {"gitUrl": "", "branch": "", "path": ""}
    assert cleared.json() == {"message": "Workflow updated", **none}
    assert nothing.json() == {"message": "No workflow is active", **none}
    assert [value for name, value in heard if name == "ambient:workflow_changed"] == [
        {**about, "name": "Triage", "description": "Sorts."},
        {"gitUrl": "", "branch": "", "path": "", "name": "", "description": ""},
    ]
    assert [value["stage"] for name, value in heard if name == "ambient:setup_error"] == ["workflow", "workflow"]
    assert [Path(child[1]).name for child in bridge.children] == ["artifacts", "inner", "artifacts"]


async def test_nobody_reaches_anothers_workspace(tmp_path: Path) -> None:
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
    assert [refused(one) for one in (removed, file, erased)] == [
        (404, "unknown_repo"),
        (404, "unknown_file"),
        (404, "unknown_thread"),
    ]
    assert [repo["name"] for repo in still["repos"]] == ["api"]


BYTES = {"content-type": "application/octet-stream"}


async def test_files_are_brought_listed_fetched_and_deleted_and_the_agent_hears_of_them(tmp_path: Path) -> None:
    bridge = WorkerBridge(mcp=False)
    async with server(bridge, settings_of(tmp_path, default_thread="t")) as client:
        put = await client.post("/files", params={"name": "übersicht.csv"}, content=b"a,b\n", headers=BYTES)
        await client.post("/files", params={"name": "b.txt"}, content=b"bb", headers=BYTES)
        await talk(client, "hello", "u1")
        listed = (await client.get("/files")).json()["files"]
        fetched = await client.get("/files/übersicht.csv")
        deleted = await client.delete("/files/b.txt")
        gone = await client.delete("/files/b.txt")
        left = (await client.get("/files")).json()["files"]
    assert (put.status_code, put.json()["path"], put.json()["size"]) == (201, "übersicht.csv", 4)
    assert [(file["path"], file["size"]) for file in listed] == [("b.txt", 2), ("übersicht.csv", 4)]
    assert fetched.content == b"a,b\n"
    assert (deleted.json(), refused(gone)) == ({"name": "b.txt", "deleted": True}, (404, "unknown_file"))
    assert [file["path"] for file in left] == ["übersicht.csv"]
    assert "- b.txt\n- übersicht.csv" in bridge.contexts[0].system_prompt_append


async def test_artifacts_go_out_as_bytes_and_never_from_outside_the_workspace(tmp_path: Path) -> None:
    bridge = WorkerBridge(mcp=False)
    (tmp_path / "outside").write_text("secret of the machine")
    async with server(bridge, settings_of(tmp_path, default_thread="t")) as client:
        await talk(client, "hello", "u1")
        artifacts = Path(bridge.contexts[0].cwd_path)
        (artifacts / "sub").mkdir()
        (artifacts / "sub" / "page.html").write_text("<script>alert(1)</script>")
        (artifacts / "link").symlink_to(tmp_path / "outside")
        (artifacts / "up").symlink_to(tmp_path)
        listed = (await client.get("/artifacts")).json()["files"]
        fetched = await client.get("/artifacts/sub/page.html")
        escapes = [
            await client.get(f"/artifacts/{path}")
            for path in ("link", "up/outside", "..%2F..%2Foutside", "sub/..%2F..%2Fworkspace.json", "sub", "%00")
        ]
    assert [file["path"] for file in listed] == ["sub/page.html"]
    assert fetched.text == "<script>alert(1)</script>"
    assert {
        name: fetched.headers[name] for name in ("content-type", "x-content-type-options", "content-disposition")
    } == {
        "content-type": "application/octet-stream",
        "x-content-type-options": "nosniff",
        "content-disposition": "attachment; filename*=UTF-8''page.html",
    }
    assert {one.status_code for one in escapes} <= {404, 422}
    assert [one.text for one in escapes if "secret of the machine" in one.text] == []


async def test_uploads_are_bytes_with_a_name(tmp_path: Path) -> None:
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        nameless = await client.post("/files", content=b"x", headers=BYTES)
        form = await client.post("/files?name=a", content=b"x", headers={"content-type": "text/plain"})
        packed = await client.post("/files?name=a", content=b"x", headers={**BYTES, "content-encoding": "gzip"})
        names = [
            await client.post("/files", params={"name": name}, content=b"x", headers=BYTES)
            for name in ("../x", "a/b", ".hidden", "-x", "a\nb", "x" * 300)
        ]
        listed = (await client.get("/files")).json()
    assert (refused(nameless), refused(form), refused(packed)) == (
        (422, "invalid_input"),
        (415, "wrong_type"),
        (415, "wrong_type"),
    )
    assert {refused(one) for one in names} == {(422, "invalid_input")}
    assert listed == {"files": []}


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
    assert told(fresh) == ["ambient:capabilities", "Workspace validated"]


async def test_a_workspace_without_a_run_can_be_erased_and_one_that_is_not_there_cannot(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "api", {"README": "hi"})
    async with server(WorkerBridge(), settings_of(tmp_path)) as client:
        added = await client.post("/repos/add", json={"threadId": "t", "url": url})
        erased = await client.delete("/thread/t")
        again = await client.delete("/thread/t")
    assert (erased.status_code, refused(again)) == (200, (404, "unknown_thread"))
    assert not Path(added.json()["path"]).exists()


async def test_mcp_servers_are_really_looked_at_with_what_was_granted(tmp_path: Path) -> None:
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

    async def give(asker: Asker) -> Mapping[str, str]:
        return {"GITHUB_TOKEN": f"token-of-{asker.actor.owner}"}

    settings = settings_of(tmp_path, mcp_config=str(config), default_thread="t")
    with anyio.fail_after(60):
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
    async def fail(asker: Asker) -> Mapping[str, str]:
        raise RuntimeError("the token was granted-token")

    url = repository(tmp_path / "origin" / "api", {})
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t"), credentials=fail) as client:
        added = await client.post("/repos/add", json={"url": url})
        status = await client.get("/mcp/status")
        well = await client.get("/repos/status")
    assert (refused(added), refused(status)) == ((502, "credentials_error"), (502, "credentials_error"))
    assert "granted-token" not in added.text + status.text
    assert well.status_code == 200


def test_a_server_without_such_agents_does_not_import_git_or_mcp() -> None:
    code = (
        "import sys; from ambient_runner import Settings, create_app; from ambient_runner.bridges.demo import DemoBridge; "
        "create_app(Settings(store='memory://'), {'demo': DemoBridge()}); "
        "rooms = ('mcp', 'httpx2', 'ambient_runner.services.git', 'ambient_runner.services.folder'); "
        "print([name for name in rooms if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_settings_of_the_platform_have_safe_defaults() -> None:
    settings = Settings()
    assert (settings.git_schemes, settings.git_private, settings.mcp_project) == (("https", "ssh"), False, False)


def test_a_mounted_app_that_nobody_opens_serves_the_platform_too(tmp_path: Path) -> None:
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


def said_in(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


async def test_what_one_request_brings_is_secret_in_what_it_says_and_nowhere_else(tmp_path: Path) -> None:
    """A word in one person's header was taken out of everybody's texts until the server was started again."""
    url = repository(tmp_path / "origin" / "thousand-words", {})

    async def give(asker: Asker) -> Mapping[str, str]:
        return {"OTHER": "artifacts"} if asker.actor.owner == "alice" else {}

    alice, bob = {"x-owner": "alice"}, {"x-owner": "bob"}
    settings = settings_of(tmp_path, default_thread="t")
    async with server(WorkerBridge(mcp=False), settings, authorize=by_header, credentials=give) as client:
        await talk(client, "hello", "u1", headers=alice)
        brought = {**alice, "X-GitHub-Token": "thousand"}
        added = await client.post("/repos/add", json={"url": url, "name": "api"}, headers=brought)
        heard = await facts(client, headers=alice)
        await client.post("/files?name=thousand", content=b"x", headers={**bob, **BYTES})
        after = await talk(client, "hello", "u1", headers=bob)
    assert added.status_code == 200
    (noted,) = [value for name, value in heard if name == "ambient:repo_added"]
    assert noted["url"] == url.replace("thousand", "[redacted]")
    assert "[redacted]" not in said_in(after)
    assert "/artifacts" in said_in(after)


async def test_an_error_does_not_say_what_its_request_has_brought(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / "api", {})
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        await talk(client, "hello", "u1")
        brought = {"X-GitHub-Token": "spelling"}
        failed = await client.post("/repos/add", json={"url": url, "branch": "none"}, headers=brought)
        heard = await facts(client)
    assert failed.status_code == 422
    assert "[redacted]" in failed.json()["error"]["message"]
    assert "spelling" not in failed.text + json.dumps(heard)


@pytest.mark.parametrize("header", ["X-GitHub-Token", "X-GitLab-Token"])
@pytest.mark.parametrize("token", ["a", "sevenup", "x" * 4097])
async def test_a_token_of_no_likely_length_is_refused(tmp_path: Path, header: str, token: str) -> None:
    url = repository(tmp_path / "origin" / "api", {})
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        for path, body in (("/repos/add", {"url": url}), ("/workflow", {"gitUrl": url})):
            assert refused(await client.post(path, json=body, headers={header: token})) == (422, "invalid_input")


async def test_a_deep_tree_is_erased_with_its_thread_and_other_peoples_runs_go_on(tmp_path: Path) -> None:
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
async def test_what_could_not_be_deleted_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """The answer was that the thread is deleted, whatever was left of it."""
    async with server(WorkerBridge(mcp=False), settings_of(tmp_path, default_thread="t")) as client:
        await client.post("/files?name=stuck", content=b"x", headers=BYTES)
        if known:
            await talk(client, "hello", "u1")
        unlink = os.unlink

        def refuse(path: str, *, dir_fd: int | None = None) -> None:
            if path == "stuck":
                raise PermissionError(1, "Operation not permitted")
            unlink(path, dir_fd=dir_fd)

        with monkeypatch.context() as stuck:
            stuck.setattr(os, "unlink", refuse)
            failed = await client.delete("/thread/t")
        after = await talk(client, "hello", "u1")
        erased = await client.delete("/thread/t")
    assert refused(failed) == (502, "service_error")
    assert ending(after) == ("RUN_FINISHED", "success")
    assert erased.status_code == 200


@pytest.mark.parametrize("place", [".", "artifacts", ".ambient"])
async def test_a_thread_whose_folder_became_a_link_fails_until_it_is_deleted(tmp_path: Path, place: str) -> None:
    bridge = WorkerBridge(mcp=False)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").write_text("x")
    async with server(bridge, settings_of(tmp_path)) as client:
        await talk(client, "hello", "u1")
        folder = Path(os.path.normpath(Path(bridge.contexts[0].workspace_path) / place))
        shutil.rmtree(folder)
        folder.symlink_to(tmp_path / "outside")
        failed = await talk(client, "again", "u2")
        erased = await client.delete("/thread/t")
        gone = not os.path.lexists(folder)
        after = await talk(client, "hello", "u1")
    assert (ending(failed), erased.status_code, gone) == (("RUN_ERROR", "service_error"), 200, True)
    assert ending(after) == ("RUN_FINISHED", "success")
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["kept"]


async def test_a_name_that_is_no_text_is_listed_all_the_same(tmp_path: Path) -> None:
    bridge = WorkerBridge(mcp=False)
    async with server(bridge, settings_of(tmp_path, default_thread="t")) as client:
        await talk(client, "hello", "u1")
        workspace = Path(bridge.contexts[0].workspace_path)
        for folder in ("artifacts", "file-uploads"):
            Path(os.fsdecode(os.fsencode(workspace / folder) + b"/caf\xe9")).write_text("x")
        listed = [await client.get(path) for path in ("/artifacts", "/files")]
        fetched = await client.get("/artifacts/caf%5Cxe9")
        after = await talk(client, "again", "u2")
    assert [[file["path"] for file in one.json()["files"]] for one in listed] == [["caf\\xe9"]] * 2
    assert refused(fetched) == (422, "invalid_input")
    assert ending(after) == ("RUN_FINISHED", "success")


@pytest.mark.parametrize("wrong", [{"mcp_config": "/nonexistent/mcp.json"}, {"git_schemes": ("ftp",)}])
def test_settings_that_cannot_be_meant_are_refused_at_the_start(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        add_ambient_endpoints(FastAPI(), WorkerBridge(), settings=settings_of(tmp_path, **wrong))
