"""What child processes may have of this process's own variables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
