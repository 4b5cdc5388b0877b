"""`ambient doctor`: checks the machine and prints the command that installs what is missing."""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from rich.console import Console
from rich.text import Text

from ambient_runner.bridges.acp.profiles import PROFILES
from ambient_runner.bridges.registry import load_agent
from ambient_runner.bridges.user_errors import describe_error
from ambient_runner.cli.columns import align_columns
from ambient_runner.cli.serve import bind_socket, format_url, try_store
from ambient_runner.cli.text_format import strip_control_chars
from ambient_runner.config import MIN_SECRET_LENGTH, SPLIT_ADVICE, named_environment
from ambient_runner.config.loader import agent_name
from ambient_runner.errors import ConfigError, LedgerError, RunnerError
from ambient_runner.ledger.sqlite.connection import database_path
from ambient_runner.processes.bubblewrap import check_bubblewrap
from ambient_runner.runs.isolate import reraise_as
from ambient_runner.server.middleware_loader import load_middleware
from ambient_runner.services.bounded_http import send_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ambient_runner.bridges.acp.profiles import Profile
    from ambient_runner.config import AgentSettings, Settings

_PACKAGE = "ambient-runner"
_CORE = (_PACKAGE, "ag-ui-protocol", "fastapi", "uvicorn", "msgspec", "anyio")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([a-z0-9,-]+)\])?.*extra == ['\"]([a-z0-9-]+)['\"]")
_ALL = "all"
_CLAUDE_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_READY_STATUSES = frozenset({"ready", "draining", LedgerError.code})
"""Answers of `GET /ready`."""
_STATUS_TIMEOUT = 2.0
"""Seconds to wait for the health route of a running server."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. An optional finding never fails the report."""

    subject: str
    is_good: bool
    detail: str
    is_optional: bool = False


def run_checks(settings: Settings) -> int:
    """Print the findings. Return 0 if everything required is present, else 1."""
    claude = check_claude_key(named_environment(_CLAUDE_KEYS)) if _is_installed("claude-agent-sdk") else []
    findings = [
        *check_versions(),
        *check_extras(),
        *claude,
        check_git(),
        check_node(),
        *check_command_line_agents(),
        check_sandbox(),
        *(check_agent(agent) for agent in settings.agents),
        *(check_middleware(entry) for entry in settings.middleware),
        *check_secrets(settings),
        check_store(settings),
        check_port(settings),
    ]
    console = Console(highlight=False)
    for line in align_columns([_finding_row(finding) for finding in findings]):
        console.print(line, soft_wrap=True)
    return 0 if all(finding.is_good or finding.is_optional for finding in findings) else 1


def _finding_row(finding: Finding) -> list[Text]:
    optional = Text("optional", style="yellow")
    mark = (
        Text("ok", style="green")
        if finding.is_good
        else optional
        if finding.is_optional
        else Text("problem", style="red")
    )
    return [mark, *(Text(" ".join(strip_control_chars(cell).split())) for cell in (finding.subject, finding.detail))]


def check_versions() -> list[Finding]:
    """Return the versions of Python and of the core packages."""
    python = Finding("python", sys.version_info >= (3, 11), platform.python_version())
    return [python, *(Finding(name, True, version(name)) for name in _CORE)]


def check_extras() -> list[Finding]:
    """Return the extras of this release, with the install command of each one that is missing."""
    needed = packages_by_extra(distribution(_PACKAGE).requires or ())
    return [_check_extra(name, packages) for name, packages in sorted(needed.items())]


def packages_by_extra(requires: Iterable[str]) -> dict[str, list[str]]:
    """Return the packages of each extra by its name. An extra made of others has their packages. The extra `all` is left out."""
    matches = [match for requirement in requires if (match := _REQUIREMENT.match(requirement)) and match[3] != _ALL]
    needed: dict[str, list[str]] = {}
    for match in sorted(matches, key=lambda match: match[1] == _PACKAGE):
        inner = (match[2] or "").split(",") if match[1] == _PACKAGE else []
        brought = [package for extra in inner for package in needed.get(extra, ())] if inner else [match[1]]
        needed.setdefault(match[3], []).extend(brought)
    return needed


def _check_extra(name: str, packages: list[str]) -> Finding:
    is_installed = all(_is_installed(package) for package in packages)
    detail = "installed" if is_installed else f'pip install "{_PACKAGE}[{name}]"'
    return Finding(f"extra {name}", is_installed, detail, is_optional=True)


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def check_claude_key(variables: Mapping[str, str]) -> list[Finding]:
    """Return the credential variables Claude's CLI would use. The CLI may have its own login, so a missing key is only a hint."""
    if variables:
        return [Finding("claude key", True, ", ".join(variables), is_optional=True)]
    hint = f"export {_CLAUDE_KEYS[0]}=… unless its CLI is signed in on this machine"
    return [Finding("claude key", False, hint, is_optional=True)]


def check_secrets(settings: Settings) -> list[Finding]:
    """Return the secret variables whose values are too short, too easy to guess, or are not found in every stream."""
    guessable = "too easy to guess, so it is not redacted: choose a longer random value"
    short = f"shorter than {MIN_SECRET_LENGTH} characters, so it is not redacted: choose a longer random value"
    split = f"not redacted if an agent streams it in pieces: {SPLIT_ADVICE}"
    weak = {
        **dict.fromkeys(settings.split_secrets, split),
        **dict.fromkeys(settings.guessable_secrets, guessable),
        **dict.fromkeys(settings.short_secrets, short),
    }
    return [Finding(f"secret {name}", False, detail, is_optional=True) for name, detail in sorted(weak.items())]


def check_git() -> Finding:
    """Check for git, which clones the repositories and workflows of agents that work on files."""
    found = shutil.which("git")
    return Finding("git", bool(found), found or "only needed by agents that work on repositories", is_optional=True)


def check_node() -> Finding:
    """Check for Node, which runs most command-line agents, and the official clients in the tests."""
    found = shutil.which("node")
    return Finding(
        "node", bool(found), found or "only needed by command-line agents, and for the tests", is_optional=True
    )


def check_command_line_agents() -> list[Finding]:
    """Return the known command-line agents: the version and path of each that is installed, else the line that installs it."""
    return [_check_profile(profile) for profile in PROFILES.values()]


def _check_profile(profile: Profile) -> Finding:
    path = shutil.which(profile.command[0])
    detail = f"{_package_version(Path(path))}{path}" if path else profile.install
    return Finding(f"profile {profile.name}", path is not None, detail, is_optional=True)


def _package_version(program: Path) -> str:
    """Return the version of the npm package that a program belongs to, with a space; empty if it is not known.

    The programs themselves are not asked: some start and wait, whatever their arguments.
    """
    for directory in program.resolve().parents:
        try:
            package = json.loads((directory / "package.json").read_text(encoding="utf-8"))
            return f"{package['version']} "
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return ""


def check_sandbox() -> Finding:
    """Check for the sandbox of command-line agents."""
    status = check_bubblewrap()
    enforced = "files and network of command-line agents are limited by the operating system"
    own = ", ".join(profile.name for profile in PROFILES.values() if profile.has_sandbox)
    missing = f"{status.reason} Without it only {own} limits its commands itself."
    return Finding("sandbox", status.path is not None, enforced if status.path else missing, is_optional=True)


def check_agent(agent: str | AgentSettings) -> Finding:
    """Check that a configured agent can be loaded. This imports its module."""
    return _check_loading(f"agent {agent_name(agent)}", lambda: type(load_agent(agent)[1]).__name__)


def check_middleware(entry: str) -> Finding:
    """Check that a configured middleware can be loaded. This imports its module."""

    def load() -> str:
        load_middleware([entry])
        return "loaded"

    return _check_loading(f"middleware {entry}", load)


def _check_loading(subject: str, load: Callable[[], str]) -> Finding:
    """Return the finding with the text that `load` returns, or with the error it raises."""
    try:
        with reraise_as(lambda error: ConfigError(describe_error(error))):
            return Finding(subject, True, load())
    except RunnerError as error:
        return Finding(subject, False, error.message)


def check_store(settings: Settings) -> Finding:
    """Check that the store opens. A SQLite file that does not exist is not created."""

    file = database_path(settings.store)
    if file is not None and not file.exists():
        return Finding("store", True, f"{settings.store_label} does not exist yet; `ambient serve` creates it")
    try:
        anyio.run(try_store, settings)
    except RunnerError as error:
        return Finding("store", False, f"{settings.store_label}: {error.message}")
    return Finding("store", True, settings.store_label)


def check_port(settings: Settings) -> Finding:
    """Check that `ambient serve` could listen on the port, or already does."""
    try:
        bind_socket(settings.host, settings.port).close()
    except ConfigError as error:
        url = format_url(settings.host, settings.port)
        if _is_ambient_server(url):
            return Finding("port", True, f"Ambient Runner is running on {url}")
        return Finding("port", False, error.message)
    return Finding("port", True, f"{settings.host}:{settings.port} is free")


def _is_ambient_server(url: str) -> bool:
    """Return True if an Ambient Runner server answers at the URL: `/health` and `/ready` both identify it."""
    return _fetch_status(f"{url}/health") == "healthy" and _fetch_status(f"{url}/ready") in _READY_STATUSES


def _fetch_status(url: str) -> str:
    """Return the `status` of a health route, or an empty string if there is no such route."""
    try:
        body = json.loads(send_request("GET", url, headers={}, timeout=_STATUS_TIMEOUT, limit=1000).body)
        return body["status"]
    except (OSError, ValueError, TypeError, KeyError):
        return ""
