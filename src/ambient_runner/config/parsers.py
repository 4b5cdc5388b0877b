"""Parsers of setting values. Each takes a TOML value, or the text of a variable or argument, and returns the setting.

A parser raises ValueError with a description of what is allowed; the caller adds where the wrong value is.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import cast, get_args
from urllib.parse import urlsplit

from ambient_runner.config.credential_patterns import SECRET_PATTERNS
from ambient_runner.config.secret_patterns import SecretPattern, compile_pattern
from ambient_runner.config.settings import AgentSettings, Exposure, PropNames, Suggestions

Parser = Callable[[object], object]

_SECONDS_PER_YEAR = 366 * 24 * 3600.0
_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_BYTES_PER_UNIT = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){0,2}")
_TARGET = re.compile(r"[^\s:]+:[^\s:]+")
_TRUE_WORDS, _FALSE_WORDS = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


def did_you_mean(word: str, known: list[str], alike: float = 0.0) -> str:
    """Return a hint with the most similar known word; empty if none is at least `alike`, from 0 to 1."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=alike)
    return f" Did you mean {close[0]}?" if close else ""


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a server bound to `host`. Cached: each request asks three times, about the same two."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def parse_text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ValueError("some text")


def parse_directory(value: object) -> str:
    """Parse the path of an existing directory. Return it as an absolute path; an empty one stays empty."""
    text = parse_text(value)
    if text and not Path(text).is_dir():
        raise ValueError("the path of an existing directory")
    return str(Path(text).resolve()) if text else ""


def parse_version(value: object) -> str:
    if isinstance(value, str) and _VERSION.fullmatch(value.strip()):
        return value.strip()
    raise ValueError("the version of an @ag-ui/client, such as 0.0.55 or 1.0")


def integer_between(low: int, high: int) -> Parser:
    def parse(value: object) -> int:
        text = str(value).strip()
        if isinstance(value, (int, str)) and text.isascii() and text.isdigit() and low <= int(text) <= high:
            return int(text)
        raise ValueError(f"a whole number from {low} to {high}")

    return parse


def _parse_amount(value: object, units: Mapping[str, float], allowed: str) -> float:
    match = _AMOUNT.fullmatch(str(value).strip().lower())
    if isinstance(value, (int, float, str)) and match and match[2] in units and float(match[1]) > 0:
        return float(match[1]) * units[match[2]]
    raise ValueError(allowed)


def parse_seconds(value: object) -> float:
    allowed = "a duration above zero and up to a year: seconds, or a number with ms, s, m or h, such as 90 or 15m"
    seconds = _parse_amount(value, _SECONDS_PER_UNIT, allowed)
    if seconds > _SECONDS_PER_YEAR:
        raise ValueError(allowed)
    return seconds


def size_up_to(largest: str) -> Parser:
    allowed = f"a size from 1 byte to {largest}: bytes, or a number with KiB, MiB or GiB, such as 10MiB"
    limit = _parse_amount(largest, _BYTES_PER_UNIT, allowed)

    def parse(value: object) -> int:
        size = _parse_amount(value, _BYTES_PER_UNIT, allowed)
        if 1 <= size <= limit:
            return int(size)
        raise ValueError(allowed)

    return parse


def parse_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE_WORDS | _FALSE_WORDS:
        return value.strip().lower() in _TRUE_WORDS
    raise ValueError("true or false")


def number_between(low: float, high: float) -> Parser:
    def parse(value: object) -> float:
        match = _AMOUNT.fullmatch(str(value).strip())
        if not isinstance(value, bool) and match and not match[2] and low <= float(match[1]) <= high:
            return float(match[1])
        raise ValueError(f"a number from {low:g} to {high:g}")

    return parse


def parse_https_or_local_url(value: object) -> str:
    """Return a URL from which credentials may be fetched: over https, or on this machine."""
    text = parse_text(value)
    with suppress(ValueError):
        parts = urlsplit(text)
        safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        if safe and parts.hostname and parts.username is None and not parts.fragment:
            return text
    raise ValueError("an https URL, or an http URL of this machine, without a user name in it")


def choice_of(choices: tuple[str, ...]) -> Parser:
    def parse(value: object) -> str:
        if isinstance(value, str) and value.strip().lower() in choices:
            return value.strip().lower()
        raise ValueError(f"one of {', '.join(choices)}")

    return parse


def parse_names(value: object) -> tuple[str, ...]:
    """Return the names in a TOML array of strings, or in one string with commas."""
    items = value.split(",") if isinstance(value, str) else value
    if isinstance(items, (list, tuple)):
        names = cast("list[object]", items)
        if all(isinstance(name, str) for name in names):
            return tuple(name.strip() for name in cast("list[str]", names) if name.strip())
    raise ValueError("a list of names, in a variable separated by commas")


def parse_secret_patterns(value: object) -> tuple[SecretPattern, ...]:
    """Return the known patterns and those of a TOML array of regular expressions, or of one string with spaces between them."""
    items = value.split() if isinstance(value, str) else value
    allowed = "a list of regular expressions as RE2 accepts them, in a variable separated by spaces"
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in cast("list[object]", items)):
        raise ValueError(allowed)
    try:
        return (*SECRET_PATTERNS, *map(compile_pattern, cast("list[str]", items)))
    except ValueError as error:
        raise ValueError(f"{allowed}; {error}") from error


def parse_agents(value: object) -> tuple[str | AgentSettings, ...]:
    """Return agent specs. The loader has already parsed the tables `[agents.NAME]`."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    if any(isinstance(item, AgentSettings) for item in items):
        return tuple(item for item in items if isinstance(item, str | AgentSettings))
    return parse_names(cast("object", value))


def parse_lower_names(value: object) -> tuple[str, ...]:
    return tuple(name.lower() for name in parse_names(value))


def parse_prop_names(value: object) -> PropNames:
    """Return the keys of `forwardedProps` that are listed, or `all`. In an array, `all` is a key."""
    if isinstance(value, str) and value.strip().lower() == "all":
        return "all"
    with suppress(ValueError):
        return parse_names(value)
    raise ValueError('"all" or a list of names, in a variable separated by commas')


def parse_suggestions(value: object) -> Suggestions:
    """Return the suggested texts of a TOML array, or the function that a string names."""
    if isinstance(value, str) and _TARGET.fullmatch(value.strip()):
        return value.strip()
    texts = cast("list[object]", value) if isinstance(value, list) else [None]
    if all(isinstance(text, str) and text.strip() for text in texts):
        return tuple(text.strip() for text in cast("list[str]", texts))
    raise ValueError('a list of texts, or one function: "package.module:function"')


def parse_trace_targets(value: object) -> tuple[str, ...]:
    names = parse_lower_names(value)
    if set(names) <= {"otlp", "langfuse"}:
        return names
    raise ValueError("a list of otlp and langfuse")


def parse_web_url(value: object) -> str:
    text = parse_text(value).rstrip("/")
    with suppress(ValueError):
        parts = urlsplit(text)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.username is None:
            return text
    raise ValueError("a URL that begins with http:// or https://, without a user name in it")


def parse_store_url(value: object) -> str:
    text = parse_text(value)
    scheme, colon, rest = text.partition(":")
    with suppress(ValueError):
        if urlsplit(text).scheme:
            return f"{scheme.lower()}{colon}{rest}"  # a scheme is case-insensitive
    raise ValueError("a URL such as sqlite:///.ambient/ambient.db or memory://")


def parse_exposure(value: object) -> dict[str, Exposure]:
    """Return the exposure by name of a TOML table, or of one string such as `search=all,lookup=arguments`."""
    if isinstance(value, str):
        pairs = [entry.partition("=")[::2] for entry in value.split(",") if entry.strip()]
        value = {name.strip(): rule.strip() for name, rule in pairs}
    rules = cast("dict[str, object]", value) if isinstance(value, dict) else {"": None}
    levels = get_args(Exposure)
    if all(name and rule in levels for name, rule in rules.items()):
        return cast("dict[str, Exposure]", dict(rules))
    raise ValueError(f"names of tools, each with one of {', '.join(levels)}, such as search=all")
