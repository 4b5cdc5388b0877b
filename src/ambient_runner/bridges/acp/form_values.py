"""Forms of an agent: their schemas, without what is malformed in them, and the values that a field allows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.json_values import as_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["is_allowed_value", "normalize_form"]

_FIELD_TYPES: dict[str, type | tuple[type, ...]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "string": str,
}
"""Types of the fields that a form can have. A field of another type is for the agent to check."""


def normalize_form(value: Any) -> dict[str, Any]:
    """Return the schema of a form without what is malformed. `required` names fields that exist. Anything else is an empty form."""
    schema = _keep_valid(as_object(value), _SCHEMA_MEMBERS)
    found = as_object(schema.get("properties"))
    fields = {name: _normalize_field(field) for name, field in found.items() if isinstance(field, dict)}
    names = cast("list[Any]", schema.pop("required", []))
    required = [name for name in dict.fromkeys(name for name in names if isinstance(name, str)) if name in fields]
    return {**schema, "type": "object", "properties": fields, **({"required": required} if required else {})}


def _normalize_field(value: Any) -> dict[str, Any]:
    field = _keep_valid(as_object(value), _FIELD_MEMBERS)
    if "items" in field:
        field["items"] = _keep_valid(as_object(field["items"]), _FIELD_MEMBERS)
    return field


def _keep_valid(members: Mapping[str, Any], rules: Mapping[str, Callable[[Any], bool]]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name not in rules or rules[name](value)}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_choice_list(value: Any) -> bool:
    return _is_list(value) and all(isinstance(item, dict) and "const" in item for item in cast("list[Any]", value))


_SCHEMA_MEMBERS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("title", "description"), _is_text),
    "properties": _is_object,
    "required": _is_list,
}
_FIELD_MEMBERS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("type", "title", "description", "format"), _is_text),
    **dict.fromkeys(("minimum", "maximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    **dict.fromkeys(("oneOf", "anyOf"), _is_choice_list),
    "enum": _is_list,
    "items": _is_object,
}
"""Members of a schema whose values are used, here or by clients, and what they must be."""


def is_allowed_value(value: Any, field: Mapping[str, Any]) -> bool:
    """Return True if a field of a form allows the value: its type, its choices, and its limits."""
    if not _has_type(value, field):
        return False
    choices = _choices(field)
    if choices is not None and not any(_is_same(value, choice) for choice in choices):
        return False
    if isinstance(value, str):
        return _is_within(len(value), field, "minLength", "maxLength")
    if _is_number(value):
        return _is_within(value, field, "minimum", "maximum")
    return not isinstance(value, list) or _allows_items(cast("list[Any]", value), field)


def _allows_items(values: Sequence[Any], field: Mapping[str, Any]) -> bool:
    items = as_object(field.get("items"))
    return _is_within(len(values), field, "minItems", "maxItems") and all(
        is_allowed_value(item, items) for item in values
    )


def _choices(field: Mapping[str, Any]) -> list[Any] | None:
    """Return the values that can be chosen; None if any can. Titled ones are constants with a title."""
    if "enum" in field:
        return field["enum"]
    titled = field.get("oneOf", field.get("anyOf"))
    return None if titled is None else [choice["const"] for choice in titled]


def _is_same(value: Any, choice: Any) -> bool:
    """Return True for equal values in JSON, where true is not 1."""
    return value == choice and isinstance(value, bool) == isinstance(choice, bool)


def _is_within(size: float, field: Mapping[str, Any], least: str, most: str) -> bool:
    return field.get(least, size) <= size <= field.get(most, size)


def _has_type(value: Any, field: Mapping[str, Any]) -> bool:
    """Return True if the value has the type of the field, in JSON, where true is not a number."""
    kind = _FIELD_TYPES.get(field.get("type", ""))
    return kind is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool)))
