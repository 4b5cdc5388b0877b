"""Settings, read once: the command line wins over `AMBIENT_*` variables, those over `ambient.toml`, that over the defaults.

This is the only module that looks at the environment. Everyone else is handed a `Settings`, or the part of it they need.
`OPTIONS` is the whole list: one row gives a setting its variable, its place in the file and its rule.
"""

from __future__ import annotations

import base64
import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
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
_YES, _NO = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
_HARMLESS = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


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
class OtlpSettings:
    """An OpenTelemetry collector, or anything else that takes OTLP over HTTP."""

    endpoint: str = "http://localhost:4318/v1/traces"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class LangfuseSettings:
    """A Langfuse project: it takes traces and the scores of feedback."""

    url: str
    public_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    stage: str = ""
    """What Langfuse calls its environment: `production`, `staging`…"""

    @property
    def authorization(self) -> str:
        """The value of the `Authorization` header."""
        return f"Basic {base64.b64encode(f'{self.public_key}:{self.secret_key}'.encode()).decode()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TracingSettings:
    """Where runs are traced to. Nowhere until a place is named."""

    otlp: OtlpSettings | None = None
    langfuse: LangfuseSettings | None = None
    content: bool | None = None
    """Whether texts, arguments and results go along; None: to Langfuse, and nowhere else."""


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
    tracing: TracingSettings = TracingSettings()
    default_thread: str = ""
    """The thread that a request to the platform's routes means when it names none."""
    workspace: str = ".ambient/workspaces"
    """The folder under which every thread with files has a workspace of its own."""
    git_schemes: tuple[str, ...] = ("https", "ssh")
    git_hosts: tuple[str, ...] = ()
    """Hosts to clone from; empty for any."""
    git_private: bool = False
    """Whether to clone from loopback and private addresses."""
    model: str = ""
    max_tokens: int | None = None
    temperature: float | None = None
    system_prompt: str = ""
    """What every agent is told beside what the workspace says."""
    mcp_config: str = ""
    """The server's own `.mcp.json`; empty for none."""
    mcp_project: bool = False
    """Whether the `.mcp.json` of a workspace counts: what it names is started with the credentials of the run."""
    credentials_url: str = ""
    """Where the credentials of a run are fetched; empty for nowhere."""
    credentials_token: str = field(default="", repr=False)
    """Sent there as a bearer token."""
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


def _yes_or_no(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _YES | _NO:
        return value.strip().lower() in _YES
    raise ValueError("true or false")


def _number(low: float, high: float) -> Parser:
    def parse(value: object) -> float:
        match = _AMOUNT.fullmatch(str(value).strip())
        if not isinstance(value, bool) and match and not match[2] and low <= float(match[1]) <= high:
            return float(match[1])
        raise ValueError(f"a number from {low:g} to {high:g}")

    return parse


def _fetched(value: object) -> str:
    """A URL that credentials may travel from: encrypted, or without leaving this machine."""
    text = _text(value)
    with suppress(ValueError):
        parts = urlsplit(text)
        safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        if safe and parts.hostname and parts.username is None and not parts.fragment:
            return text
    raise ValueError("an https URL, or an http URL of this machine, without a user name in it")


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


def _lower_names(value: object) -> tuple[str, ...]:
    return tuple(name.lower() for name in _names(value))


def _places(value: object) -> tuple[str, ...]:
    names = _lower_names(value)
    if set(names) <= {"otlp", "langfuse"}:
        return names
    raise ValueError("a list of otlp and langfuse")


def _web_url(value: object) -> str:
    text = _text(value).rstrip("/")
    with suppress(ValueError):
        if urlsplit(text).scheme in {"http", "https"} and urlsplit(text).hostname:
            return text
    raise ValueError("a URL that begins with http:// or https://")


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
    _option("pass_headers", _lower_names),
    _option("agents", _names),
    _option("log_level", _one_of(get_args(LogLevel))),
    _option("default_thread", _text),
    _option("workspace", _text),
    _option("git_schemes", _lower_names, "git", "schemes"),
    _option("git_hosts", _lower_names, "git", "hosts"),
    _option("git_private", _yes_or_no, "git", "private"),
    _option("model", _text),
    _option("max_tokens", _whole(1, 10_000_000)),
    _option("temperature", _number(0, 2)),
    _option("system_prompt", _text),
    _option("mcp_config", _text, "mcp", "config"),
    _option("mcp_project", _yes_or_no, "mcp", "project"),
    _option("credentials_url", _fetched, "credentials", "url"),
    _option("credentials_token", _text, "credentials", "token"),
    _option("secret_names", _names, "secrets", "names"),
    _option("tracing", _places, "tracing", "to"),
    _option("trace_content", _yes_or_no, "tracing", "content"),
    _option("otlp_endpoint", _web_url, "tracing", "otlp_endpoint"),
    _option("langfuse_url", _web_url, "tracing", "langfuse_url"),
)


def read_settings(config: Path | None = None, environ: Mapping[str, str] = os.environ, **overrides: object) -> Settings:
    """The settings of this process. `overrides` are options by name, from the command line; None means not given there.

    Raises: ConfigError, saying where the wrong value stands and what is allowed.
    """
    values = _from_file(config, environ) | _from_environment(environ) | _from_arguments(overrides)
    names = cast("tuple[str, ...]", values.pop("secret_names", ()))
    timeouts = {part: values.pop(name) for name, part in _TIMEOUTS.items() if name in values}
    values["tracing"] = _tracing(values, environ)
    settings = Settings(**cast("dict[str, Any]", values), timeouts=Timeouts(**cast("dict[str, Any]", timeouts)))
    return _with_secrets(settings, environ, names)


_TIMEOUTS = {"idle_timeout": "idle", "total_timeout": "total", "stop_grace": "grace"}


def _tracing(values: dict[str, object], environ: Mapping[str, str]) -> TracingSettings:
    """Takes its options out of `values`. What they leave open, the variables that OpenTelemetry and Langfuse define say."""
    places = cast("tuple[str, ...]", values.pop("tracing", ()))
    otlp = cast("str", values.pop("otlp_endpoint", ""))
    langfuse = cast("str", values.pop("langfuse_url", ""))
    return TracingSettings(
        otlp=_otlp(otlp, environ) if "otlp" in places else None,
        langfuse=_langfuse(langfuse, environ) if "langfuse" in places else None,
        content=cast("bool | None", values.pop("trace_content", None)),
    )


def _otlp(given: str, environ: Mapping[str, str]) -> OtlpSettings:
    base = given or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/") or "http://localhost:4318"
    exact = "" if given else environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    headers = environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    pairs = [pair.partition("=") for pair in headers.split(",") if "=" in pair]
    return OtlpSettings(
        endpoint=exact or (base if base.endswith("/v1/traces") else f"{base}/v1/traces"),
        headers=tuple((name.strip().lower(), unquote(value.strip())) for name, _, value in pairs),
    )


def _langfuse(given: str, environ: Mapping[str, str]) -> LangfuseSettings:
    url = given or environ.get("LANGFUSE_BASE_URL") or environ.get("LANGFUSE_HOST", "")
    public, secret = environ.get("LANGFUSE_PUBLIC_KEY", ""), environ.get("LANGFUSE_SECRET_KEY", "")
    if not (url and public and secret):
        raise ConfigError(
            "Tracing to Langfuse needs its address in tracing.langfuse_url or LANGFUSE_BASE_URL, and the project's keys"
            " in LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY."
        )
    try:
        return LangfuseSettings(
            url=_web_url(url),
            public_key=public,
            secret_key=secret,
            stage=environ.get("LANGFUSE_TRACING_ENVIRONMENT", ""),
        )
    except ValueError as error:
        raise ConfigError(f"The address of Langfuse must be {error}.") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def harmless_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What any child process may have of this process's own variables. What was granted to a run is added to it, and nothing else."""
    return {name: environ[name] for name in _HARMLESS if name in environ}


def named_environment(names: Iterable[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Those of this process's own variables that someone has named, where they are set."""
    return {name: environ[name] for name in names if name in environ}


def git_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What git may have of this process's own variables: also how to reach the world from here. No agent's child gets that."""
    return {name: environ[name] for name in (*_HARMLESS, *_CERTIFICATES, *_PROXIES) if name in environ}


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
