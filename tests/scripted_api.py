"""The APIs of model providers on loopback, scripted: aimock, which speaks those of OpenAI, Anthropic and Google."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest

AIMOCK = Path(__file__).parent / "e2e" / "clients" / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"

Fixture = dict[str, Any]
"""A request's last user message, and the response to it."""


def start_scripted_api(fixtures: list[Fixture]) -> str:
    """Start the APIs, until this process ends, and return their URL. Skips the test where there is no Node to run them."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed, so there is no scripted model")
    if not AIMOCK.is_file():
        pytest.skip("run `make tests/e2e/clients/node_modules/.installed` for the scripted model")
    directory = Path(tempfile.mkdtemp(prefix="ambient-aimock-"))
    script = directory / "script.json"
    script.write_text(json.dumps({"fixtures": fixtures}))
    server = subprocess.Popen(
        [node, str(AIMOCK), "-p", "0", "-c", "8", "-f", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    atexit.register(_end, server, directory)
    assert server.stdout is not None
    for line in server.stdout:
        if "listening on" in line:
            return line.split()[-1].rstrip("/")
    raise RuntimeError("aimock ended before it listened")


def read_requests(url: str) -> list[dict[str, Any]]:
    """Return the bodies of all requests to the models, the oldest first. One above 64 KiB is not recorded."""
    with urllib.request.urlopen(f"{url}/__aimock/journal") as answer:
        return [entry["body"] for entry in json.load(answer)]


def _end(server: subprocess.Popen[str], directory: Path) -> None:
    server.kill()
    server.wait()
    if server.stdout is not None:
        server.stdout.close()
    shutil.rmtree(directory, ignore_errors=True)
