"""`ambient doctor`: what this machine has, and what to type for what it lacks."""

from __future__ import annotations

import json
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

from ambient_runner.cli.serve import bind, url_of
from ambient_runner.config import named_environment
from ambient_runner.errors import ConfigError, RunnerError
from ambient_runner.ledger import open_ledger
from ambient_runner.services.bounded_http import send

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ambient_runner.config import Settings

_PACKAGE = "ambient-runner"
_CORE = (_PACKAGE, "ag-ui-protocol", "fastapi", "uvicorn", "msgspec", "anyio")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([a-z0-9,-]+)\])?.*extra == ['\"]([a-z0-9-]+)['\"]")
_ALL = "all"
_CLAUDE_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. What is optional never makes the report bad."""

    what: str
    good: bool
    detail: str
    optional: bool = False


def examine(settings: Settings) -> int:
    """Print what was found; 0 when everything needed is there, else 1."""
    claude = claude_key(named_environment(_CLAUDE_KEYS)) if _is_installed("claude-agent-sdk") else []
    findings = [*versions(), *extras(), *claude, git(), node(), store(settings), port(settings)]
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
    needed = needs_of(distribution(_PACKAGE).requires or ())
    return [_extra(name, packages) for name, packages in sorted(needed.items())]


def needs_of(requires: Iterable[str]) -> dict[str, list[str]]:
    """The packages each extra brings, by its name; one made of others brings theirs. The extra for all of them is none of its own."""
    matches = [match for requirement in requires if (match := _REQUIREMENT.match(requirement)) and match[3] != _ALL]
    needed: dict[str, list[str]] = {}
    for match in sorted(matches, key=lambda match: match[1] == _PACKAGE):
        inner = (match[2] or "").split(",") if match[1] == _PACKAGE else []
        brought = [package for extra in inner for package in needed.get(extra, ())] if inner else [match[1]]
        needed.setdefault(match[3], []).extend(brought)
    return needed


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


def claude_key(variables: Mapping[str, str]) -> list[Finding]:
    """How Claude's CLI signs in, as far as the environment tells. It may be signed in by itself, so a key that is missing is a hint."""
    if variables:
        return [Finding("claude key", True, ", ".join(variables), optional=True)]
    hint = f"export {_CLAUDE_KEYS[0]}=… unless its CLI is signed in on this machine"
    return [Finding("claude key", False, hint, optional=True)]


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
    """Whether `ambient serve` could listen, or does so already."""
    try:
        bind(settings.host, settings.port).close()
    except ConfigError as error:
        url = url_of(settings.host, settings.port)
        if _is_ambient(url):
            return Finding("port", True, f"Ambient Runner is running on {url}")
        return Finding("port", False, error.message)
    return Finding("port", True, f"{settings.host}:{settings.port} is free")


def _is_ambient(url: str) -> bool:
    """Whether one of us answers there. Many servers are healthy; ours also says whether it is ready."""
    return _status(f"{url}/health") == "healthy" and _status(f"{url}/ready") in {"ready", "draining"}


def _status(url: str) -> str:
    """What a door for operators says; nothing where there is none."""
    try:
        said = json.loads(send("GET", url, headers={}, timeout=_PATIENCE, limit=1000).body)
        return said["status"]
    except (OSError, ValueError, TypeError, KeyError):
        return ""
