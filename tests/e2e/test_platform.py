"""The platform of a real server: its own process, real sockets, real git, real child processes, and kills."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx
import psutil

from tests.machine_speed import HANG_SECONDS, unless_hung
from tests.services.mcp_paths import MCP_SERVER
from tests.services.remotes import git, git_server, make_repo
from tests.services.world import announcements

from .server import Child, start
from .streams import ROOT
from .talk import run_input

AGENT = "worker=tests.e2e.platform_agent:WorkerBridge"
SERVER_SECRETS = {"PROVIDER_API_KEY": "key-of-the-provider", "AMBIENT_CREDENTIALS_TOKEN": "token-of-the-server"}


@contextmanager
def backend() -> Generator[str]:
    """Gives each thread a token of its own, to the server that shows its bearer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            (thread,) = parse_qs(urlsplit(self.path).query)["thread"]
            known = self.headers["Authorization"] == "Bearer token-of-the-server"
            body = json.dumps({"GITHUB_TOKEN": f"token-of-{thread}"}).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/credentials"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def server(tmp_path: Path, **env: str) -> Child:
    places = {"AMBIENT_WORKSPACE": str(tmp_path / "workspaces"), "PYTHONPATH": str(ROOT)}
    return start(tmp_path / "store.db", AGENT, env={**places, **env}, cwd=tmp_path)


async def talk(url: str, thread: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(timeout=HANG_SECONDS) as client:
        response = await client.post(f"{url}/", json=run_input(thread, "hello"))
    assert response.status_code == 200, response.text
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines]


def said(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What the child printed first."""
    pieces: dict[str, str] = {}
    for event in events:
        if event["type"] == "TEXT_MESSAGE_START" and event["role"] == "assistant":
            pieces[event["messageId"]] = ""
        if event["type"] == "TEXT_MESSAGE_CONTENT" and event["messageId"] in pieces:
            pieces[event["messageId"]] += event["delta"]
    return json.loads(next(iter(pieces.values())))


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def test_two_threads_at_once_each_have_their_own_token_and_no_one_can_read_it(tmp_path: Path) -> None:
    """S6 and S8 with a real server: streams, the log, the store and the workspaces."""
    heard: dict[str, list[dict[str, Any]]] = {}
    with backend() as url, unless_hung():
        env = {**SERVER_SECRETS, "AMBIENT_CREDENTIALS_URL": url, "AMBIENT_LOG_LEVEL": "debug"}
        with server(tmp_path, **env) as child:

            async def run(thread: str) -> None:
                heard[thread] = await talk(child.url, thread)

            async with anyio.create_task_group() as group:
                group.start_soon(run, "alice")
                group.start_soon(run, "bob")
    for thread in ("alice", "bob"):
        hashes = said(heard[thread])["hashes"]
        assert hashes["GITHUB_TOKEN"] == hashed(f"token-of-{thread}")
        assert not set(SERVER_SECRETS) & set(hashes)
        assert announcements(heard[thread])[1:3] == ["Auth connected", "Workspace validated"]
    secrets = ["token-of-alice", "token-of-bob", *SERVER_SECRETS.values()]
    places = {
        "streams": json.dumps(heard),
        "log": child.output,
        "disk": "".join(path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()),
    }
    assert [(place, secret) for place, text in places.items() for secret in secrets if secret in text] == []
    assert "[redacted]" in places["streams"]


async def test_a_repository_added_to_a_running_server_is_where_the_next_run_works(tmp_path: Path) -> None:
    """C3, C4: in the reference it was cloned, but never became part of what the agent was told, and had no branch."""
    origin = make_repo(tmp_path / "origin" / "api", {"README": "hi"})
    with server(tmp_path, AMBIENT_GIT_SCHEMES="file") as child, unless_hung():
        before = said(await talk(child.url, "t"))
        async with httpx.AsyncClient(base_url=child.url, timeout=HANG_SECONDS) as client:
            added = (await client.post("/repos/add", json={"threadId": "t", "url": origin.as_uri()})).json()
        events = await talk(child.url, "t")
    assert before["cwd"].endswith("/artifacts")
    assert said(events)["cwd"] == added["path"]
    assert git(Path(added["path"]), "branch", "--show-current") == "ambient/t"
    # What happened since the run before comes first, then what this run says.
    facts = ["ambient:repo_progress", "ambient:repo_added"]
    assert announcements(events) == [*facts, "Workspace changed. Repositories: api. Workflow: none."]


async def test_a_server_killed_in_the_middle_of_a_clone_leaves_nothing_and_can_begin_again(tmp_path: Path) -> None:
    make_repo(tmp_path / "origin" / "api", {"README": "hi" * 5000})
    env = {"AMBIENT_GIT_SCHEMES": "http", "AMBIENT_GIT_PRIVATE": "true"}
    hold = threading.Event()
    with git_server(tmp_path / "origin", stalled=hold) as remote, unless_hung():
        order = {"threadId": "t", "url": remote.url("api")}
        with server(tmp_path, **env) as child:
            async with httpx.AsyncClient(base_url=child.url, timeout=HANG_SECONDS) as client:
                begun = await client.post("/repos/add?wait=0", json=order)
                await anyio.to_thread.run_sync(remote.pack_requests.acquire)
            child.kill()
        hold.set()
        with server(tmp_path, **env) as child:
            async with httpx.AsyncClient(base_url=child.url, timeout=HANG_SECONDS) as client:
                listed = (await client.get("/repos/status", params={"threadId": "t"})).json()
                events = await talk(child.url, "t")
                added = await client.post("/repos/add", json=order)
    assert (begun.status_code, listed) == (202, {"repos": []})
    assert said(events)["cwd"].endswith("/artifacts")
    assert (added.status_code, added.json()["newly_cloned"]) == (200, True)
    (scratch,) = (tmp_path / "workspaces").rglob(".records/*/*/*/tmp")
    assert list(scratch.iterdir()) == []


async def test_a_server_that_is_shut_down_ends_its_clones_and_mcp_servers_too(tmp_path: Path) -> None:
    make_repo(tmp_path / "origin" / "api", {"README": "hi" * 5000})
    stuck = {"command": sys.executable, "args": ["-c", "input(); input(); input()"]}
    echo = {"command": sys.executable, "args": [MCP_SERVER, "stdio", str(tmp_path / "log")]}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"stuck": stuck, "echo": echo}}))
    env = {"AMBIENT_GIT_SCHEMES": "http", "AMBIENT_GIT_PRIVATE": "true", "AMBIENT_MCP_CONFIG": str(config)}
    refusals: list[str] = []
    with git_server(tmp_path / "origin", stalled=threading.Event()) as remote, unless_hung():
        with server(tmp_path, **env, AMBIENT_DEFAULT_THREAD="t") as child:
            async with (
                httpx.AsyncClient(base_url=child.url, timeout=HANG_SECONDS) as client,
                anyio.create_task_group() as group,
            ):

                async def look() -> None:
                    refusals.append((await client.get("/mcp/status")).json()["error"]["code"])

                group.start_soon(look)
                await client.post("/repos/add?wait=0", json={"url": remote.url("api")})
                await anyio.to_thread.run_sync(remote.pack_requests.acquire)
                children = await anyio.to_thread.run_sync(_children_of, child.pid)
                code = await anyio.to_thread.run_sync(child.stop)
    assert (code, refusals, len(children) >= 2) == (0, ["draining"], True)
    # One of them looks for what a killed server leaves behind, and ends a moment after the server.
    _, left = await anyio.to_thread.run_sync(lambda: psutil.wait_procs(children, timeout=HANG_SECONDS))
    assert [one for one in left if one.status() != psutil.STATUS_ZOMBIE] == []


def _children_of(pid: int) -> list[psutil.Process]:
    """The children once there are two kinds of them: git, and an MCP server."""
    while True:
        found = psutil.Process(pid).children(recursive=True)
        kinds = {Path(one.name()).name[:3] for one in found}
        if {"git", "pyt"} <= kinds:
            return found
        threading.Event().wait(0.02)
