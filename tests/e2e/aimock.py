"""A scripted model for Claude's command line: aimock, and the environment that leads a server to it and nowhere else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

AIMOCK = Path(__file__).parent / "clients" / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"


@contextmanager
def scripted_model(directory: Path, answers: Sequence[tuple[str, str]]) -> Generator[str]:
    """The URL of a model that answers a message with these words in it as told, in this order: the second answer is given only to a
    conversation that holds the first. Skips where there is no Node or no aimock.
    """
    node = shutil.which("node")
    if node is None or not AIMOCK.is_file():
        pytest.skip("Claude's scripted model needs Node and `npm install` in tests/e2e/clients")
    script = directory / "script.json"
    fixtures = [
        {"match": {"userMessage": words, "turnIndex": turn}, "response": {"content": answer}}
        for turn, (words, answer) in enumerate(answers)
    ]
    script.write_text(json.dumps({"fixtures": fixtures}))
    command = [node, str(AIMOCK), "-p", "0", "-f", str(script)]
    with subprocess.Popen(
        command,
        env={**os.environ, "AIMOCK_STRICT_TURN_INDEX": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            yield next(line.split()[-1].rstrip("/") for line in server.stdout if "listening on" in line)
        finally:
            server.kill()


def environment(directory: Path, model: str) -> dict[str, str]:
    """For a server whose Claude asks this model, keeps its files in this directory, and calls nobody else."""
    return {
        "HOME": str(directory),
        "CLAUDE_CONFIG_DIR": str(directory / "claude"),
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": "x",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
