"""Sample values made from the grammar itself, so that a field added to `events.py` is tested without anyone remembering to.

`minimal` has only what is required, `populated` has every field filled, and where a field is a union there is one value for each member.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from ambient_runner.protocol.events import EVENT_TYPES, Event

T = TypeVar("T", bound=msgspec.Struct)

PATCH = [
    {"op": "add", "path": "/a", "value": None},
    {"op": "remove", "path": "/b"},
    {"op": "replace", "path": "/c/0", "value": {"d": 1}},
    {"op": "move", "from": "/e~1f", "path": "/g"},
    {"op": "copy", "from": "/h", "path": ""},
    {"op": "test", "path": "/i", "value": [1, "two", 3.5]},
]


def minimal(kind: type[T]) -> list[T]:
    return _instances(kind, only_required=True)


def populated(kind: type[T]) -> list[T]:
    return _instances(kind, only_required=False)


def every_event() -> list[Event]:
    return [event for kind in EVENT_TYPES for make in (minimal, populated) for event in make(kind)]  # type: ignore[misc]


def _instances(kind: type[T], *, only_required: bool) -> list[T]:
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    wanted = [field for field in described.fields if field.required or not only_required]
    columns = [_values(field.type, field.encode_name, only_required=only_required) for field in wanted]
    rows = zip_longest(*columns) if columns else [()]
    return [
        kind(
            **{
                field.name: column[0] if value is None and index else value
                for field, column, value in zip(wanted, columns, row, strict=True)
            }
        )
        for index, row in enumerate(rows)
    ]


def _values(kind: inspect.Type, name: str, *, only_required: bool) -> list[Any]:
    """At least one value of the type; one for each member of a union."""
    match kind:
        case inspect.AnyType():
            return [{"any": [1, None, "x", 2.5, True]}]
        case inspect.StrType():
            return ["2026-01-01T00:00:00Z" if name == "expiresAt" else f'{name}-é\u2028"1']
        case inspect.IntType():
            return [7]
        case inspect.BoolType():
            return [False]
        case inspect.LiteralType(values=values):
            return list(values)
        case inspect.DictType():
            return [{"key": None, "ag-ui": {"nested": [1]}}]
        case inspect.ListType(item_type=inspect.DictType()):
            return [PATCH]
        case inspect.ListType(item_type=item):
            return [_values(item, name, only_required=only_required)]
        case inspect.StructType(cls=cls):
            return _instances(cls, only_required=only_required)
        case inspect.UnionType(types=types):
            members = [member for member in types if not isinstance(member, inspect.NoneType)]
            return [value for member in members for value in _values(member, name, only_required=only_required)]
        case _:
            raise NotImplementedError(kind)
