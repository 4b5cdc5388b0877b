"""Every place for a string in the AG-UI grammar, found by walking the Structs: a new event or field is covered without a change here.

A template is an event, or another Struct, in the form in which it is sent, with `SLOT` in the place of one string.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec.inspect import AnyType, BoolType, DictType, IntType, ListType, LiteralType, StrType, StructType, UnionType

from ambient_runner.protocol.events import EVENT_TYPES

__all__ = ["EVENT_TEMPLATES", "SLOT", "fill_template", "slot_name", "struct_templates"]

SLOT = "\N{SYMBOL FOR SUBSTITUTE}slot\N{SYMBOL FOR SUBSTITUTE}"
_ADDRESSES = frozenset({"thread_id", "run_id", "parent_run_id"})
"""Fields that are never redacted: the client chose them, and they address the thread."""
_PATCHES: tuple[dict[str, Any], ...] = (
    {"op": "add", "path": "/planted", "value": SLOT},
    {"op": "add", "path": "/planted", "value": {"list": [SLOT]}},
    {"op": "add", "path": "/planted", "value": {SLOT: True}},
    {"op": "add", "path": f"/{SLOT}", "value": 1},
    {"op": "copy", "from": f"/{SLOT}", "path": "/planted"},
)
_JSON: tuple[Any, ...] = (SLOT, [SLOT], {"note": SLOT}, {SLOT: 1}, {"deep": [{"note": SLOT}]})


def struct_templates(struct: type[msgspec.Struct]) -> list[Any]:
    """Return one template for each string of a Struct."""
    return list(_templates(msgspec.inspect.type_info(struct)))


def _templates(info: Any) -> Iterator[Any]:
    match info:
        case StrType():
            yield SLOT
        case AnyType():
            yield from _JSON
        case DictType():
            yield from (value for value in _JSON if isinstance(value, dict))
        case ListType(item_type=DictType()):  # A JSON Patch.
            yield from ([operation] for operation in _PATCHES)
        case ListType(item_type=item):
            yield from ([template] for template in _templates(item))
        case UnionType(types=types):
            for kind in types:
                yield from _templates(kind)
        case StructType():
            yield from _struct_templates(info)
        case _:
            return


def _struct_templates(info: StructType) -> Iterator[dict[str, Any]]:
    required = _sample(info)
    for field in info.fields:
        if field.name not in _ADDRESSES:
            for template in _templates(field.type):
                yield {**required, field.encode_name: template}


def _sample(info: Any) -> Any:
    """Return a value without a slot: of a Struct, only what is required."""
    match info:
        case StrType():
            return "sample"
        case LiteralType(values=values):
            return values[0]
        case IntType() | BoolType():
            return 1
        case ListType():
            return []
        case DictType():
            return {}
        case UnionType(types=types):
            return _sample(types[0])
        case StructType():
            tag = {info.tag_field: info.tag} if info.tag_field else {}
            return {**tag, **{field.encode_name: _sample(field.type) for field in info.fields if field.required}}
        case _:
            return None


def fill_template(template: Any, text: str) -> Any:
    """Return the template with the text in its slot. In a JSON pointer, the text must be escaped."""
    match template:
        case str():
            return template.replace(SLOT, text)
        case dict():
            members = cast("dict[str, Any]", template)
            return {fill_template(name, text): fill_template(value, text) for name, value in members.items()}
        case list():
            return [fill_template(value, text) for value in cast("list[Any]", template)]
        case _:
            return template


def slot_name(template: Mapping[str, Any]) -> str:
    """Return the name of the field that has the slot."""
    return next(name for name, value in template.items() if SLOT in json.dumps(value, ensure_ascii=False))


def _group_by_field(templates: list[Any]) -> dict[str, list[Any]]:
    grouped: dict[str, list[Any]] = {}
    for template in templates:
        grouped.setdefault(slot_name(template), []).append(template)
    return grouped


EVENT_TEMPLATES: Mapping[str, Mapping[str, list[Any]]] = {
    str(kind.__struct_config__.tag): _group_by_field(struct_templates(kind)) for kind in EVENT_TYPES
}
"""The templates of every event, by its type and the name of the field that has the slot."""
