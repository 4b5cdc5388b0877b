"""Loading of the settings, once: the command line wins over `AMBIENT_*` variables, those over `ambient.toml`, that over the defaults.

The tracing settings also use the variables of OpenTelemetry and Langfuse.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args
from urllib.parse import unquote

from ambient_runner.config.options import ENV_PREFIX, OPTIONS
from ambient_runner.config.parsers import (
    choice_of,
    did_you_mean,
    parse_exposure,
    parse_prop_names,
    parse_seconds,
    parse_suggestions,
    parse_text,
    parse_version,
    parse_web_url,
)
from ambient_runner.config.permission_rules import parse_permission_rules
from ambient_runner.config.secret_values import with_secrets
from ambient_runner.config.settings import (
    AgentSettings,
    AudienceName,
    LangfuseSettings,
    OtlpSettings,
    Settings,
    Timeouts,
    TracingSettings,
)
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.config.options import Option
    from ambient_runner.config.parsers import Parser

CONFIG_FILE = "ambient.toml"
_CONFIG_VARIABLE = "AMBIENT_CONFIG"
_PERMISSIONS = "permissions"
"""The key of the permission rules. They are tables, so there is no variable and no argument for them."""


def read_settings(config: Path | None = None, environ: Mapping[str, str] = os.environ, **overrides: object) -> Settings:
    """Return the settings of this process. `overrides` are options by name, from the command line; None means absent.

    Raises: ConfigError, saying where the wrong value is and what is allowed.
    """
    layers = (_from_file(config, environ), _from_environment(environ), _from_arguments(overrides))
    values = layers[0] | layers[1] | layers[2]
    in_file, in_environment, in_arguments = (_agents_of(layer) for layer in layers)
    from_environment = _select_agents(in_environment, in_file)
    configured = _merge_agents(in_file, from_environment)
    values["agents"] = _select_agents(in_arguments, configured) or from_environment or in_file
    values["configured_agents"] = configured
    names = cast("tuple[str, ...]", values.pop("secret_names", ()))
    timeouts = {part: values.pop(name) for name, part in _TIMEOUTS.items() if name in values}
    values["tracing"] = pop_tracing_settings(values, environ)
    settings = Settings(**cast("dict[str, Any]", values), timeouts=Timeouts(**cast("dict[str, Any]", timeouts)))
    return with_secrets(settings, environ, names)


def with_environment_secrets(settings: Settings, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings with the secrets of this process's environment too: those that were built in code do not have them.

    Raises: ConfigError if one is guessable and `secrets.strict` is set.
    """
    return with_secrets(settings, environ, ())


_TIMEOUTS = {"idle_timeout": "idle", "total_timeout": "total", "stop_grace": "grace"}


def _agents_of(values: Mapping[str, object]) -> tuple[str | AgentSettings, ...]:
    return cast("tuple[str | AgentSettings, ...]", values.get("agents", ()))


def _select_agents(
    chosen: tuple[str | AgentSettings, ...], configured: tuple[str | AgentSettings, ...]
) -> tuple[str | AgentSettings, ...]:
    """Return the chosen agents. The environment and the command line may choose configured agents by their name."""
    by_name = {agent_name(agent): agent for agent in configured}
    return tuple(by_name.get(agent, agent) if isinstance(agent, str) else agent for agent in chosen)


def _merge_agents(
    in_file: tuple[str | AgentSettings, ...], from_environment: tuple[str | AgentSettings, ...]
) -> tuple[str | AgentSettings, ...]:
    """Return all configured agents. The environment may redefine an agent of the file."""
    by_name = {agent_name(agent): agent for agent in (*in_file, *from_environment)}
    return tuple(by_name.values())


def agent_name(agent: str | AgentSettings) -> str:
    """Return the name of an agent as the user wrote it. It may not be a valid one."""
    return agent.partition("=")[0].strip() if isinstance(agent, str) else agent.name


def _from_arguments(overrides: Mapping[str, object]) -> dict[str, object]:
    known = {option.name: option for option in OPTIONS}
    return {
        name: _parse_option(known[name], value, f"--{name.replace('_', '-')}")
        for name, value in overrides.items()
        if value is not None
    }


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    known = {option.env_name: option for option in OPTIONS}
    found: dict[str, object] = {}
    for variable, value in environ.items():
        if not variable.startswith(ENV_PREFIX) or not value.strip() or variable == _CONFIG_VARIABLE:
            continue
        if variable not in known:
            raise ConfigError(f"There is no setting {variable}.{did_you_mean(variable, [*known, _CONFIG_VARIABLE])}")
        found[known[variable].name] = _parse_option(known[variable], value, variable)
    return found


def _from_file(config: Path | None, environ: Mapping[str, str]) -> dict[str, object]:
    named = config or (Path(environ[_CONFIG_VARIABLE]) if environ.get(_CONFIG_VARIABLE) else None)
    path = named or Path(CONFIG_FILE)
    if named is None and not os.path.lexists(path):
        return {}
    known = {option.path: option for option in OPTIONS}
    table = _load_toml(path)
    found: dict[str, object] = {}
    if _PERMISSIONS in table:
        found[_PERMISSIONS] = parse_permission_rules(table.pop(_PERMISSIONS), str(path))
    for key_path, value in _flatten_table(table, path):
        if key_path not in known:
            hint = did_you_mean(".".join(key_path), [_PERMISSIONS, *(".".join(known_path) for known_path in known)])
            raise ConfigError(f"{path} has an unknown key {'.'.join(key_path)}.{hint}")
        found[known[key_path].name] = _parse_option(known[key_path], value, f"{'.'.join(key_path)} in {path}")
    return found


def _load_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"The configuration file {path} cannot be read: {error.strerror}. It must be a file that this user can read. Check it, or "
            f"name another one in --config or {_CONFIG_VARIABLE}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The configuration file {path} is not valid TOML: {error}.") from error


def _flatten_table(table: Mapping[str, Any], path: Path) -> list[tuple[tuple[str, ...], object]]:
    """Return each key path with its value. `[agents]` and `[exposure]` are one value: their keys are names that the user chose."""
    found: list[tuple[tuple[str, ...], object]] = []
    for key, value in table.items():
        match key, value:
            case "agents", dict():
                agents = cast("dict[str, object]", value)
                found.append(((key,), [_agent_entry(name, entry, path) for name, entry in agents.items()]))
            case "exposure", dict():
                found.append(((key,), cast("dict[str, object]", value)))
            case _, dict():
                inner = cast("dict[str, object]", value)
                found.extend(((key, name), item) for name, item in inner.items())
            case _:
                found.append(((key,), value))
    return found


def _agent_entry(name: str, entry: object, path: Path) -> str | AgentSettings:
    """Return an agent of `[agents]`: a spec for `name = "target"`, else the table `[agents.NAME]`."""
    name = name.strip()
    if isinstance(entry, str) and entry.strip():
        return f"{name}={entry.strip()}"
    if not isinstance(entry, dict):
        raise ConfigError(
            f"agents.{name} in {path} must be a registered name, package.module:attribute or a URL, "
            f"or one table with options: [agents.{name}]."
        )
    options = dict(cast("dict[str, object]", entry))
    timeouts = options.pop("timeouts", {})
    if not isinstance(timeouts, dict):
        raise ConfigError(
            f'agents.{name}.timeouts in {path} must be a table, such as {{ idle = "30m", total = "12h" }}.'
        )
    limits = cast("dict[str, object]", timeouts)
    for key in limits:
        if key not in _AGENT_TIMEOUTS:
            hint = did_you_mean(key, list(_AGENT_TIMEOUTS), 0.6)
            allowed = " and ".join(_AGENT_TIMEOUTS)
            raise ConfigError(
                f"agents.{name}.timeouts in {path} has an unknown key {key}.{hint} Only {allowed} can be set per agent."
            )
    seconds = {
        _AGENT_TIMEOUTS[key]: _parse_value(parse_seconds, limit, f"agents.{name}.timeouts.{key} in {path}")
        for key, limit in limits.items()
    }
    targets = {
        key: _parse_value(parse, options.pop(key), f"agents.{name}.{key} in {path}")
        for key, parse in _AGENT_KEYS.items()
        if key in options
    }
    return AgentSettings(name=name, options=options, source=str(path), **cast("dict[str, Any]", seconds | targets))


_AGENT_KEYS: dict[str, Parser] = {
    "bridge": parse_text,
    "use": parse_text,
    "client": parse_version,
    "forwarded_props": parse_prop_names,
    "audience": choice_of(get_args(AudienceName)),
    "exposure": parse_exposure,
    "suggestions": parse_suggestions,
}
_AGENT_TIMEOUTS = {"idle": "idle_timeout", "total": "total_timeout"}


def _parse_option(option: Option, value: object, source: str) -> object:
    return _parse_value(option.parse, value, source)


def _parse_value(parse: Parser, value: object, source: str) -> object:
    try:
        return parse(value)
    except ValueError as error:
        raise ConfigError(f"{source} must be {error}.") from error


def pop_tracing_settings(values: dict[str, object], environ: Mapping[str, str]) -> TracingSettings:
    """Remove the tracing options from `values` and return their settings. The variables of OpenTelemetry and Langfuse fill in the rest."""
    targets = cast("tuple[str, ...]", values.pop("tracing", ()))
    otlp = cast("str", values.pop("otlp_endpoint", ""))
    langfuse = cast("str", values.pop("langfuse_url", ""))
    return TracingSettings(
        otlp=_otlp_settings(otlp, environ) if "otlp" in targets else None,
        langfuse=_langfuse_settings(langfuse, environ) if "langfuse" in targets else None,
        content=cast("bool | None", values.pop("trace_content", None)),
    )


def _otlp_settings(configured: str, environ: Mapping[str, str]) -> OtlpSettings:
    base = configured or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/") or "http://localhost:4318"
    exact = "" if configured else environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    headers = environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    pairs = [pair.partition("=") for pair in headers.split(",") if "=" in pair]
    return OtlpSettings(
        endpoint=_parse_address(
            "the collector", exact or (base if base.endswith("/v1/traces") else f"{base}/v1/traces")
        ),
        headers=tuple((name.strip().lower(), unquote(value.strip())) for name, _, value in pairs),
    )


def _langfuse_settings(configured: str, environ: Mapping[str, str]) -> LangfuseSettings:
    url = configured or environ.get("LANGFUSE_BASE_URL") or environ.get("LANGFUSE_HOST", "")
    public, secret = environ.get("LANGFUSE_PUBLIC_KEY", ""), environ.get("LANGFUSE_SECRET_KEY", "")
    if not (url and public and secret):
        raise ConfigError(
            "Tracing to Langfuse needs its address in tracing.langfuse_url or LANGFUSE_BASE_URL, and the project's keys"
            " in LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY."
        )
    return LangfuseSettings(
        url=_parse_address("Langfuse", url),
        public_key=public,
        secret_key=secret,
        stage=environ.get("LANGFUSE_TRACING_ENVIRONMENT", ""),
    )


def _parse_address(service: str, url: str) -> str:
    try:
        return parse_web_url(url)
    except ValueError as error:
        raise ConfigError(f"The address of {service} must be {error}.") from error
