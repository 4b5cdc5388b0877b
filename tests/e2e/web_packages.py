"""The packages in `web/`, built for the tests that need them: Node programs import what a page would."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.machine_speed import HANG_SECONDS

__all__ = ["WEB", "build_packages", "require_packages", "run_node"]

WEB = Path(__file__).parents[2] / "web"


def require_packages() -> None:
    """Skip the test if the packages cannot be built here."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed: the web packages cannot be built")
    if not (WEB / "node_modules" / "typescript").is_dir():
        pytest.skip("the web packages are not installed: run `npm ci` in web")


def build_packages() -> None:
    """Build what has changed since the last build. One process at a time: several workers need the same files."""
    require_packages()
    with (WEB / "node_modules" / ".build-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = subprocess.run(
            ["npm", "run", "--silent", "build"],
            cwd=WEB,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )
    assert built.returncode == 0, built.stdout + built.stderr


def run_node(program: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    """Run a Node program to its end. Returns its output."""
    done = subprocess.run(
        ["node", program.name, *arguments],
        cwd=program.parent,
        input=stdin,
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
