"""Options of a bridge from a table `[agents.NAME]`: matched to the parameters of its constructor and converted to their types.

A bridge needs nothing for this. One that takes its configuration as a dataclass names it in `PlatformBridge.settings_types`, so that the
table can have its fields. `registry.py` finds the bridge.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.import_string import missing_package_as_config_error, user_code_errors
from ambient_runner.bridges.option_types import annotations_of, convert_value, resolve_annotation
from ambient_runner.config.loader import did_you_mean
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["BridgeOptions"]

_RESERVED = ("bridge", "use", "timeouts", "audience", "exposure")


@dataclass(frozen=True, kw_only=True, slots=True)
class BridgeOptions:
    """Options by name. `source` says where they are, such as `agents.support in ambient.toml`."""

    values: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    source: str = ""

    def create(self, factory: Callable[..., Any], *args: Any) -> Any:
        """Call a bridge's constructor with these options, and with the agent object or URL in `args` if there is one.

        Raises: ConfigError, naming the wrong option and the nearest known one, or what the constructor raised.
        """
        self._check_takes_agent(factory, args)
        keywords = self._to_keywords(factory, skipped=len(args)) if self.values else {}
        self._check_required(factory, len(args), keywords)
        agent = f" with a {type(args[0]).__name__}" if args else ""
        with missing_package_as_config_error(), user_code_errors(f"{self._prefix}{_name_of(factory)} failed{agent}"):
            return factory(*args, **keywords)

    def require_none(self, target: str) -> None:
        """Raise ConfigError if there are options: `target` is a bridge that exists already."""
        if self.values:
            raise ConfigError(
                f"{self.source} has options ({', '.join(self.values)}), but {target} is a bridge that has been created already. "
                "Set them where it is created, or use its class."
            )

    def _to_keywords(self, factory: Callable[..., Any], *, skipped: int) -> dict[str, Any]:
        annotations, accepts_any = _parameters_of(factory, skipped)
        groups = _settings_types(factory)
        members = {name: group for group, kind in groups.items() for name in annotations_of(kind)}
        keywords: dict[str, Any] = {}
        grouped: dict[str, dict[str, Any]] = {}
        for name, value in self.values.items():
            path = f"{self.source}: {name}"
            if name in members:
                group = members[name]
                grouped.setdefault(group, {})[name] = convert_value(value, annotations_of(groups[group])[name], path)
            elif name in annotations or accepts_any:
                keywords[name] = convert_value(value, annotations.get(name, Any), path)
            else:
                known = [*annotations.keys() - groups.keys(), *members]
                hint = (
                    did_you_mean(name, [*known, *_RESERVED], 0.6) or f" Known are {', '.join(sorted(known)) or 'none'}."
                )
                raise ConfigError(f"{self.source} has an unknown key {name}.{hint}")
        for group, values in grouped.items():
            if group in annotations:
                keywords[group] = groups[group](**values)
            else:  # the fields of `**settings`
                keywords |= values
        return keywords

    @property
    def _prefix(self) -> str:
        return f"{self.source}: " if self.source else ""

    def _check_takes_agent(self, factory: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            inspect.signature(factory).bind_partial(*args)
        except TypeError as error:
            raise ConfigError(
                f"{self._prefix}{_name_of(factory)} takes no agent. Remove `use`, or name a bridge that takes one."
            ) from error

    def _check_required(self, factory: Callable[..., Any], given: int, keywords: Mapping[str, Any]) -> None:
        required = [
            parameter.name
            for parameter in list(inspect.signature(factory).parameters.values())[given:]
            if parameter.default is parameter.empty
            and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
            and parameter.name not in keywords
        ]
        if required:
            raise ConfigError(
                f"{self._prefix}{_name_of(factory)} requires {', '.join(required)}. Add it to the table; "
                "an agent object is named by `use`."
            )


def _name_of(factory: Callable[..., Any]) -> str:
    return getattr(factory, "__name__", type(factory).__name__)


def _settings_types(factory: Callable[..., Any]) -> Mapping[str, type[Any]]:
    return cast("Mapping[str, type[Any]]", getattr(factory, "settings_types", {}))


def _parameters_of(factory: Callable[..., Any], skipped: int) -> tuple[dict[str, Any], bool]:
    """Return the annotations of the parameters after the first `skipped`, and True if any other keyword is accepted."""
    function = cast("Any", factory).__init__ if isinstance(factory, type) else factory
    parameters = list(inspect.signature(factory).parameters.values())
    scope = getattr(function, "__globals__", {})
    named = [
        parameter
        for parameter in parameters[skipped:]
        if parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
    ]
    declares_keywords = bool(_settings_types(factory).keys() - {parameter.name for parameter in named})
    accepts_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters) and not declares_keywords
    return {parameter.name: resolve_annotation(parameter.annotation, scope) for parameter in named}, accepts_any
