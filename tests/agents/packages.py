"""The real agents as npm packages, each in a directory of its own outside of the tree's packages: `.agents/NAME`."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from ambient_runner.bridges.acp.profiles import PROFILES

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / ".agents"
INSTALL_TIMEOUT = 900.0  # seconds
AGENTS = ("claude-acp", "codex", "gemini", "opencode")


class NotInstalled(Exception):
    """npm cannot install the agent here."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """An agent's package: where it is installed, and how long that took; zero if it was there."""

    agent: str
    path: Path
    seconds: float = 0.0

    @property
    def bin(self) -> Path:
        return self.path / "node_modules" / ".bin"


def install_agent(agent: str) -> Package:
    """Install the version that the profile names, unless it is there. Raises: NotInstalled with npm's last lines."""
    package = PROFILES[agent].install.split()[-1]
    path = DIRECTORY / agent
    stamp = path / f".installed-{package.replace('/', '-')}"
    if stamp.exists():
        return Package(agent=agent, path=path)
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("npm was not found")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    began = time.monotonic()
    command = [
        npm,
        "install",
        "--prefix",
        str(path),
        "--no-audit",
        "--no-fund",
        "--no-package-lock",
        "--loglevel=error",
    ]
    finished = subprocess.run([*command, package], capture_output=True, text=True, check=False)
    if finished.returncode:
        raise NotInstalled("\n".join(finished.stderr.splitlines()[-5:]))
    stamp.touch()
    return Package(agent=agent, path=path, seconds=time.monotonic() - began)
