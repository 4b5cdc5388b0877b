"""Reads JSON into the Structs of `events.py` the way AG-UI asks of a receiver, with the grammar itself as the rule book.

Members and union members the protocol does not know are left out with a warning; a known field with a wrong value is refused by its path.
Names may be camelCase or snake_case, and null for an optional field means absent. `inbound.py` adds what only holds for a run input.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec import inspect

from ambient_runner.errors import InvalidInput
from ambient_runner.protocol.ids import CONTROL, MAX_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    Reader = Callable[[Any, str, "Warnings"], Any]

__all__ = ["Warnings", "check_id", "read"]

T = TypeVar("T", bound=msgspec.Struct)

_ID_FIELDS = frozenset(
    {"id", "thread_id", "run_id", "parent_run_id", "tool_call_id", "interrupt_id", "subagent_run_id"}
)
_NAMED_LIKE_IDS = frozenset({"Tool", "FunctionCall"})


class Warnings(list[str]):
    """What was left out. It stops growing at 100: a body can hold a million unknown members."""

    def add(self, text: str) -> None:
        if len(self) < 100:
            self.append(text)


class _Unknown(Exception):
    """A union member this version of the protocol does not have; whoever holds the list it is in leaves it out."""


def read(kind: type[T], value: Any, path: str, warnings: Warnings) -> T:
    """The Struct that a JSON value stands for. Raises: InvalidInput with the path of the field that is wrong."""
    return _struct(kind)(value, path, warnings)


@cache
def _struct(kind: type[msgspec.Struct]) -> Reader:
    fields = {field.name: (field, _reader(field.type)) for field in _fields(kind)}
    names = {field.name: field.name for field, _ in fields.values()}
    names |= {field.encode_name: field.name for field, _ in fields.values()}
    ids = frozenset(name for name in fields if _is_id(kind, name))
    tag = kind.__struct_config__.tag_field

    def reader(value: Any, path: str, warnings: Warnings) -> Any:
        if not isinstance(value, dict):
            raise InvalidInput(f"{path or 'The body'} must be an object.")
        given = _known(cast("dict[str, Any]", value), names, tag, path, warnings)
        members: dict[str, Any] = {}
        for name, (field, inner) in fields.items():
            item, at = given.get(name), _join(path, field.encode_name)
            if item is None and not field.required:
                continue
            if name not in given:
                raise InvalidInput(f"{at} is missing.")
            members[name] = inner(item, at, warnings)
            if name in ids:
                check_id(members[name], at)
        return kind(**members)

    return reader


def _known(
    value: dict[str, Any], names: dict[str, str], tag: str | None, path: str, warnings: Warnings
) -> dict[str, Any]:
    """The members the grammar has, by field name. Where a name is given in both spellings, camelCase counts."""
    given: dict[str, Any] = {}
    for key, item in value.items():
        name = names.get(key)
        if name is None:
            if key != tag:
                shown = key[:64] if key.isprintable() else ascii(key[:64])
                warnings.add(f"{_join(path, shown)} is not part of the protocol and was left out.")
        elif key != name or name not in given:
            given[name] = item
    return given


def _reader(kind: inspect.Type) -> Reader:
    match kind:
        case inspect.AnyType():
            return _as_it_is
        case inspect.StrType():
            return _typed(str, "a string")
        case inspect.DictType():
            return _typed(dict, "an object")
        case inspect.LiteralType(values=values):
            return _one_of(values)
        case inspect.ListType(item_type=item):
            return _list(_reader(item))
        case inspect.StructType(cls=cls):
            return _struct(cls)
        case inspect.UnionType(types=types):
            return _union([one for one in types if not isinstance(one, inspect.NoneType)])
        case _:
            raise NotImplementedError(f"no reader for {kind}")


def _union(types: list[inspect.Type]) -> Reader:
    if len(types) == 1:
        return _reader(types[0])
    if all(isinstance(one, inspect.StructType) for one in types):
        return _tagged([cast("inspect.StructType", one).cls for one in types])
    parts = next(one for one in types if isinstance(one, inspect.ListType))
    return _text_or_parts(_reader(parts))


def _text_or_parts(parts: Reader) -> Reader:
    def reader(value: Any, path: str, warnings: Warnings) -> Any:
        if isinstance(value, str):
            return value
        if not isinstance(value, list):
            raise InvalidInput(f"{path} must be a string or a list of parts.")
        return parts(cast("list[Any]", value), path, warnings)

    return reader


def _tagged(kinds: list[type[msgspec.Struct]]) -> Reader:
    field = str(kinds[0].__struct_config__.tag_field)
    readers = {kind.__struct_config__.tag: _struct(kind) for kind in kinds}

    def reader(value: Any, path: str, warnings: Warnings) -> Any:
        if not isinstance(value, dict):
            raise InvalidInput(f"{path} must be an object.")
        members = cast("dict[str, Any]", value)
        tag = members.get(field)
        if not isinstance(tag, str):
            raise InvalidInput(f"{path}.{field} must be a string.")
        if tag not in readers:
            raise _Unknown(f"{path}.{field} {tag[:64]!r} is not part of the protocol")
        return readers[tag](members, path, warnings)

    return reader


def _list(inner: Reader) -> Reader:
    def reader(value: Any, path: str, warnings: Warnings) -> Any:
        if not isinstance(value, list):
            raise InvalidInput(f"{path} must be a list.")
        items: list[Any] = []
        for at, item in enumerate(cast("list[Any]", value)):
            try:
                items.append(inner(item, f"{path}[{at}]", warnings))
            except _Unknown as unknown:
                warnings.add(f"{unknown}: {path}[{at}] was left out.")
        return items

    return reader


def _typed(kind: type, described: str) -> Reader:
    def reader(value: Any, path: str, _: Warnings) -> Any:
        if not isinstance(value, kind):
            raise InvalidInput(f"{path} must be {described}.")
        return value

    return reader


def _one_of(values: tuple[Any, ...]) -> Reader:
    def reader(value: Any, path: str, _: Warnings) -> Any:
        if value not in values:
            raise InvalidInput(f"{path} must be {' or '.join(map(repr, values))}.")
        return value

    return reader


def _as_it_is(value: Any, _path: str, _: Warnings) -> Any:
    return value


def _fields(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return described.fields


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_id(kind: type[msgspec.Struct], name: str) -> bool:
    return name in _ID_FIELDS or (name == "name" and kind.__name__ in _NAMED_LIKE_IDS)


def check_id(value: str, path: str) -> None:
    """Whether this may be an id. Raises: InvalidInput, naming it by its `path`."""
    if not 1 <= len(value) <= MAX_ID:
        raise InvalidInput(f"{path} must have 1 to {MAX_ID} characters.")
    if CONTROL.search(value):
        raise InvalidInput(f"{path} must not hold control characters.")
