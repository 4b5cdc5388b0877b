"""`ambient doctor`: what is a problem, what is a hint, and what is neither."""

from __future__ import annotations

import socketserver
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from ambient_runner import Settings, create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.cli.doctor import (
    Finding,
    check_claude_key,
    check_command_line_agents,
    check_extras,
    check_secrets,
    packages_by_extra,
)
from ambient_runner.cli.serve import bind_socket
from ambient_runner.config import read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


@contextmanager
def serving() -> Generator[int]:
    """An Ambient Runner in a thread of its own; gives its port."""
    app = create_app(Settings(store="memory://"), {"demo": DemoBridge()})
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None))
    with bind_socket("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(20)


class Other(BaseHTTPRequestHandler):
    """Somebody else's server, as healthy as ours."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
        self.wfile.write(b'{"status":"healthy"}')

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_our_own_server_on_the_port_is_no_problem(ambient: Callable[..., Any]) -> None:
    with serving() as port:
        code, out, _ = ambient("doctor", "--port", str(port))
    assert (code, "problem" in out) == (0, False)
    assert f"Ambient Runner is running on http://127.0.0.1:{port}" in " ".join(out.split())


def test_another_server_on_the_port_is_one(ambient: Callable[..., Any]) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever).start()
        try:
            code, out, _ = ambient("doctor", "--port", str(other.server_address[1]))
        finally:
            other.shutdown()
    assert (code, "problem" in out) == (1, True)


def test_the_extra_that_is_all_extras_is_no_finding() -> None:
    found = {finding.subject for finding in check_extras()}
    assert ("extra all" in found, "extra langgraph" in found) == (False, True)


def test_an_extra_made_of_extras_needs_what_they_need() -> None:
    """`langfuse` was found installed wherever we are, because it asks for us."""
    requires = [
        'langgraph<2,>=1.2; extra == "langgraph"',
        'opentelemetry-sdk>=1; extra == "otel"',
        'ambient-runner[otel]; extra == "langfuse"',
        'ambient-runner[langfuse,langgraph,otel]; extra == "all"',
        "anyio",
    ]
    assert packages_by_extra(requires) == {
        "langgraph": ["langgraph"],
        "otel": ["opentelemetry-sdk"],
        "langfuse": ["opentelemetry-sdk"],
    }


@pytest.mark.parametrize(
    ("variables", "good"), [({}, False), ({"ANTHROPIC_API_KEY": "k"}, True), ({"CLAUDE_CODE_OAUTH_TOKEN": "t"}, True)]
)
def test_a_missing_key_for_claude_is_a_hint(variables: dict[str, str], good: bool) -> None:
    [finding] = check_claude_key(variables)
    assert isinstance(finding, Finding)
    assert (finding.is_good, finding.is_optional, "export ANTHROPIC_API_KEY=" in finding.detail) == (
        good,
        True,
        not good,
    )


AGENTS = """
async def agent(input):
    yield

def keep(handler):
    return handler
"""
BROKEN = "raise ValueError('no such customer')\n"


def report_of(ambient: Callable[..., Any], config: str) -> tuple[int, dict[str, str]]:
    """The exit code and the lines about agents and middleware, by subject."""
    Path("ambient.toml").write_text(config)
    code, out, err = ambient("doctor", "--port", "0")
    assert "Traceback" not in out + err
    lines = [line.split(maxsplit=3) for line in out.splitlines()]
    return code, {" ".join(line[1:3]): f"{line[0]}: {line[3]}" for line in lines if line[1] in {"agent", "middleware"}}


def test_configured_agents_and_middleware_are_loaded(ambient: Callable[..., Any], project: Callable[..., None]) -> None:
    project(doctor_agents=AGENTS)
    config = (
        'middleware = ["doctor_agents:keep"]\n[agents]\nmine = "doctor_agents:agent"\n[agents.other]\nbridge = "demo"\n'
    )
    assert report_of(ambient, config) == (
        0,
        {
            "agent mine": "ok: AGUIBridge",
            "agent other": "ok: DemoBridge",
            "middleware doctor_agents:keep": "ok: loaded",
        },
    )


def test_agents_and_middleware_that_cannot_be_loaded_are_problems_in_one_line_each(
    ambient: Callable[..., Any], project: Callable[..., None]
) -> None:
    project(doctor_agents=AGENTS, doctor_broken=BROKEN)
    config = (
        'middleware = ["doctor_agents:kep", "doctor_agents:keep"]\n'
        '[agents]\nmine = "doctor_broken:agent"\n[agents.other]\nbridge = "dmeo"\n'
    )
    code, lines = report_of(ambient, config)
    assert (code, list(lines)) == (
        1,
        ["agent mine", "agent other", "middleware doctor_agents:kep", "middleware doctor_agents:keep"],
    )
    assert "no such customer (doctor_broken.py, line 1)" in lines["agent mine"]
    assert "Did you mean demo?" in lines["agent other"]
    assert "Did you mean keep?" in lines["middleware doctor_agents:kep"]
    assert lines["middleware doctor_agents:keep"] == "ok: loaded"


def test_a_long_path_of_the_store_is_shown_whole(ambient: Callable[..., Any]) -> None:
    store = f"sqlite:///{'d' * 150}/threads.db"
    assert store in ambient("doctor", "--port", "0", "--store", store)[1]


def test_the_secrets_that_are_not_redacted_are_named() -> None:
    settings = read_settings(environ={"DB_PASSWORD": "aZ7$kQ9", "API_TOKEN": "summer2026"})
    assert [(finding.subject, finding.is_good, finding.detail) for finding in check_secrets(settings)] == [
        ("secret API_TOKEN", False, "too easy to guess, so it is not redacted: choose a longer random value"),
        ("secret DB_PASSWORD", False, "shorter than 8 characters, so it is not redacted: choose a longer random value"),
    ]


def test_command_line_agents_are_listed_with_version_or_install_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "node_modules" / "codex-acp"
    (package / "bin").mkdir(parents=True)
    (package / "package.json").write_text('{"version": "2.6.0"}')
    program = package / "bin" / "codex-acp"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    findings = {finding.subject: finding for finding in check_command_line_agents()}
    assert findings["profile codex"].detail == f"2.6.0 {program}"
    assert findings["profile gemini"].detail == "npm install -g @google/gemini-cli@0.61.0"
    assert [finding.is_optional for finding in findings.values()] == [True] * 4
