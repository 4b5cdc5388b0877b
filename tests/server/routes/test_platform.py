"""The routes of repositories and of the workflow: what they answer, and the events that readers of the thread get."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from tests.machine_speed import unless_hung
from tests.server.demo_server import error_of
from tests.server.worker import WorkerBridge
from tests.services.remotes import git, git_server, make_repo
from tests.services.world import announcements, ending, facts, repository, server, settings_of, talk


async def repos(client: httpx.AsyncClient, thread: str = "t") -> list[dict[str, Any]]:
    return (await client.get("/repos/status", params={"threadId": thread})).json()["repos"]


async def test_a_repository_is_cloned_listed_and_removed(tmp_path: Path) -> None:
    origin = make_repo(tmp_path / "origin" / "api", {"README": "hi"}, branches=("next",))
    async with server(WorkerBridge(), settings_of(tmp_path)) as client:
        await talk(client, "hello", "u1")
        added = await client.post("/repos/add", json={"thread_id": "t", "url": origin.as_uri()})
        again = await client.post("/repos/add", json={"threadId": "t", "url": origin.as_uri()})
        listed = await repos(client)
        removed = await client.post("/repos/remove", json={"threadId": "t", "name": "api"})
        gone = await client.post("/repos/remove", json={"threadId": "t", "name": "api"})
        stored_facts = await facts(client)
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
    assert error_of(gone) == (404, "unknown_repo")
    repo_facts = [fact for fact in stored_facts if fact[0] in {"ambient:repo_added", "ambient:repo_removed"}]
    assert repo_facts == [
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
    assert [error_of(one) for one in (*nowhere, wrong, long)] == [(422, "invalid_input")] * 4
    assert (added.status_code, [repo["name"] for repo in mine], others) == (200, ["api"], [])


@pytest.mark.parametrize("body", [{}, {"url": ""}, {"url": 7}, {"url": "x", "branch": 1}, {"url": "x", "name": []}])
async def test_a_body_without_a_required_member_is_refused(tmp_path: Path, body: dict[str, object]) -> None:
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        assert error_of(await client.post("/repos/add", json=body)) == (422, "invalid_input")
        assert error_of(await client.post("/repos/add", json=[body])) == (422, "invalid_input")
        assert error_of(await client.post("/repos/add", content=b"{")) == (415, "wrong_type")
        assert error_of(await client.post("/workflow", json=body)) == (422, "invalid_input")
        assert error_of(await client.post("/repos/remove", json=body)) == (422, "invalid_input")


@pytest.mark.parametrize("wait", ["", "?wait=0"])
@pytest.mark.parametrize(
    ("order", "status"),
    [
        ({"url": "https://user:hunter2-9fK2qLw7@git.example/x.git"}, 422),
        ({"url": "ext::sh -c true"}, 422),
        ({"url": "--upload-pack=true"}, 422),
        ({"url": "ftp://git.example/x"}, 403),
        ({"url": "https://127.0.0.1/x.git"}, 403),
        ({"url": "https://127.0.0.1/x.git", "name": "../../x"}, 403),
    ],
)
async def test_a_url_that_may_not_be_cloned_is_refused_at_once_and_never_repeated(
    tmp_path: Path, wait: str, order: dict[str, str], status: int
) -> None:
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        response = await client.post(f"/repos/add{wait}", json=order)
    assert response.status_code == status
    assert "hunter2" not in response.text


async def test_names_that_lead_outside_of_the_workspace_are_refused(tmp_path: Path) -> None:
    """S1, S2 over HTTP: in the reference an empty name removed everything, and `../x` led out of the workspace."""
    url = repository(tmp_path / "origin" / "api", {})
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        await client.post("/repos/add", json={"url": url})
        for name in ("", ".", "..", "../api", "/tmp", "a/b", "-x"):
            removed = await client.post("/repos/remove", json={"name": name})
            added = await client.post("/repos/add", json={"url": url, "name": name or ".."})
            assert (error_of(removed), error_of(added)) == ((422, "invalid_input"), (422, "invalid_input"))
        assert error_of(await client.post("/workflow", json={"gitUrl": url, "path": "../.."})) == (422, "invalid_input")
        assert [repo["name"] for repo in await repos(client)] == ["api"]


async def test_a_name_that_is_taken_is_a_conflict(tmp_path: Path) -> None:
    one, other = (repository(tmp_path / place / "api", {}) for place in ("one", "other"))
    async with server(WorkerBridge(), settings_of(tmp_path, default_thread="t")) as client:
        await client.post("/repos/add", json={"url": one})
        assert error_of(await client.post("/repos/add", json={"url": other})) == (409, "repo_conflict")
        assert (await client.post("/repos/add", json={"url": other, "name": "second"})).status_code == 200


async def test_a_failed_clone_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, git_schemes=("http",), git_private=True)
    async with server(WorkerBridge(), settings) as client:
        await talk(client, "hello", "u1")
        with git_server(tmp_path) as remote:
            url = remote.url("nothing.git")
            failed = await client.post("/repos/add", json={"threadId": "t", "url": url})
        listed = await repos(client)
        stored_facts = await facts(client)
        after = await talk(client, "again", "u2")
    assert error_of(failed) == (502, "repo_missing")
    assert [(repo["name"], repo["status"]) for repo in listed] == [("nothing", "failed")]
    assert stored_facts[-1] == ("ambient:setup_error", {"stage": "repos", "message": failed.json()["error"]["message"]})
    # A client that only posts runs gets the event in its next run.
    assert announcements(after)[-1] == "ambient:setup_error"
    assert ending(after) == ("RUN_FINISHED", "success")


async def test_a_clone_continues_after_its_client_disconnects(tmp_path: Path) -> None:
    make_repo(tmp_path / "origin" / "api", {"README": "hi" * 5000})
    settings = settings_of(tmp_path, git_schemes=("http",), git_private=True)
    hold = threading.Event()
    with unless_hung(), git_server(tmp_path / "origin", stalled=hold) as remote:
        order = {"threadId": "t", "url": remote.url("api")}
        async with server(WorkerBridge(), settings) as client:
            await talk(client, "hello", "u1")
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: client.post("/repos/add", json=order))
                await anyio.to_thread.run_sync(remote.pack_requests.acquire)
                group.cancel_scope.cancel()
            under_way = await repos(client)
            at_once = await client.post("/repos/add?wait=0", json={**order, "url": remote.url("api.git")})
            hold.set()
            added = await client.post("/repos/add", json=order)
            stored_facts = await facts(client)
    assert [(repo["name"], repo["status"]) for repo in under_way] == [("api", "cloning")]
    assert (at_once.status_code, at_once.json()) == (202, {"message": "Repository is being cloned", "name": "api"})
    assert added.status_code == 200
    assert [name for name, _ in stored_facts].count("ambient:repo_added") == 1
    steps = [value for name, value in stored_facts if name == "ambient:repo_progress"]
    assert {step["name"] for step in steps} == {"api"}
    assert 1 <= len(steps) <= 40
    assert not remote.pack_requests.acquire(blocking=False)


async def test_a_workflow_is_changed_kept_when_the_next_one_fails_and_cleared(tmp_path: Path) -> None:
    """C8: in the reference a failed clone was reported as an updated workflow, and the directory was empty."""
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
        stored_facts = await facts(client)
        await talk(client, "without it", "u3")
    about = {"gitUrl": flow, "branch": "", "path": "inner"}
    assert (first.status_code, first.json()) == (200, {"message": "Workflow updated", **about})
    assert (again.status_code, again.json()) == (200, {"message": "Workflow already active", **about})
    assert gone.status_code >= 400
    assert bad.status_code >= 400
    none = {"gitUrl": "", "branch": "", "path": ""}
    assert cleared.json() == {"message": "Workflow updated", **none}
    assert nothing.json() == {"message": "No workflow is active", **none}
    assert [value for name, value in stored_facts if name == "ambient:workflow_changed"] == [
        {**about, "name": "Triage", "description": "Sorts."},
        {"gitUrl": "", "branch": "", "path": "", "name": "", "description": ""},
    ]
    assert [value["stage"] for name, value in stored_facts if name == "ambient:setup_error"] == ["workflow", "workflow"]
    assert [Path(child[1]).name for child in bridge.children] == ["artifacts", "inner", "artifacts"]
