"""Validation of structs: the fields of an event must have the types that `events.py` declares.

A Struct is not validated when it is made, and agents and middleware make them too. What is stored with a field of a wrong type cannot be
decoded again. `events.py` has the types; models of `ag_ui.core` and mappings are validated when they are converted (`agui_models.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec import inspect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.protocol.events import BaseEvent

__all__ = ["allowed_values", "plain_text", "signatures_of_texts", "validate_fields"]

_S = TypeVar("_S", bound=msgspec.Struct)
_IsLegal = Callable[[Any], bool]


def validate_fields(value: _S) -> _S:
    """Return an event or message whose fields have their types. Values of arbitrary JSON are not looked at.

    It is the same object, unless its JSON is right and its objects are not: texts of a subclass of `str` become a `str`, and mappings in
    place of structs become these.
    Raises: TypeError that names the field.
    """
    if _find_illegal_field(value) is None:
        return value
    value = _with_plain_texts(value)
    field = _find_illegal_field(value)
    if field is None:
        return value
    try:
        return msgspec.json.decode(msgspec.json.encode(value), type=type(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        found = getattr(value, field)
        shown = repr(found) if isinstance(found, str | int | float | None) else type(found).__name__
        raise TypeError(
            f"{type(value).__name__}.{field} has a value of a wrong type, or one that is not allowed: {shown[:64]}"
        ) from error


def plain_text(value: Any) -> Any:
    """Return the `str` of an instance of a subclass, and any other value as it is."""
    if isinstance(value, Enum):
        return plain_text(value.value) if isinstance(value, str) else value
    return str.__str__(value) if isinstance(value, str) else value


def _with_plain_texts(value: Any) -> Any:
    """Return a struct or list with all its texts as `str`. Values of arbitrary JSON stay as they are."""
    match value:
        case msgspec.Struct():
            return type(value)(**{name: _with_plain_texts(getattr(value, name)) for name in value.__struct_fields__})
        case list() | tuple():
            return [_with_plain_texts(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return plain_text(value)


def signatures_of_texts(kind: type[BaseEvent], names: Sequence[str]) -> frozenset[tuple[type, ...]]:
    """Return the types that these fields of an event may have, which are texts or a time, in all combinations."""
    types = {field.name: field.type for field in _struct_type(kind).fields}
    return frozenset(product(*(_python_types(types[name]) for name in names)))


def allowed_values(kind: type[BaseEvent], name: str) -> frozenset[Any] | None:
    """Return the values that an enumerated field of an event may have; None if it has no such field."""
    declared = next((field.type for field in _struct_type(kind).fields if field.name == name), None)
    types = declared.types if isinstance(declared, inspect.UnionType) else (declared,)
    listed = [value for each in types if isinstance(each, inspect.LiteralType) for value in each.values]
    may_be_none = any(isinstance(each, inspect.NoneType) for each in types)
    return frozenset((*listed, None) if may_be_none else listed) if listed else None


def _python_types(declared: inspect.Type) -> list[type]:
    match declared:
        case inspect.UnionType(types=types):
            return [found for each in types for found in _python_types(each)]
        case inspect.StrType() | inspect.LiteralType():
            return [str]
        case inspect.IntType():
            return [int]
        case inspect.NoneType():
            return [type(None)]
        case _:
            raise TypeError(f"{declared} is neither a text nor a time")


def _find_illegal_field(value: msgspec.Struct) -> str | None:
    """Return the name of the first field with a wrong type."""
    return next((name for name, is_legal in _checks_of(type(value)) if not is_legal(getattr(value, name))), None)


def _struct_type(kind: type[msgspec.Struct]) -> inspect.StructType:
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    return found


@cache
def _checks_of(kind: type[msgspec.Struct]) -> tuple[tuple[str, _IsLegal], ...]:
    """Return a check for each field, except for those of any type."""
    checks = ((field.name, _make_check(field.type)) for field in _struct_type(kind).fields)
    return tuple((name, check) for name, check in checks if check is not None)


def _make_check(declared: inspect.Type) -> _IsLegal | None:
    """Return the check for a declared type; None if every value is legal."""
    match declared:
        case inspect.AnyType():
            return None
        case inspect.UnionType(types=types):
            return partial(_is_one_of, [_make_check(each) for each in types])
        case inspect.StrType():
            return _is_text
        case inspect.LiteralType(values=values):
            return partial(_is_listed, frozenset(values))
        case inspect.IntType():
            return partial(_is_exactly, int)
        case inspect.BoolType():
            return partial(_is_exactly, bool)
        case inspect.NoneType():
            return partial(_is_exactly, type(None))
        case inspect.DictType():
            return _is_object
        case inspect.ListType(item_type=item):
            return partial(_is_list_of, _make_check(item))
        case inspect.StructType(cls=kind):
            return partial(_is_legal_struct, kind)
        case _:
            raise TypeError(f"no check for {declared}")


def _is_text(value: Any) -> bool:
    return type(value) is str or (isinstance(value, Enum) and type(value.value) is str)


def _is_listed(values: frozenset[Any], value: Any) -> bool:
    return type(value) is str and value in values


def _is_exactly(kind: type, value: Any) -> bool:
    return type(value) is kind


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list_of(is_legal: _IsLegal | None, value: Any) -> bool:
    items: Any = value
    return isinstance(items, list | tuple) and (is_legal is None or all(map(is_legal, cast("Sequence[Any]", items))))


def _is_one_of(checks: Sequence[_IsLegal | None], value: Any) -> bool:
    return any(check is None or check(value) for check in checks)


def _is_legal_struct(kind: type[msgspec.Struct], value: Any) -> bool:
    return type(value) is kind and _find_illegal_field(value) is None
