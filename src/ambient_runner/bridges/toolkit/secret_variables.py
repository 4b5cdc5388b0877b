"""Secrets among the variables of an agent's process, so that its runs can redact them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ambient_runner.config import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["secret_values"]


def secret_values(variables: Mapping[str, str]) -> list[str]:
    """Return the values that are secret by their name, and the passwords in URLs."""
    secrets = [value for name, value in variables.items() if is_secret_name(name)]
    passwords = [_url_password(value) for value in variables.values()]
    return [*secrets, *(form for password in passwords for form in (password, unquote(password)) if form)]


def _url_password(url: str) -> str:
    try:
        return urlsplit(url).password or ""
    except ValueError:
        return ""
