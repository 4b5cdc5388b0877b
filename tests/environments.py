"""Virtual environments for tests that need other packages than `.venv` has: one per set of requirements, made once and kept.

`make test-versions` and `make test-migrate` use them.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment in the directory `path`."""

    path: Path

    @property
    def python(self) -> Path:
        return self.path / "bin" / "python"

    def run(self, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python here, with this package and its tests importable, and return its output."""
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT))), **variables}
        return subprocess.run([self.python, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False)

    def version_of(self, package: str) -> str:
        code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
        return self.run("-c", code).stdout.strip()


def make_environment(name: str, requirements: Sequence[str]) -> Environment:
    """Return the environment `.venv-NAME` with these requirements; it is made again when they or this package's have changed.

    Raises: RuntimeError with pip's last lines when they cannot be installed.
    """
    path = ROOT / f".venv-{name}"
    digest = hashlib.sha256("\n".join([*requirements, (ROOT / "pyproject.toml").read_text()]).encode()).hexdigest()
    stamp, environment = path / f".installed-{digest[:16]}", Environment(path=path)
    if not stamp.exists():
        print(f"Making {path.name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", path], check=True)
        _install(environment, requirements)
        stamp.touch()
    return environment


def _install(environment: Environment, requirements: Sequence[str]) -> None:
    command = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
    installed = environment.run(*command)
    if installed.returncode:
        raise RuntimeError("\n".join(installed.stderr.splitlines()[-15:]))
