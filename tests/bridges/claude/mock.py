"""aimock, started once for all tests of a process, with its journal of model requests."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import tempfile
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.bridges.claude.script import SCRIPT

AIMOCK = Path(__file__).parents[2] / "e2e" / "clients" / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"


@cache
def model_url() -> str:
    """Where the scripted model listens. Skips the test where there is no Node to run it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed, so there is no scripted model for Claude")
    if not AIMOCK.is_file():
        pytest.skip("run `make tests/e2e/clients/node_modules/.installed` for the scripted model of Claude")
    directory = Path(tempfile.mkdtemp(prefix="ambient-aimock-"))
    script = directory / "script.json"
    script.write_text(json.dumps({"fixtures": SCRIPT}))
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


def _end(server: subprocess.Popen[str], directory: Path) -> None:
    server.kill()
    server.wait()
    if server.stdout is not None:
        server.stdout.close()
    shutil.rmtree(directory, ignore_errors=True)


def model_request(words: str) -> dict[str, Any]:
    """Return the last request to the model with these words in its newest message."""
    with urllib.request.urlopen(f"{model_url()}/__aimock/journal") as answer:
        bodies = [entry["body"] for entry in json.load(answer)]
    found = [body for body in bodies if words in json.dumps(body.get("messages", [])[-1:])]
    assert found, f"no request to the model had {words!r}, or the request was too large for the journal"
    return found[-1]


def model_conversation(words: str) -> list[tuple[str, str]]:
    """Return the conversation in that request: the role and the last line of each message."""
    return [
        (message["role"], _text(message["content"]).rstrip().rpartition("\n")[2])
        for message in model_request(words)["messages"]
        if message["role"] in ("user", "assistant")
    ]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""
