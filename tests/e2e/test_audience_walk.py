"""The walk of the page on audiences: the same thread as `open` and as `safe`, with the page's own commands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.machine_speed import HANG_SECONDS

from .server import AMBIENT, Child

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "audience.md"
WALK = PAGE.read_text().partition("## Try it")[2].partition("\n## ")[0]
STARTS, REQUESTS = re.findall(r"^```sh\n(.*?)^```", WALK, re.MULTILINE | re.DOTALL)
SHOWN = re.findall(r"^\| `(\w+)` \| `(.+?)` \| `(.+?)` \|$", WALK, re.MULTILINE)

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def start_servers(stack: ExitStack, directory: Path) -> dict[str, str]:
    """Start each command of the page on a free port. Return the page's addresses with the real ones."""
    found: dict[str, str] = {}
    for line in STARTS.splitlines():
        assigned, port = dict(re.findall(r"^(\w+)=(\w+) ", line)), re.search(r"--port (\d+)", line)
        assert port
        child = stack.enter_context(Child([AMBIENT, "serve", "demo", "--port", "0"], cwd=directory, env=assigned))
        found[f"http://127.0.0.1:{port[1]}"] = child.url.rstrip("/")
    return found


def run_commands(addresses: dict[str, str]) -> list[list[dict[str, Any]]]:
    """Run the page's requests in a shell, one after the other. Return the events of each."""
    answers: list[list[dict[str, Any]]] = []
    for command in re.split(r"\n(?=curl )", REQUESTS.strip()):
        for page, real in addresses.items():
            command = command.replace(page, real)
        done = subprocess.run(["sh", "-c", command], capture_output=True, check=True, text=True, timeout=HANG_SECONDS)
        answers.append([json.loads(line) for line in done.stdout.splitlines()])
    return answers


def content_of(events: list[dict[str, Any]], kind: str) -> str:
    return "".join(event.get("delta", event.get("content", "")) for event in events if event["type"] == kind)


def test_the_walk_shows_the_same_thread_as_open_and_as_safe(tmp_path: Path) -> None:
    with ExitStack() as stack:
        addresses = start_servers(stack, tmp_path)
        assert len(addresses) == 2
        run, as_open, as_safe = run_commands(addresses)
    assert run == as_open
    for kind, shown_open, shown_safe in SHOWN:
        assert (content_of(as_open, kind), content_of(as_safe, kind)) == (shown_open, shown_safe)
    assert {kind for kind, *_ in SHOWN} == {"TOOL_CALL_ARGS", "TOOL_CALL_RESULT"}
    assert content_of(as_open, "TEXT_MESSAGE_CONTENT") == content_of(as_safe, "TEXT_MESSAGE_CONTENT") != ""
