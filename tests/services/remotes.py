"""Real git repositories to clone from: in a directory, and over HTTP from `git http-backend` on a free port of this machine."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import anyio.to_thread

from ambient_runner.ledger.records import ThreadKey
from ambient_runner.services.workspaces.clone import CloneProgress
from ambient_runner.services.workspaces.clone_sources import SourceRules
from tests.machine_speed import unless_hung

ANN = ThreadKey("default", "ann", "trip")
BOB = ThreadKey("default", "bob", "trip")
PATH = {"PATH": os.environ["PATH"]}
NOTHING: dict[str, str] = {}
HERE = SourceRules(schemes=("http", "file"), allow_private=True)
"""Clones may come from this machine."""

QUIET = {
    **PATH,
    "HOME": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def git(directory: Path, *args: str) -> str:
    """Plain git, to make and to look at repositories."""
    done = subprocess.run(["git", *args], cwd=directory, env=QUIET, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repo(
    directory: Path,
    files: Mapping[str, str | bytes],
    *,
    branch: str = "trunk",
    branches: tuple[str, ...] = (),
    links: Mapping[str, str] | None = None,
) -> Path:
    """A repository with one commit. Its default branch is not `main` unless `branch` names one."""
    directory.mkdir(parents=True)
    git(directory, "init", "-q", "-b", branch)
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for name, target in (links or {}).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).symlink_to(target)
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "--allow-empty", "-m", "first")
    for other in branches:
        git(directory, "branch", other)
    return directory


@dataclass
class Steps:
    """Records progress steps."""

    steps: list[CloneProgress] = field(default_factory=list)
    begun: anyio.Event = field(default_factory=anyio.Event)
    """Set with the first step."""

    async def __call__(self, step: CloneProgress) -> None:
        self.steps.append(step)
        self.begun.set()


@dataclass
class GitServer:
    """Repositories below a directory, over HTTP. `login` is required if set; `stalled` holds packs back until it is set."""

    directory: Path
    login: str = ""
    redirect: str = ""
    stalled: threading.Event | None = None
    pack_requests: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    port: int = 0
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    """Path, Host and Authorization of each request."""

    def url(self, name: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}/{name}"

    @property
    def logins(self) -> set[str]:
        """Decoded credentials that clients sent."""
        sent = (credentials.removeprefix("Basic ") for _, _, credentials in self.requests if credentials)
        return {base64.b64decode(credentials).decode() for credentials in sent}


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, state: GitServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.state = state
        state.port = self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    server: _Server

    def handle(self) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the client was ended in the middle
            super().handle()

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, format: str, *args: object) -> None: ...

    def _serve(self, body: bytes) -> None:
        state, credentials = self.server.state, self.headers.get("Authorization", "")
        state.requests.append((self.path, self.headers.get("Host", ""), credentials))
        if state.redirect:
            self._answer(302, {"Location": state.redirect + self.path})
        elif state.login and credentials != "Basic " + base64.b64encode(state.login.encode()).decode():
            self._answer(401, {"WWW-Authenticate": 'Basic realm="git"'})
        else:
            self._backend(body)

    def _answer(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _backend(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            **QUIET,
            "GIT_PROJECT_ROOT": str(self.server.state.directory),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self._answer(int(headers.pop("Status", "200").split()[0]), headers)
        if b"command=fetch" in body:
            self._send_pack(content)
        else:
            self.wfile.write(content)

    def _send_pack(self, content: bytes) -> None:
        state = self.server.state
        half = len(content) // 2 if state.stalled else len(content)
        self.wfile.write(content[:half])
        self.wfile.flush()
        state.pack_requests.release()
        if state.stalled:
            state.stalled.wait(60)
        self.wfile.write(content[half:])


@contextmanager
def git_server(
    directory: Path, *, login: str = "", redirect: str = "", stalled: threading.Event | None = None
) -> Iterator[GitServer]:
    """Serve until the end of the `with`; what is held back is let go then."""
    state = GitServer(directory, login=login, redirect=redirect, stalled=stalled)
    server = _Server(state)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield state
    finally:
        if state.stalled:
            state.stalled.set()
        server.shutdown()
        thread.join()
        server.server_close()


async def asked_for_a_pack(server: GitServer) -> None:
    """Comes back when one more clone has begun to receive."""
    with unless_hung():
        await anyio.to_thread.run_sync(server.pack_requests.acquire)
