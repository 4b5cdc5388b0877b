"""Read the settings once: the command line wins over `AMBIENT_*` variables, those over `ambient.toml`, that over the defaults.

The tracing settings also take what the variables of OpenTelemetry and Langfuse say.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from ambient_runner.config.environment import with_secrets
from ambient_runner.config.options import OPTIONS, PREFIX
from ambient_runner.config.parsers import web_url
from ambient_runner.config.settings import LangfuseSettings, OtlpSettings, Settings, Timeouts, TracingSettings
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.config.options import Option

CONFIG_FILE = "ambient.toml"
_CONFIG_VARIABLE = "AMBIENT_CONFIG"


def read_settings(config: Path | None = None, environ: Mapping[str, str] = os.environ, **overrides: object) -> Settings:
    """The settings of this process. `overrides` are options by name, from the command line; None means not given there.

    Raises: ConfigError, saying where the wrong value stands and what is allowed.
    """
    values = _from_file(config, environ) | _from_environment(environ) | _from_arguments(overrides)
    names = cast("tuple[str, ...]", values.pop("secret_names", ()))
    timeouts = {part: values.pop(name) for name, part in _TIMEOUTS.items() if name in values}
    values["tracing"] = take_tracing(values, environ)
    settings = Settings(**cast("dict[str, Any]", values), timeouts=Timeouts(**cast("dict[str, Any]", timeouts)))
    return with_secrets(settings, environ, names)


_TIMEOUTS = {"idle_timeout": "idle", "total_timeout": "total", "stop_grace": "grace"}


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
        if not variable.startswith(PREFIX) or not value.strip() or variable == _CONFIG_VARIABLE:
            continue
        if variable not in known:
            raise ConfigError(f"There is no setting {variable}.{nearest(variable, [*known, _CONFIG_VARIABLE])}")
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
            hint = nearest(".".join(place), [".".join(each) for each in known])
            raise ConfigError(f"{path} has an unknown key {'.'.join(place)}.{hint}")
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


def nearest(word: str, known: list[str], alike: float = 0.0) -> str:
    """A hint for who mistyped one of the known words; nothing when none is so much alike, from 0 to 1."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=alike)
    return f" Did you mean {close[0]}?" if close else ""


def take_tracing(values: dict[str, object], environ: Mapping[str, str]) -> TracingSettings:
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
        endpoint=_address("the collector", exact or (base if base.endswith("/v1/traces") else f"{base}/v1/traces")),
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
    return LangfuseSettings(
        url=_address("Langfuse", url),
        public_key=public,
        secret_key=secret,
        stage=environ.get("LANGFUSE_TRACING_ENVIRONMENT", ""),
    )


def _address(whose: str, url: str) -> str:
    try:
        return web_url(url)
    except ValueError as error:
        raise ConfigError(f"The address of {whose} must be {error}.") from error
