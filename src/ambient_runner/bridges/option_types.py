"""Convert TOML values to the types that a constructor or dataclass is annotated with.

Annotations may name types that are imported for type checkers only; those are left to the bridge. A function is named by an import string,
a duration may be written as `"10m"`.
"""

from __future__ import annotations

import builtins
import collections.abc
import inspect
import sys
import typing
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.import_string import import_object, user_code_errors
from ambient_runner.config.loader import did_you_mean
from ambient_runner.config.parsers import parse_seconds
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["annotations_of", "convert_value", "resolve_annotation"]

_LIST_TYPES = (
    list,
    tuple,
    set,
    frozenset,
    collections.abc.Sequence,
    collections.abc.Collection,
    collections.abc.Iterable,
)
_TABLE_TYPES = (dict, collections.abc.Mapping)
_CALLABLE: Any = collections.abc.Callable
_DURATION_SUFFIX = "_timeout"
"""End of the names of numbers that are durations, also where they are written without a unit."""
_TYPE_NAMES = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}


def annotations_of(kind: type[Any]) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name."""
    scope = vars(sys.modules[kind.__module__])
    return {item.name: resolve_annotation(item.type, scope) for item in fields(kind) if item.init}


def resolve_annotation(annotation: Any, module: Mapping[str, Any]) -> Any:
    """Return the type that an annotation in this module means; Any if it cannot be resolved."""
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, {}, _AnnotationScope(module))  # noqa: S307  an annotation of the bridge's own code
    except (TypeError, NameError, AttributeError, SyntaxError):
        return Any


class _AnnotationScope(dict[str, Any]):
    """Names in an annotation. One that is imported only for type checkers is a collection, Path, or Any."""

    def __missing__(self, name: str) -> Any:
        if name == "Path":
            return Path
        return getattr(builtins, name, None) or getattr(collections.abc, name, None) or Any


def convert_value(value: Any, kind: Any, path: str) -> Any:
    """Return a TOML value as this type. Types that TOML has no form for are left to the bridge."""
    origin = typing.get_origin(kind)
    if origin in {typing.Union, UnionType}:
        return convert_value(value, _matching_member(value, typing.get_args(kind)), path)
    base = origin or kind
    if base is _CALLABLE:
        return _import_hook(value, path)
    if isinstance(value, dict) and is_dataclass(kind):
        return _convert_table(cast("dict[str, object]", value), cast("type[Any]", kind), path)
    arguments = typing.get_args(kind) or (Any,)
    if isinstance(value, dict) and base in _TABLE_TYPES:
        table = cast("dict[str, object]", value)
        return {name: convert_value(item, arguments[-1], f"{path}.{name}") for name, item in table.items()}
    if isinstance(value, list) and base in _LIST_TYPES:
        items = cast("list[object]", value)
        return [convert_value(item, arguments[0], path) for item in items]
    return _check_simple(value, base, path)


def _check_simple(value: Any, kind: Any, path: str) -> Any:
    if kind is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        is_duration = isinstance(value, str) or path.endswith(_DURATION_SUFFIX)
        try:
            return parse_seconds(value) if is_duration else value
        except ValueError as error:
            raise ConfigError(f"{path} must be a number, or {error}.") from error
    is_wrong_bool = isinstance(value, bool) and kind is not bool
    if kind in _TYPE_NAMES and (is_wrong_bool or not isinstance(value, kind)):
        raise ConfigError(f"{path} must be {_TYPE_NAMES[kind]}.")
    if (kind in _LIST_TYPES and not isinstance(value, list)) or (kind in _TABLE_TYPES and not isinstance(value, dict)):
        raise ConfigError(f"{path} must be a {'list' if kind in _LIST_TYPES else 'table'}.")
    return cast("Any", value)


def _matching_member(value: Any, members: tuple[Any, ...]) -> Any:
    """Return the member of a union that fits the form of the value."""
    real = [member for member in members if member is not NoneType]
    bases = [typing.get_origin(member) or member for member in real]
    for member, base in zip(real, bases, strict=True):
        fits_table = isinstance(value, dict) and (is_dataclass(base) or base in _TABLE_TYPES)
        fits_list = isinstance(value, list) and base in _LIST_TYPES
        fits_simple = (
            base in _TYPE_NAMES and isinstance(value, base) and not (isinstance(value, bool) and base is not bool)
        )
        if fits_table or fits_list or fits_simple:
            return member
    hooks = [member for member, base in zip(real, bases, strict=True) if base is _CALLABLE]
    if isinstance(value, str) and hooks:
        return hooks[0]
    return real[0] if len(real) == 1 else Any


def _convert_table(table: Mapping[str, object], kind: type[Any], path: str) -> Any:
    annotations = annotations_of(kind)
    for name in table:
        if name not in annotations:
            hint = did_you_mean(name, list(annotations), 0.6) or f" Known are {', '.join(sorted(annotations))}."
            raise ConfigError(f"{path} has an unknown key {name}.{hint}")
    values = {name: convert_value(item, annotations[name], f"{path}.{name}") for name, item in table.items()}
    with user_code_errors(f"{path} is not valid"):
        return kind(**values)


def _import_hook(value: Any, path: str) -> Any:
    if not isinstance(value, str) or ":" not in value:
        raise ConfigError(f"{path} must name a function: package.module:function.")
    return import_object(value)
