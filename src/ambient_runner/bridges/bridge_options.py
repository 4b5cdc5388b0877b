"""Options of a bridge from a table `[agents.NAME]`: matched to the parameters of its constructor and converted to their types.

A bridge needs nothing for this. One that takes its configuration as a dataclass names it in `PlatformBridge.settings_types`, so that the
table can have its fields. `registry.py` finds the bridge.
"""

from __future__ import annotations

import builtins
import collections.abc
import inspect
import sys
import typing
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.import_string import import_object, missing_package_as_config_error, user_code_errors
from ambient_runner.config.loader import did_you_mean
from ambient_runner.config.parsers import parse_seconds
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["BridgeOptions"]

_RESERVED = ("bridge", "use", "timeouts")
_LISTS = (
    list,
    tuple,
    set,
    frozenset,
    *(getattr(collections.abc, name) for name in ("Sequence", "Collection", "Iterable", "Set")),
)
_TABLES = (dict, collections.abc.Mapping)
_TYPE_NAMES = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}


@dataclass(frozen=True, kw_only=True, slots=True)
class BridgeOptions:
    """Options by name. `source` says where they are, such as `agents.support in ambient.toml`."""

    values: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    source: str = ""

    def create(self, factory: Callable[..., Any], *args: Any) -> Any:
        """Call a bridge's constructor with these options. Raises: ConfigError, naming the wrong option and the nearest known one."""
        if not self.values:
            return factory(*args)
        keywords = self._to_keywords(factory, skipped=len(args))
        self._check_required(factory, len(args), keywords)
        with missing_package_as_config_error(), user_code_errors(f"{self.source}: {_name_of(factory)} failed"):
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
        members = {name: group for group, kind in groups.items() for name in _annotations_of(kind)}
        keywords: dict[str, Any] = {}
        grouped: dict[str, dict[str, Any]] = {}
        for name, value in self.values.items():
            path = f"{self.source}: {name}"
            if name in members:
                group = members[name]
                grouped.setdefault(group, {})[name] = _convert(value, _annotations_of(groups[group])[name], path)
            elif name in annotations or accepts_any:
                keywords[name] = _convert(value, annotations.get(name, Any), path)
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
                f"{self.source}: {_name_of(factory)} requires {', '.join(required)}. Add it to the table; "
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
    scope = _Scope(getattr(function, "__globals__", {}))
    named = [
        parameter
        for parameter in parameters[skipped:]
        if parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
    ]
    declares_keywords = bool(_settings_types(factory).keys() - {parameter.name for parameter in named})
    accepts_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters) and not declares_keywords
    return {parameter.name: scope.resolve(parameter.annotation) for parameter in named}, accepts_any


def _annotations_of(kind: type[Any]) -> dict[str, Any]:
    scope = _Scope(vars(sys.modules[kind.__module__]))
    return {item.name: scope.resolve(item.type) for item in fields(kind) if item.init}


class _Scope(dict[str, Any]):
    """Names in an annotation. One that is imported only for type checkers is a collection, Path, or Any."""

    def __init__(self, module: Mapping[str, Any]) -> None:
        super().__init__(module)

    def __missing__(self, name: str) -> Any:
        if name == "Path":
            return Path
        return getattr(builtins, name, None) or getattr(collections.abc, name, None) or Any

    def resolve(self, annotation: Any) -> Any:
        if annotation is inspect.Parameter.empty:
            return Any
        if not isinstance(annotation, str):
            return annotation
        try:
            return eval(annotation, {}, self)  # noqa: S307  an annotation of the bridge's own code
        except (TypeError, NameError, AttributeError, SyntaxError):
            return Any


def _convert(value: object, kind: Any, path: str) -> Any:
    """Return a TOML value as this type. Types that TOML has no form for are left to the bridge."""
    origin = typing.get_origin(kind)
    if origin in {typing.Union, UnionType}:
        return _convert(value, _matching_member(value, typing.get_args(kind)), path)
    base = origin or kind
    if base is collections.abc.Callable:
        return _import_hook(value, path)
    if isinstance(value, dict) and is_dataclass(kind):
        return _convert_table(cast("dict[str, object]", value), cast("type[Any]", kind), path)
    arguments = typing.get_args(kind) or (Any,)
    if isinstance(value, dict) and base in _TABLES:
        table = cast("dict[str, object]", value)
        return {name: _convert(item, arguments[-1], f"{path}.{name}") for name, item in table.items()}
    if isinstance(value, list) and base in _LISTS:
        items = cast("list[object]", value)
        return [_convert(item, arguments[0], path) for item in items]
    return _check_simple(value, base, path)


def _check_simple(value: object, kind: Any, path: str) -> Any:
    if kind is float and isinstance(value, int | str) and not isinstance(value, bool):
        try:
            return parse_seconds(value) if isinstance(value, str) else value
        except ValueError as error:
            raise ConfigError(f"{path} must be a number, or {error}.") from error
    is_wrong_bool = isinstance(value, bool) and kind is not bool
    if kind in _TYPE_NAMES and (is_wrong_bool or not isinstance(value, kind)):
        raise ConfigError(f"{path} must be {_TYPE_NAMES[kind]}.")
    if (kind in _LISTS and not isinstance(value, list)) or (kind in _TABLES and not isinstance(value, dict)):
        raise ConfigError(f"{path} must be a {'list' if kind in _LISTS else 'table'}.")
    return value


def _matching_member(value: object, members: tuple[Any, ...]) -> Any:
    """Return the member of a union that fits the form of the value."""
    real = [member for member in members if member is not NoneType]
    bases = [typing.get_origin(member) or member for member in real]
    for member, base in zip(real, bases, strict=True):
        fits_table = isinstance(value, dict) and (is_dataclass(base) or base in _TABLES)
        fits_list = isinstance(value, list) and base in _LISTS
        fits_simple = (
            base in _TYPE_NAMES and isinstance(value, base) and not (isinstance(value, bool) and base is not bool)
        )
        if fits_table or fits_list or fits_simple:
            return member
    hooks = [member for member, base in zip(real, bases, strict=True) if base is collections.abc.Callable]
    if isinstance(value, str) and hooks:
        return hooks[0]
    return real[0] if len(real) == 1 else Any


def _convert_table(table: Mapping[str, object], kind: type[Any], path: str) -> Any:
    annotations = _annotations_of(kind)
    for name in table:
        if name not in annotations:
            hint = did_you_mean(name, list(annotations), 0.6) or f" Known are {', '.join(sorted(annotations))}."
            raise ConfigError(f"{path} has an unknown key {name}.{hint}")
    values = {name: _convert(item, annotations[name], f"{path}.{name}") for name, item in table.items()}
    with user_code_errors(f"{path} is not valid"):
        return kind(**values)


def _import_hook(value: object, path: str) -> Any:
    if not isinstance(value, str) or ":" not in value:
        raise ConfigError(f"{path} must name a function: package.module:function.")
    return import_object(value)
