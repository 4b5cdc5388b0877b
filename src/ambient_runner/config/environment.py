"""Environment variables: those passed to child processes, and those whose values are secrets."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ambient_runner.config.settings import Settings, TracingSettings

_BASE_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def base_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of this process that any child process gets. Only the credentials granted to a run are added to them."""
    return {name: environ[name] for name in _BASE_VARIABLES if name in environ}


def named_environment(names: Iterable[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the named variables of this process, as far as they are set."""
    return {name: environ[name] for name in names if name in environ}


def git_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of this process for git: also certificates and proxies, which an agent's child processes do not get."""
    return {name: environ[name] for name in (*_BASE_VARIABLES, *_CERTIFICATES, *_PROXIES) if name in environ}


MIN_SECRET_LENGTH = 8
_SECRET_SUFFIXES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_CREDENTIALS")


_CREDENTIAL_NAME = re.compile(r"auth|cookie|credential|key$|password|secret|token", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return True if the name of a variable suggests that its value is a secret."""
    return name.upper().endswith(_SECRET_SUFFIXES)


def with_secrets(settings: Settings, environ: Mapping[str, str], names: tuple[str, ...]) -> Settings:
    """Return the settings with all known secret values. Raises: ConfigError if a named one is too short to be redacted."""
    for name in names:
        if 0 < len(environ.get(name, "")) < MIN_SECRET_LENGTH:
            raise ConfigError(f"{name} is named as a secret but is shorter than {MIN_SECRET_LENGTH} characters.")
    found = {value for name, value in environ.items() if name in names or is_secret_name(name)}
    password = urlsplit(settings.store).password
    if password:
        found |= {password, unquote(password)}
    found |= _tracing_secrets(settings.tracing)
    found.add(settings.credentials_token)
    found |= _agent_secrets(settings)
    secrets = sorted(
        (value for value in found if len(value) >= MIN_SECRET_LENGTH), key=lambda value: (-len(value), value)
    )
    return replace(settings, secrets=tuple(secrets))


def _agent_secrets(settings: Settings) -> set[str]:
    """Return the secrets in the tables of agents: strings at any level whose name suggests a credential."""
    agents = (*settings.agents, *settings.configured_agents)
    tables: list[Mapping[str, object]] = [agent.options for agent in agents if not isinstance(agent, str)]
    found: set[str] = set()
    while tables:
        for name, value in tables.pop().items():
            if isinstance(value, dict):
                tables.append(cast("dict[str, object]", value))
            elif isinstance(value, str) and _CREDENTIAL_NAME.search(name):
                found |= {value, value.partition(" ")[2]}
    return found


def _tracing_secrets(tracing: TracingSettings) -> set[str]:
    """Return the values that allow writing traces, in every form in which they are sent."""
    headers = {value for _, value in tracing.otlp.headers} if tracing.otlp else set[str]()
    keys = {tracing.langfuse.secret_key, tracing.langfuse.authorization} if tracing.langfuse else set[str]()
    values = headers | keys
    return values | {value.partition(" ")[2] for value in values if " " in value}
