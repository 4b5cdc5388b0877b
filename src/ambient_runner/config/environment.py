"""Environment variables: those that a child process may have, and those whose values are secrets."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ambient_runner.config.settings import Settings, TracingSettings

_HARMLESS = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def harmless_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What any child process may have of this process's own variables. What was granted to a run is added to it, and nothing else."""
    return {name: environ[name] for name in _HARMLESS if name in environ}


def named_environment(names: Iterable[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Those of this process's own variables that someone has named, where they are set."""
    return {name: environ[name] for name in names if name in environ}


def git_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What git may have of this process's own variables: also how to reach the world from here. No agent's child gets that."""
    return {name: environ[name] for name in (*_HARMLESS, *_CERTIFICATES, *_PROXIES) if name in environ}


SHORTEST_SECRET = 8
_SECRET_SUFFIXES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_CREDENTIALS")


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret, as far as names tell."""
    return name.upper().endswith(_SECRET_SUFFIXES)


def with_secrets(settings: Settings, environ: Mapping[str, str], names: tuple[str, ...]) -> Settings:
    for name in names:
        if 0 < len(environ.get(name, "")) < SHORTEST_SECRET:
            raise ConfigError(f"{name} is named as a secret but is shorter than {SHORTEST_SECRET} characters.")
    found = {value for name, value in environ.items() if name in names or is_secret_name(name)}
    password = urlsplit(settings.store).password
    if password:
        found |= {password, unquote(password)}
    found |= _tracing_secrets(settings.tracing)
    found.add(settings.credentials_token)
    kept = sorted((value for value in found if len(value) >= SHORTEST_SECRET), key=lambda each: (-len(each), each))
    return replace(settings, secrets=tuple(kept))


def _tracing_secrets(tracing: TracingSettings) -> set[str]:
    """What would let others write to the project, in the forms in which it travels."""
    headers = {value for _, value in tracing.otlp.headers} if tracing.otlp else set[str]()
    keys = {tracing.langfuse.secret_key, tracing.langfuse.authorization} if tracing.langfuse else set[str]()
    whole = headers | keys
    return whole | {value.partition(" ")[2] for value in whole if " " in value}
