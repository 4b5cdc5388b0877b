"""Lenient conversion of JSON into the Structs of `events.py`, as AG-UI requires of a receiver. The rules come from the Structs' types.

Unknown members and union members are left out with a warning; a known field with a wrong value is refused with its path.
Names may be camelCase or snake_case, and null for an optional field means absent. `run_input.py` adds what only holds for a run input.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from msgspec import inspect

from ambient_runner.errors import InvalidInput
from ambient_runner.protocol.ids import CONTROL_CHARS, MAX_ID_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable

    Reader = Callable[[Any, str, "Warnings"], Any]

__all__ = ["Warnings", "check_id", "check_thread_id", "malformed_id", "read_struct"]

T = TypeVar("T", bound=msgspec.Struct)

_ID_FIELDS = frozenset(
    {"id", "thread_id", "run_id", "parent_run_id", "tool_call_id", "interrupt_id", "subagent_run_id"}
)
_STRUCTS_WITH_ID_LIKE_NAME = frozenset({"Tool", "FunctionCall"})


class Warnings(list[str]):
    """Warnings about what was left out, at most 100: a body can hold a million unknown members."""

    def add(self, text: str) -> None:
        if len(self) < 100:
            self.append(text)


class _UnknownMember(Exception):
    """A union member that this version of the protocol does not know. The reader of the enclosing list leaves it out."""


def read_struct(kind: type[T], value: Any, path: str, warnings: Warnings) -> T:
    """Return the Struct for a JSON value. Raises: InvalidInput with the path of the field that is wrong."""
    return _struct_reader(kind)(value, path, warnings)


@cache
def _struct_reader(kind: type[msgspec.Struct]) -> Reader:
    fields = {field.name: (field, _reader_for(field.type)) for field in _struct_fields(kind)}
    names = {field.name: field.name for field, _ in fields.values()}
    names |= {field.encode_name: field.name for field, _ in fields.values()}
    ids = frozenset(name for name in fields if _is_id(kind, name))
    tag = kind.__struct_config__.tag_field

    def read_value(value: Any, path: str, warnings: Warnings) -> Any:
        if not isinstance(value, dict):
            raise InvalidInput(f"{path or 'The body'} must be an object.")
        present = _known_members(cast("dict[str, Any]", value), names, tag, path, warnings)
        members: dict[str, Any] = {}
        for name, (field, inner) in fields.items():
            item = present.get(name)
            if item is None and not field.required:
                continue
            at = _join_path(path, field.encode_name)
            if name not in present:
                raise InvalidInput(f"{at} is missing.")
            members[name] = inner(item, at, warnings)
            if name in ids:
                (check_thread_id if name == "thread_id" else check_id)(members[name], at)
        return kind(**members)

    return read_value


def _known_members(
    value: dict[str, Any], names: dict[str, str], tag: str | None, path: str, warnings: Warnings
) -> dict[str, Any]:
    """Return the known members by field name. If both spellings of a name are present, camelCase wins."""
    members: dict[str, Any] = {}
    for key, item in value.items():
        name = names.get(key)
        if name is None:
            if key != tag:
                shown = key[:64] if key.isprintable() else ascii(key[:64])
                warnings.add(f"{_join_path(path, shown)} is not part of the protocol and was left out.")
        elif key != name or name not in members:
            members[name] = item
    return members


def _reader_for(kind: inspect.Type) -> Reader:
    match kind:
        case inspect.AnyType():
            return _read_any
        case inspect.StrType():
            return _type_reader(str, "a string")
        case inspect.DictType():
            return _type_reader(dict, "an object")
        case inspect.LiteralType(values=values):
            return _literal_reader(values)
        case inspect.ListType(item_type=item):
            return _list_reader(_reader_for(item))
        case inspect.StructType(cls=cls):
            return _struct_reader(cls)
        case inspect.UnionType(types=types):
            return _union_reader([member for member in types if not isinstance(member, inspect.NoneType)])
        case _:
            raise NotImplementedError(f"no reader for {kind}")


def _union_reader(types: list[inspect.Type]) -> Reader:
    if len(types) == 1:
        return _reader_for(types[0])
    if all(isinstance(member, inspect.StructType) for member in types):
        return _tagged_union_reader([cast("inspect.StructType", member).cls for member in types])
    parts = next(member for member in types if isinstance(member, inspect.ListType))
    return _content_reader(_reader_for(parts))


def _content_reader(parts: Reader) -> Reader:
    def read_value(value: Any, path: str, warnings: Warnings) -> Any:
        if isinstance(value, str):
            return value
        if not isinstance(value, list):
            raise InvalidInput(f"{path} must be a string or a list of parts.")
        return parts(cast("list[Any]", value), path, warnings)

    return read_value


def _tagged_union_reader(kinds: list[type[msgspec.Struct]]) -> Reader:
    field = str(kinds[0].__struct_config__.tag_field)
    readers = {kind.__struct_config__.tag: _struct_reader(kind) for kind in kinds}

    def read_value(value: Any, path: str, warnings: Warnings) -> Any:
        if not isinstance(value, dict):
            raise InvalidInput(f"{path} must be an object.")
        members = cast("dict[str, Any]", value)
        tag = members.get(field)
        if not isinstance(tag, str):
            raise InvalidInput(f"{path}.{field} must be a string.")
        if tag not in readers:
            raise _UnknownMember(f"{path}.{field} {tag[:64]!r} is not part of the protocol")
        return readers[tag](members, path, warnings)

    return read_value


def _list_reader(inner: Reader) -> Reader:
    def read_value(value: Any, path: str, warnings: Warnings) -> Any:
        if not isinstance(value, list):
            raise InvalidInput(f"{path} must be a list.")
        items: list[Any] = []
        for at, item in enumerate(cast("list[Any]", value)):
            try:
                items.append(inner(item, f"{path}[{at}]", warnings))
            except _UnknownMember as unknown:
                warnings.add(f"{unknown}: {path}[{at}] was left out.")
        return items

    return read_value


def _type_reader(kind: type, description: str) -> Reader:
    def read_value(value: Any, path: str, _: Warnings) -> Any:
        if not isinstance(value, kind):
            raise InvalidInput(f"{path} must be {description}.")
        return value

    return read_value


def _literal_reader(values: tuple[Any, ...]) -> Reader:
    def read_value(value: Any, path: str, _: Warnings) -> Any:
        if value not in values:
            raise InvalidInput(f"{path} must be {' or '.join(map(repr, values))}.")
        return value

    return read_value


def _read_any(value: Any, _path: str, _: Warnings) -> Any:
    return value


def _struct_fields(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_id(kind: type[msgspec.Struct], name: str) -> bool:
    return name in _ID_FIELDS or (name == "name" and kind.__name__ in _STRUCTS_WITH_ID_LIKE_NAME)


def check_id(value: str, path: str) -> None:
    """Check that the value may be an id. Raises: InvalidInput with its `path`."""
    if not 1 <= len(value) <= MAX_ID_LENGTH:
        raise InvalidInput(f"{path} must have 1 to {MAX_ID_LENGTH} characters.")
    if CONTROL_CHARS.search(value):
        raise malformed_id(path)


def check_thread_id(value: str, path: str) -> None:
    """Check that the value may be the id of a thread, which is part of URLs. Raises: InvalidInput with its `path`."""
    check_id(value, path)
    if value in {".", ".."}:
        raise InvalidInput(
            f"{path} must not be `.` or `..`: clients remove them from URLs, also if they are percent-encoded."
        )


def malformed_id(path: str) -> InvalidInput:
    """Return the error for an id that may not be used, whatever is wrong with its characters."""
    return InvalidInput(f"{path} contains characters that are not allowed.")
