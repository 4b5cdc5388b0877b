"""Settings, read once: the command line wins over `AMBIENT_*` variables, those over `ambient.toml`, that over the defaults.

This is the only module that looks at the environment. Everyone else is handed a `Settings`, or the part of it they need.
`OPTIONS` is the whole list: one row gives a setting its variable, its place in the file and its rule.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args
from urllib.parse import unquote, urlsplit

from ambient_runner.errors import ConfigError

OnBusy = Literal["reject", "queue", "supersede", "join"]
OnDisconnect = Literal["continue", "stop"]
History = Literal["server", "client"]
LogLevel = Literal["debug", "info", "warning", "error"]

CONFIG_FILE = "ambient.toml"
SHORTEST_SECRET = 8
_PREFIX = "AMBIENT_"
_CONFIG_VARIABLE = "AMBIENT_CONFIG"
_SECRET_SUFFIXES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_CREDENTIALS")
_YEAR = 366 * 24 * 3600.0
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_SIZES = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """How long a run may take, in seconds."""

    idle: float = 600.0
    """Between two events of the agent."""
    total: float = 3600.0
    """From start to end."""
    grace: float = 5.0
    """What an agent gets to end by itself after a stop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that can be set. Durations are seconds, sizes are bytes."""

    host: str = "127.0.0.1"
    port: int = 8000
    store: str = field(default="sqlite:///.ambient/ambient.db", repr=False)
    lease: float = 10.0
    on_busy: OnBusy = "reject"
    queue_depth: int = 8
    queue_wait: float = 30.0
    on_disconnect: OnDisconnect = "continue"
    history: History | None = None
    timeouts: Timeouts = Timeouts()
    adapters_kept: int = 256
    adapter_idle: float = 900.0
    max_body: int = 10 << 20
    retain: int = 0
    """How many of a thread's newest entries are kept, at least; 0 keeps all."""
    slow_reader: float = 60.0
    heartbeat: float = 15.0
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    pass_headers: tuple[str, ...] = ()
    """Names of request headers, in lower case, that agents may see (`current_run().headers`)."""
    agents: tuple[str, ...] = ()
    """Agent specs, `name` or `name=package.module:attribute`, as `load_agent` takes them."""
    log_level: LogLevel = "info"
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Exact values that must never leave the process, longest first."""

    @property
    def history_mode(self) -> History:
        """Who keeps the conversation: the server where threads are stored, the client where they are not, unless set."""
        return self.history or ("server" if self.is_durable else "client")

    @property
    def is_durable(self) -> bool:
        """Whether threads outlive the process."""
        return not self.store.startswith("memory:")

    @property
    def store_label(self) -> str:
        """The store's URL without its password, fit to be shown."""
        password = urlsplit(self.store).password
        return self.store.replace(f":{password}@", ":***@", 1) if password else self.store


Parser = Callable[[object], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One setting: where it may be written and what it may be."""

    name: str
    parse: Parser
    path: tuple[str, ...]
    """Its place in `ambient.toml`."""

    @property
    def env(self) -> str:
        return _PREFIX + self.name.upper()


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ValueError("some text")


def _whole(low: int, high: int) -> Parser:
    def parse(value: object) -> int:
        text = str(value).strip()
        if isinstance(value, (int, str)) and text.isascii() and text.isdigit() and low <= int(text) <= high:
            return int(text)
        raise ValueError(f"a whole number from {low} to {high}")

    return parse


def _amount(value: object, units: Mapping[str, float], allowed: str) -> float:
    match = _AMOUNT.fullmatch(str(value).strip().lower())
    if isinstance(value, (int, float, str)) and match and match[2] in units and float(match[1]) > 0:
        return float(match[1]) * units[match[2]]
    raise ValueError(allowed)


def _seconds(value: object) -> float:
    allowed = "a duration above zero and up to a year: seconds, or a number with ms, s, m or h, such as 90 or 15m"
    seconds = _amount(value, _UNITS, allowed)
    if seconds > _YEAR:
        raise ValueError(allowed)
    return seconds


def _size(value: object) -> int:
    return int(_amount(value, _SIZES, "a size above zero: bytes, or a number with KiB, MiB or GiB, such as 10MiB"))


def _one_of(choices: tuple[str, ...]) -> Parser:
    def parse(value: object) -> str:
        if isinstance(value, str) and value.strip().lower() in choices:
            return value.strip().lower()
        raise ValueError(f"one of {', '.join(choices)}")

    return parse


def _names(value: object) -> tuple[str, ...]:
    """A TOML array of strings, or one string with commas."""
    items = value.split(",") if isinstance(value, str) else value
    if isinstance(items, (list, tuple)):
        names = cast("list[object]", items)
        if all(isinstance(name, str) for name in names):
            return tuple(name.strip() for name in cast("list[str]", names) if name.strip())
    raise ValueError("a list of names, in a variable separated by commas")


def _header_names(value: object) -> tuple[str, ...]:
    return tuple(name.lower() for name in _names(value))


def _store(value: object) -> str:
    text = _text(value)
    with suppress(ValueError):
        if urlsplit(text).scheme:
            return text
    raise ValueError("a URL such as sqlite:///.ambient/ambient.db or memory://")


def _option(name: str, parse: Parser, *path: str) -> Option:
    return Option(name=name, parse=parse, path=path or (name,))


OPTIONS: tuple[Option, ...] = (
    _option("host", _text),
    _option("port", _whole(0, 65535)),
    _option("store", _store),
    _option("lease", _seconds),
    _option("on_busy", _one_of(get_args(OnBusy))),
    _option("queue_depth", _whole(1, 10_000)),
    _option("queue_wait", _seconds),
    _option("on_disconnect", _one_of(get_args(OnDisconnect))),
    _option("history", _one_of(get_args(History))),
    _option("idle_timeout", _seconds, "timeouts", "idle"),
    _option("total_timeout", _seconds, "timeouts", "total"),
    _option("stop_grace", _seconds, "timeouts", "grace"),
    _option("adapters_kept", _whole(1, 1_000_000)),
    _option("adapter_idle", _seconds),
    _option("max_body", _size),
    _option("retain", _whole(0, 1_000_000_000)),
    _option("slow_reader", _seconds),
    _option("heartbeat", _seconds),
    _option("allowed_hosts", _names),
    _option("allowed_origins", _names),
    _option("pass_headers", _header_names),
    _option("agents", _names),
    _option("log_level", _one_of(get_args(LogLevel))),
    _option("secret_names", _names, "secrets", "names"),
)


def read_settings(config: Path | None = None, environ: Mapping[str, str] = os.environ, **overrides: object) -> Settings:
    """The settings of this process. `overrides` are options by name, from the command line; None means not given there.

    Raises: ConfigError, saying where the wrong value stands and what is allowed.
    """
    values = _from_file(config, environ) | _from_environment(environ) | _from_arguments(overrides)
    names = cast("tuple[str, ...]", values.pop("secret_names", ()))
    timeouts = {part: values.pop(name) for name, part in _TIMEOUTS.items() if name in values}
    settings = Settings(**cast("dict[str, Any]", values), timeouts=Timeouts(**cast("dict[str, Any]", timeouts)))
    return _with_secrets(settings, environ, names)


_TIMEOUTS = {"idle_timeout": "idle", "total_timeout": "total", "stop_grace": "grace"}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _from_arguments(overrides: Mapping[str, object]) -> dict[str, object]:
    known = {option.name: option for option in OPTIONS}
    return {
        name: _parsed(known[name], value, f"--{name.replace('_', '-')}")
        for name, value in overrides.items()
        if value is not None
    }


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    known = {option.env: option for option in OPTIONS}
    found: dict[str, object] = {}
    for variable, value in environ.items():
        if not variable.startswith(_PREFIX) or not value.strip() or variable == _CONFIG_VARIABLE:
            continue
        if variable not in known:
            raise ConfigError(f"There is no setting {variable}.{_nearest(variable, [*known, _CONFIG_VARIABLE])}")
        found[known[variable].name] = _parsed(known[variable], value, variable)
    return found


def _from_file(config: Path | None, environ: Mapping[str, str]) -> dict[str, object]:
    named = config or (Path(environ[_CONFIG_VARIABLE]) if environ.get(_CONFIG_VARIABLE) else None)
    path = named or Path(CONFIG_FILE)
    if named is None and not path.is_file():
        return {}
    known = {option.path: option for option in OPTIONS}
    found: dict[str, object] = {}
    for place, value in _leaves(_table(path)):
        if place not in known:
            nearest = _nearest(".".join(place), [".".join(each) for each in known])
            raise ConfigError(f"{path} has an unknown key {'.'.join(place)}.{nearest}")
        found[known[place].name] = _parsed(known[place], value, f"{'.'.join(place)} in {path}")
    return found


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"The configuration file {path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The configuration file {path} is not valid TOML: {error}.") from error


def _leaves(table: Mapping[str, Any]) -> list[tuple[tuple[str, ...], object]]:
    """Each key with its value. `[agents]` is one value: its keys are the user's own words."""
    found: list[tuple[tuple[str, ...], object]] = []
    for key, value in table.items():
        match key, value:
            case "agents", dict():
                named = cast("dict[str, object]", value)
                found.append(((key,), [f"{name}={target}" for name, target in named.items()]))
            case _, dict():
                inner = cast("dict[str, object]", value)
                found.extend(((key, name), each) for name, each in inner.items())
            case _:
                found.append(((key,), value))
    return found


def _parsed(option: Option, value: object, place: str) -> object:
    try:
        return option.parse(value)
    except ValueError as error:
        raise ConfigError(f"{place} must be {error}.") from error


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.0)
    return f" Did you mean {close[0]}?" if close else ""


def _with_secrets(settings: Settings, environ: Mapping[str, str], names: tuple[str, ...]) -> Settings:
    for name in names:
        if 0 < len(environ.get(name, "")) < SHORTEST_SECRET:
            raise ConfigError(f"{name} is named as a secret but is shorter than {SHORTEST_SECRET} characters.")
    found = {value for name, value in environ.items() if name in names or name.upper().endswith(_SECRET_SUFFIXES)}
    password = urlsplit(settings.store).password
    if password:
        found |= {password, unquote(password)}
    kept = sorted((value for value in found if len(value) >= SHORTEST_SECRET), key=lambda each: (-len(each), each))
    return replace(settings, secrets=tuple(kept))
