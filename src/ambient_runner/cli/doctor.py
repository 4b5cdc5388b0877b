"""`ambient doctor`: what this machine has, and what to type for what it lacks."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from typing import TYPE_CHECKING

import anyio
from rich.console import Console
from rich.table import Table

from ambient_runner.cli.serve import bind
from ambient_runner.errors import ConfigError, RunnerError
from ambient_runner.ledger import open_ledger

if TYPE_CHECKING:
    from ambient_runner.config import Settings

_PACKAGE = "ambient-runner"
_CORE = (_PACKAGE, "ag-ui-protocol", "fastapi", "uvicorn", "msgspec", "anyio")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+).*extra == ['\"]([a-z0-9-]+)['\"]")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. What is optional never makes the report bad."""

    what: str
    good: bool
    detail: str
    optional: bool = False


def examine(settings: Settings) -> int:
    """Print what was found; 0 when everything needed is there, else 1."""
    findings = [*versions(), *extras(), git(), node(), store(settings), port(settings)]
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        mark = "[green]ok[/]" if finding.good else "[yellow]optional[/]" if finding.optional else "[red]problem[/]"
        table.add_row(mark, finding.what, finding.detail.replace("[", "\\["))
    Console(highlight=False).print(table)
    return 0 if all(finding.good or finding.optional for finding in findings) else 1


def versions() -> list[Finding]:
    """Python and the packages everything stands on."""
    python = Finding("python", sys.version_info >= (3, 11), platform.python_version())
    return [python, *(Finding(name, True, version(name)) for name in _CORE)]


def extras() -> list[Finding]:
    """The optional parts this release declares, with the line that installs each one that is not here."""
    needed: dict[str, list[str]] = {}
    for requirement in distribution(_PACKAGE).requires or ():
        match = _REQUIREMENT.match(requirement)
        if match:
            needed.setdefault(match[2], []).append(match[1])
    return [_extra(name, packages) for name, packages in sorted(needed.items())]


def _extra(name: str, packages: list[str]) -> Finding:
    there = all(_is_installed(package) for package in packages)
    detail = "installed" if there else f'pip install "{_PACKAGE}[{name}]"'
    return Finding(f"extra {name}", there, detail, optional=True)


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def git() -> Finding:
    """Git clones the repositories and workflows of agents that work on files."""
    found = shutil.which("git")
    return Finding("git", bool(found), found or "only needed by agents that work on repositories", optional=True)


def node() -> Finding:
    """Node runs the official clients in our tests; nothing else needs it."""
    found = shutil.which("node")
    return Finding("node", bool(found), found or "only needed for the tests with the official clients", optional=True)


def store(settings: Settings) -> Finding:
    """Whether the store opens."""

    async def touch() -> None:
        async with open_ledger(settings.store, lease=settings.lease):
            pass

    try:
        anyio.run(touch)
    except RunnerError as error:
        return Finding("store", False, f"{settings.store_label}: {error.message}")
    return Finding("store", True, settings.store_label)


def port(settings: Settings) -> Finding:
    """Whether `ambient serve` could listen."""
    try:
        bind(settings.host, settings.port).close()
    except ConfigError as error:
        return Finding("port", False, error.message)
    return Finding("port", True, f"{settings.host}:{settings.port} is free")
