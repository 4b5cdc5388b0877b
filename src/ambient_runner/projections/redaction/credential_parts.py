"""The parts of a credential that are secret by themselves: members of JSON, values of dotenv lines, the body of a key, a header's token.

An agent that was granted a service account prints its `private_key`, not the file.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from ambient_runner.config import (
    MIN_SECRET_LENGTH,
    consists_of_words,
    find_pattern_values,
    is_guessable,
    is_secret_name,
    url_passwords,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["is_ordinary_setting", "secret_parts"]

_MAX_DEPTH = 16
_MAX_PEM_LINES, _MIN_PEM_LINE = 256, 16
"""Lines of a key that are secret by themselves: a key of 16384 bits has fewer than 256."""
_MAX_WHOLE_URL = 64
"""Characters of a URL with a password up to which it is searched for as a whole. A longer one is searched for by pieces, and one that ends
inside of the password would let a client guess it in two halves."""
_SCHEME = re.compile(r"(?:bearer|basic|token)\s+(\S+)", re.IGNORECASE)
_DOTENV = re.compile(
    r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\n#]*))", re.MULTILINE
)
_CONNECTION_SECRET = re.compile(
    r"(?:(?:password|passwd|pwd|secret|(?:account|access)_?key)\s*=\s*|^[^\s:@/]+:(?=[^@\s]+@\w*\())([^;\s@]+)",
    re.IGNORECASE,
)
"""The secret of a connection string: of libpq, ODBC, Azure, and Go's `user:password@tcp(host)`."""
_PEM_BODY = re.compile(r"-----BEGIN [A-Z0-9 ]+-----\s*([A-Za-z0-9+/=\s]+)-----END")
_PUBLIC = re.compile(r"[a-z][a-z0-9+.-]*://\S*|[^@\s]+@[^@\s]+\.[a-z]{2,}", re.IGNORECASE)
"""URLs and addresses: a credential file names its server and its account."""

_HOST = re.compile(r"(?:[a-z]+:)?(?://)?(?:[a-z0-9-]{1,63}\.)+[a-z]{2,}\.?(?::[0-9]+)?/?", re.IGNORECASE)


def _has_ordinary_query(url: str) -> bool:
    """Return True if nothing in the query of a URL may be a secret."""
    return all(is_guessable(setting.partition("=")[2]) for setting in url.partition("?")[2].split("&"))


def is_ordinary_setting(text: str) -> bool:
    """Return True for `name=value` of a connection string if it is no secret: a host, a name, or another value that is easy to guess."""
    name, _, value = text.partition("=")
    if not value or is_secret_name(name):
        return False
    return is_guessable(value) or consists_of_words(value) or _HOST.fullmatch(value) is not None


def secret_parts(value: str) -> set[str]:
    """Return the values to search for instead of a credential: itself, or its parts if it is JSON or dotenv lines."""
    value = value.strip()
    parts = set(_split_credential(value, 0))
    return {part for part in parts if len(part) >= MIN_SECRET_LENGTH}


def _split_credential(value: str, depth: int) -> Iterator[str]:
    members = _json_members(value) if depth < _MAX_DEPTH else None
    if members is None and "\n" in value and "-----BEGIN" not in value:
        members = _dotenv_values(value)
    if members:
        for name, member in members:
            if _is_secret_member(name) or not (is_guessable(member) or _PUBLIC.fullmatch(member)):
                yield from _split_credential(member, depth + 1)
            else:
                yield from find_pattern_values(member)
        return
    passwords = url_passwords(value)
    if not (passwords and len(value) > _MAX_WHOLE_URL and _has_ordinary_query(value)):
        yield value
    if "-----BEGIN" in value:
        if "\n" not in value and "\\n" in value:  # In one line, as in a dotenv file.
            yield from _split_credential(value.replace("\\r", "").replace("\\n", "\n"), depth)
            return
        for body in _PEM_BODY.findall(value):
            lines = body.split()
            yield from ("".join(lines), *(line for line in lines[:_MAX_PEM_LINES] if len(line) >= _MIN_PEM_LINE))
        return
    yield from passwords
    for found in find_pattern_values(value):
        yield from (found, unquote(found))
    yield from (match[1] for match in [_SCHEME.fullmatch(value)] if match)
    yield from (found for found in _CONNECTION_SECRET.findall(value) if not is_guessable(found))


def _is_secret_member(name: str) -> bool:
    """Return True for the name of a secret. A member `key` names another member."""
    return is_secret_name(name) and name.lower() != "key"


def _json_members(value: str) -> list[tuple[str, str]] | None:
    """Return the strings of a JSON object or list with the names of their members; None if the value is neither."""
    if value[:1] not in {"{", "["}:
        return None
    try:
        return list(_walk_json("", json.loads(value)))
    except (ValueError, RecursionError):
        return None


def _walk_json(name: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield name, value
        case dict():
            for key, item in cast("dict[str, Any]", value).items():
                yield from _walk_json(key, item)
        case list():
            for item in cast("list[Any]", value):
                yield from _walk_json(name, item)
        case _:
            return


def _dotenv_values(value: str) -> list[tuple[str, str]]:
    """Return names and values if every line that is not empty or a comment assigns one."""
    lines = [line for line in value.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found = [match for line in lines if (match := _DOTENV.match(line))]
    if len(found) < len(lines):
        return []
    return [(match[1], (match[2] or match[3] or match[4] or "").strip()) for match in found]
