"""Tools of one run: which ones the client executes, and their parameters as JSON Schema that a provider accepts.

Everything here is created for one run and discarded with it: a tool of one request left on a shared agent would be visible to the next.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, cast

from ambient_runner.protocol.dropped_events import dropped_tool_events
from ambient_runner.protocol.json_pointer import parse_pointer
from ambient_runner.runs.run import current_run_or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ambient_runner.protocol.events import Event, Tool

__all__ = ["TOOL_NAME", "SchemaDialect", "Toolbox", "callable_tools", "clean_schema", "name_taken_events"]

logger = logging.getLogger(__name__)

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Tool names that every provider accepts."""

_MAX_LOGGED_NAME = 64

SchemaDialect = Literal["json", "gemini"]
Schema = dict[str, Any]

_IGNORED_KEYWORDS = ("$schema", "$id", "$comment", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary")
_JSON_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})
_FORMATS = {
    "string": {"date-time", "enum"},
    "number": {"float", "double"},
    "integer": {"int32", "int64"},
}
_COPIED_KEYWORDS: dict[str, type | tuple[type, ...]] = {
    "description": str,
    "title": str,
    "pattern": str,
    "nullable": bool,
    "minItems": int,
    "maxItems": int,
    "minLength": int,
    "maxLength": int,
    "minProperties": int,
    "maxProperties": int,
    "minimum": (int, float),
    "maximum": (int, float),
}
_MAX_SCHEMAS = 2_000
"""Limit on the schemas that one schema may expand to. References can double them at every level."""
_MAX_REPEATED_CHARACTERS = 1 << 17
"""Limit on the characters that references may repeat: many properties can refer to one long enum."""
_REFERENCE_KEYWORDS = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_MAX_VALUES = 50_000
_MAX_CHARACTERS = 1 << 19
_MAX_DEPTH = 64


def clean_schema(schema: Any, *, dialect: SchemaDialect = "json") -> dict[str, Any]:
    """Return a tool's parameters as an object schema that the provider accepts, whatever the client declared. The input is not changed.

    `json` is JSON Schema as Bedrock, Anthropic and OpenAI accept it; `gemini` is Google's dialect, without references.
    """
    object_schema = _as_object_schema(schema if _is_bounded(schema) else None)
    return _drop_external_references(
        _GeminiConverter(object_schema).convert_parameters() if dialect == "gemini" else object_schema
    )


def _as_object_schema(schema: Any) -> Schema:
    """Return a copy that describes an object; an empty object schema for anything that cannot describe a call's arguments."""
    if not _is_schema(schema) or "object" not in _type_names(schema.get("type", "object")):
        return {"type": "object", "properties": {}}
    result = {key: item for key, item in copy.deepcopy(schema).items() if key not in _IGNORED_KEYWORDS}
    properties = result.get("properties")
    result |= {"type": "object", "properties": properties if _is_schema(properties) else {}}
    if "required" in result:
        result["required"] = _string_items(result["required"])
    return result


def _is_bounded(schema: Any) -> bool:
    """Return True if the schema is within the limits on size and depth."""
    values, characters = _MAX_VALUES, _MAX_CHARACTERS
    level: list[Any] = [schema]
    for _ in range(_MAX_DEPTH):
        values -= len(level)
        characters -= sum(_text_length(value) for value in level)
        if not level or min(values, characters) < 0:
            break
        level = [inner for value in level for inner in _children(value)]
    return not level and min(values, characters) >= 0


def _text_length(value: Any) -> int:
    names = sum(map(len, value)) if _is_schema(value) else 0
    return len(value) if isinstance(value, str) else names


def _children(value: Any) -> list[Any]:
    return list(value.values()) if _is_schema(value) else _as_list(value)


def _drop_external_references(value: Any) -> Any:
    """Return it without keywords that refer outside the schema or identify it, at every level: a reference may point at a default."""
    if isinstance(value, list):
        return [_drop_external_references(item) for item in _as_list(value)]
    if not _is_schema(value):
        return value
    return {
        key: _drop_external_references(item)
        for key, item in value.items()
        if not (isinstance(item, str) and _is_external_reference(key, item))
    }


def _is_external_reference(word: str, value: str) -> bool:
    if word in _REFERENCE_KEYWORDS:
        return value != "#" and not value.startswith("#/")
    return word in _IGNORED_KEYWORDS


class _GeminiConverter:
    """Converts one schema to Google's dialect."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._schemas_left = _MAX_SCHEMAS
        self._characters_left = _MAX_REPEATED_CHARACTERS
        self._sizes: dict[str, int] = {}

    def convert_parameters(self) -> Schema:
        return {"properties": {}, **self._convert(self._root, kind="object")}

    def _convert(self, schema: Any, visited: frozenset[str] = frozenset(), kind: str | None = None) -> Schema:
        """Return the schema in Google's dialect.

        `visited` are the references that led here: following one again would never end. `kind` is the type, whatever the schema or a part
        of it says: keywords of another type, such as `items`, have no meaning in the result.
        """
        self._schemas_left -= 1
        if not _is_schema(schema) or self._schemas_left < 0:
            return {"type": "string" if schema is True or schema == {} else "object"}
        schema, visited = self._resolve_references(schema, visited)
        schema = _merge_all_of([schema, *self._subschemas(schema, visited, "allOf")])
        if kind is not None:
            schema = {**schema, "type": kind}
        result = {key: schema[key] for key, kind in _COPIED_KEYWORDS.items() if _is_json_type(schema.get(key), kind)}
        for rule in (_type_rule, _enum_rule, _bounds_rule, _example_rule):
            result |= rule(schema, result)
        if "type" not in result:
            result = {"type": "string", **self._convert_unions(schema, visited), **result}
        return (
            _without_type(result)
            if "anyOf" in result
            else result | self._convert_children(schema, result["type"], visited)
        )

    def _resolve_references(self, schema: Schema, visited: frozenset[str]) -> tuple[Schema, frozenset[str]]:
        """Return the schema that a reference points to, merged with its sibling keywords; an object schema if it cannot be resolved."""
        while isinstance(name := schema.get("$ref"), str):
            target = None if name in visited else self._reference_target(name)
            siblings = {key: item for key, item in schema.items() if key != "$ref"}
            visited = visited | {name}
            schema = {**(target if target is not None else {"type": "object"}), **siblings}
        return schema, visited

    def _reference_target(self, name: str) -> Schema | None:
        """Return the schema that a reference points to; None if it is unknown or the limits are exhausted."""
        target = _resolve_pointer(self._root, name) if self._characters_left >= 0 else None
        if target is None:
            return None
        if name not in self._sizes:
            self._sizes[name] = len(json.dumps(target))
        self._schemas_left -= 1
        self._characters_left -= self._sizes[name]
        return target if min(self._schemas_left, self._characters_left) >= 0 else None

    def _subschemas(self, schema: Schema, visited: frozenset[str], *words: str) -> list[Schema]:
        return [
            self._resolve_references(part, visited)[0] for word in words for part in _schema_items(schema.get(word))
        ]

    def _convert_unions(self, schema: Schema, visited: frozenset[str]) -> Schema:
        """Return `anyOf` and `oneOf` as one `anyOf`; a null type among them makes the result nullable."""
        parts = self._subschemas(schema, visited, "anyOf", "oneOf")
        several = [name for name in _type_names(schema.get("type")) if name in _JSON_TYPES]
        if not parts and len(several) > 1:
            parts = [{"type": name} for name in several]
        real = [part for part in parts if part.get("type") != "null"]
        null: Schema = {"nullable": True} if len(real) < len(parts) else {}
        match [self._convert(part, visited) for part in real]:
            case []:
                return null
            case [only]:
                return {**only, **null}
            case many:
                return {"anyOf": many, **null}

    def _convert_children(self, schema: Schema, kind: Any, visited: frozenset[str]) -> Schema:
        if kind == "array":
            return {"items": self._convert_items(schema, visited)}
        if kind != "object":
            return {}
        # A union of objects may have the properties of any of them.
        named = _collect_properties([schema, *self._subschemas(schema, visited, "anyOf", "oneOf")])
        cleaned = {name: self._convert(_any_of(parts), visited) for name, parts in named.items()}
        if not cleaned:
            return {}
        required = [name for name in _string_items(schema.get("required")) if name in cleaned]
        return {"properties": cleaned, **({"required": required} if required else {})}

    def _convert_items(self, schema: Schema, visited: frozenset[str]) -> Schema:
        """Return the item schema, which Google requires. A tuple becomes an array of any of its item types."""
        items = schema.get("items", True)
        item_schemas = _schema_items(schema.get("prefixItems")) or _schema_items(items)
        if item_schemas:
            return self._convert({"anyOf": item_schemas}, visited)
        return self._convert(True if isinstance(items, list) else items, visited)


def _collect_properties(kinds: list[Schema]) -> dict[str, list[Any]]:
    """Return the properties of several object schemas, each with all its schemas."""
    named: dict[str, list[Any]] = {}
    for schema in kinds:
        properties = schema.get("properties")
        for name, part in properties.items() if _is_schema(properties) else ():
            named.setdefault(name, []).append(part)
    return named


def _any_of(parts: list[Any]) -> Any:
    return parts[0] if all(part == parts[0] for part in parts) else {"anyOf": parts}


def _without_type(schema: Schema) -> Schema:
    return {key: item for key, item in schema.items() if key != "type"}


def _type_rule(schema: Schema, result: Schema) -> Schema:
    """Return the single type, declared or implied; nothing if there are several."""
    named = _type_names(schema.get("type"))
    real = [name for name in named if name in _JSON_TYPES]
    null: Schema = {"nullable": True} if "null" in named else {}
    if not named:
        real = ["object"] if "properties" in schema else ["array"] if "items" in schema else []
    if len(real) != 1:
        return null
    forms = [form for form in _type_names(schema.get("format")) if form in _FORMATS.get(real[0], ())]
    return {"type": real[0], **null, **({"format": forms[0]} if forms else {})}


def _enum_rule(schema: Schema, result: Schema) -> Schema:
    """Return `const` and `enum` as an enum. Google accepts only strings; other values go into the description."""
    choices = [schema["const"]] if "const" in schema else _as_list(schema.get("enum"))
    real = [choice for choice in choices if choice is not None]
    null: Schema = {"nullable": True} if len(real) < len(choices) else {}
    kinds = {_json_type_name(choice) for choice in real}
    kind = result.get("type") or (kinds.pop() if len(kinds) == 1 else None)
    if not real or kind is None:
        return null
    if kind == "string" and all(isinstance(choice, str) for choice in real):
        return {"type": kind, "enum": real, **null}
    words = f"One of: {', '.join(json.dumps(choice, ensure_ascii=False) for choice in real)}."
    return {"type": kind, "description": " ".join(filter(None, [result.get("description"), words])), **null}


def _bounds_rule(schema: Schema, result: Schema) -> Schema:
    """Return exclusive bounds as inclusive ones: exact for integers, slightly wider for other numbers."""
    step = 1 if result.get("type") == "integer" else 0
    low, high = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    found: Schema = {}
    if _is_number(low):
        found["minimum"] = low + step
    if _is_number(high):
        found["maximum"] = high - step
    return found


def _example_rule(schema: Schema, result: Schema) -> Schema:
    found = {key: schema[key] for key in ("default", "example") if key in schema}
    for example in _as_list(schema.get("examples"))[:1]:
        found.setdefault("example", example)
    return found


def _merge_all_of(parts: list[Schema]) -> Schema:
    """Return the parts of an `allOf` as one schema: properties and required names add up; otherwise later parts win."""
    if len(parts) == 1:
        return parts[0]
    whole: Schema = {}
    properties: Schema = {}
    needed: dict[str, None] = {}
    for part in parts:
        whole |= part
        properties |= part["properties"] if _is_schema(part.get("properties")) else {}
        needed |= dict.fromkeys(_string_items(part.get("required")))
    added = {"properties": properties, "required": list(needed)}
    return whole | {word: item for word, item in added.items() if item}


def _resolve_pointer(root: Schema, pointer: str) -> Schema | None:
    """Return the schema at a local reference; None if there is none."""
    found: Any = root if pointer == "#" or pointer.startswith("#/") else None
    for key in parse_pointer(pointer):
        found = found.get(key) if _is_schema(found) else None
    return found if _is_schema(found) else None


def _is_schema(value: Any) -> TypeGuard[Schema]:
    return isinstance(value, dict)


def _is_json_type(value: Any, kind: type | tuple[type, ...]) -> bool:
    """Return True if the value has this type in JSON, where true is not a number."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _is_number(value: Any) -> TypeGuard[float]:
    return _is_json_type(value, (int, float))


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _schema_items(value: Any) -> list[Schema]:
    return [item for item in _as_list(value) if _is_schema(item)]


def _string_items(value: Any) -> list[str]:
    return [item for item in _as_list(value) if isinstance(item, str)]


def _type_names(named: Any) -> list[str]:
    return [named] if isinstance(named, str) else _string_items(named)


def _json_type_name(value: Any) -> str:
    """Return the name of a JSON value's type."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


class Toolbox:
    """Separates the client's tools from the agent's. Where both have a tool of the same name, that in `native` is the agent's.

    `normalize` returns the form of a name in which the framework compares names, if it regards different names as the same.
    """

    def __init__(
        self,
        client_tools: Sequence[Tool],
        native: Collection[str] = (),
        *,
        normalize: Callable[[str], str] = str,
    ) -> None:
        own = {normalize(name) for name in native}
        taken = {tool.name for tool in client_tools if normalize(tool.name) in own}
        self.client_tools: dict[str, Tool] = {tool.name: tool for tool in client_tools if tool.name not in taken}
        self.taken_names = tuple(dict.fromkeys(tool.name for tool in client_tools if tool.name in taken))
        """Names of the client's tools that are left out, because the agent has them."""

    def is_client_tool(self, name: str) -> bool:
        """Return True if the client executes this tool."""
        return name in self.client_tools

    def dropped_events(self) -> list[Event]:
        """Return the `ambient:dropped` event that names the tools that are left out; nothing if there are none."""
        return name_taken_events(self.taken_names)


def name_taken_events(names: Sequence[str]) -> list[Event]:
    """Return the `ambient:dropped` event for tools of the client that have the name of a tool of the agent."""
    return dropped_tool_events("name_taken", names)


def callable_tools(tools: Sequence[Tool], *, pattern: re.Pattern[str] = TOOL_NAME) -> list[Tool]:
    """Return the client's tools whose name a framework accepts, by a pattern of the whole name. The others are logged and left out."""
    valid = [tool for tool in tools if pattern.fullmatch(tool.name)]
    ignored = [_name_for_log(tool.name) for tool in tools if tool not in valid]
    if ignored:
        run = current_run_or_none()
        logger.warning(
            "%sIgnored client tools %r. A name must match %s.",
            f"Run {run.input.run_id} on thread {run.thread.id}: " if run else "",
            ignored[:10],
            pattern.pattern,
        )
    return valid


def _name_for_log(name: str) -> str:
    """Return a short name as it is. A long one is not cut: redaction does not find a part of a secret."""
    return name if len(name) <= _MAX_LOGGED_NAME else f"of {len(name)} characters"
