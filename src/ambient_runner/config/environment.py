"""Environment variables that are passed to child processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
