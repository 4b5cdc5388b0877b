"""Tools of one run: which belong to the client, and their parameters as JSON Schema that a provider accepts.

Everything here is made for one run and thrown away with it: a tool of one request that stays on a shared agent is visible to the next one.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, cast

from ambient_runner.protocol.json_pointer import keys_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ambient_runner.protocol.events import Tool

__all__ = ["Dialect", "Toolbox", "clean_schema"]

Dialect = Literal["json", "gemini"]
Schema = dict[str, Any]

_NOISE = ("$schema", "$id", "$comment", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary")
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})
_FORMATS = {
    "string": {"date-time", "enum"},
    "number": {"float", "double"},
    "integer": {"int32", "int64"},
}
_KEPT: dict[str, type | tuple[type, ...]] = {
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
_MOST_PARTS = 2_000
"""How many schemas one may become. References can double at every level."""
_MOST_REPEATED = 1 << 17
"""Characters that references may repeat: a long list of choices can be named at every place."""
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_MOST_VALUES = 50_000
_MOST_CHARACTERS = 1 << 19
_DEEPEST = 64


def clean_schema(schema: Any, *, dialect: Dialect = "json") -> dict[str, Any]:
    """A tool's parameters as an object schema the provider takes, whatever the client declared. The given one is not changed.

    `json` is JSON Schema as Bedrock, Anthropic and OpenAI take it; `gemini` is Google's dialect, without references.
    """
    given = _as_object(schema if _is_bounded(schema) else None)
    return _local(_Gemini(given).parameters() if dialect == "gemini" else given)


def _as_object(schema: Any) -> Schema:
    """A copy that certainly describes an object: anything else could not be a call's arguments."""
    if not _is_schema(schema) or "object" not in _types(schema.get("type", "object")):
        return {"type": "object", "properties": {}}
    kept = {key: item for key, item in copy.deepcopy(schema).items() if key not in _NOISE}
    properties = kept.get("properties")
    kept |= {"type": "object", "properties": properties if _is_schema(properties) else {}}
    if "required" in kept:
        kept["required"] = _names(kept["required"])
    return kept


def _is_bounded(schema: Any) -> bool:
    """Whether it is of a size that a person, or a library, would write."""
    values, room = _MOST_VALUES, _MOST_CHARACTERS
    level: list[Any] = [schema]
    for _ in range(_DEEPEST):
        values -= len(level)
        room -= sum(_length(value) for value in level)
        if not level or min(values, room) < 0:
            break
        level = [inner for value in level for inner in _within(value)]
    return not level and min(values, room) >= 0


def _length(value: Any) -> int:
    names = sum(map(len, value)) if _is_schema(value) else 0
    return len(value) if isinstance(value, str) else names


def _within(value: Any) -> list[Any]:
    return list(value.values()) if _is_schema(value) else _list(value)


def _local(value: Any) -> Any:
    """The value without words that lead out of the schema, or name it. Everywhere in it: a reference can make a schema of a default."""
    if isinstance(value, list):
        return [_local(item) for item in _list(value)]
    if not _is_schema(value):
        return value
    return {key: _local(item) for key, item in value.items() if not (isinstance(item, str) and _leads_out(key, item))}


def _leads_out(word: str, value: str) -> bool:
    if word in _REFERENCES:
        return value != "#" and not value.startswith("#/")
    return word in _NOISE


class _Gemini:
    """One schema on its way into Google's dialect."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST_PARTS
        self._room = _MOST_REPEATED
        self._sizes: dict[str, int] = {}

    def parameters(self) -> Schema:
        return {"properties": {}, **self._clean(self._root), "type": "object"}

    def _clean(self, given: Any, inside: frozenset[str] = frozenset()) -> Schema:
        """`inside` names the references on the way here: one of them again would go on for ever."""
        self._left -= 1
        if not _is_schema(given) or self._left < 0:
            return {"type": "string" if given is True or given == {} else "object"}
        given, inside = self._resolved(given, inside)
        given = _merged([given, *self._parts(given, inside, "allOf")])
        kept = {key: given[key] for key, kind in _KEPT.items() if _is(given.get(key), kind)}
        for rule in (_kind, _choices, _bounds, _example):
            kept |= rule(given, kept)
        if "type" not in kept:
            kept = {"type": "string", **self._unions(given, inside), **kept}
        return _without_type(kept) if "anyOf" in kept else kept | self._inner(given, kept["type"], inside)

    def _resolved(self, given: Schema, inside: frozenset[str]) -> tuple[Schema, frozenset[str]]:
        """The schema a reference means, with what stands beside it; a plain object where there is none to be had."""
        while isinstance(name := given.get("$ref"), str):
            target = None if name in inside else self._target(name)
            beside = {key: item for key, item in given.items() if key != "$ref"}
            inside = inside | {name}
            given = {**(target if target is not None else {"type": "object"}), **beside}
        return given, inside

    def _target(self, name: str) -> Schema | None:
        """What a reference names; None where it is unknown, or too much has been repeated already."""
        target = _at(self._root, name) if self._room >= 0 else None
        if target is None:
            return None
        if name not in self._sizes:
            self._sizes[name] = len(json.dumps(target))
        self._left -= 1
        self._room -= self._sizes[name]
        return target if min(self._left, self._room) >= 0 else None

    def _parts(self, given: Schema, inside: frozenset[str], *words: str) -> list[Schema]:
        return [self._resolved(part, inside)[0] for word in words for part in _schemas(given.get(word))]

    def _unions(self, given: Schema, inside: frozenset[str]) -> Schema:
        """`anyOf` and `oneOf` are both `anyOf`; null among them makes the whole nullable."""
        parts = self._parts(given, inside, "anyOf", "oneOf")
        several = [name for name in _types(given.get("type")) if name in _TYPES]
        if not parts and len(several) > 1:
            parts = [{"type": name} for name in several]
        real = [part for part in parts if part.get("type") != "null"]
        null: Schema = {"nullable": True} if len(real) < len(parts) else {}
        match [self._clean(part, inside) for part in real]:
            case []:
                return null
            case [only]:
                return {**only, **null}
            case many:
                return {"anyOf": many, **null}

    def _inner(self, given: Schema, kind: Any, inside: frozenset[str]) -> Schema:
        if kind == "array":
            return {"items": self._items(given, inside)}
        if kind != "object":
            return {}
        # An object of one kind or another may have what any of them has.
        named = _gathered([given, *self._parts(given, inside, "anyOf", "oneOf")])
        cleaned = {name: self._clean(_either(parts), inside) for name, parts in named.items()}
        if not cleaned:
            return {}
        required = [name for name in _names(given.get("required")) if name in cleaned]
        return {"properties": cleaned, **({"required": required} if required else {})}

    def _items(self, given: Schema, inside: frozenset[str]) -> Schema:
        """An array must say of what. A tuple becomes an array of any of its kinds."""
        items = given.get("items", True)
        places = _schemas(given.get("prefixItems")) or _schemas(items)
        if places:
            return self._clean({"anyOf": places}, inside)
        return self._clean(True if isinstance(items, list) else items, inside)


def _gathered(kinds: list[Schema]) -> dict[str, list[Any]]:
    """The properties of several objects, each with all that is said of it."""
    named: dict[str, list[Any]] = {}
    for one in kinds:
        properties = one.get("properties")
        for name, part in properties.items() if _is_schema(properties) else ():
            named.setdefault(name, []).append(part)
    return named


def _either(parts: list[Any]) -> Any:
    return parts[0] if all(part == parts[0] for part in parts) else {"anyOf": parts}


def _without_type(kept: Schema) -> Schema:
    return {key: item for key, item in kept.items() if key != "type"}


def _kind(given: Schema, kept: Schema) -> Schema:
    """The one type there is, said or implied; none where there are several."""
    named = _types(given.get("type"))
    real = [name for name in named if name in _TYPES]
    null: Schema = {"nullable": True} if "null" in named else {}
    if not named:
        real = ["object"] if "properties" in given else ["array"] if "items" in given else []
    if len(real) != 1:
        return null
    forms = [form for form in _types(given.get("format")) if form in _FORMATS.get(real[0], ())]
    return {"type": real[0], **null, **({"format": forms[0]} if forms else {})}


def _choices(given: Schema, kept: Schema) -> Schema:
    """A constant is a choice of one. Choices are strings here; others are said in words."""
    choices = [given["const"]] if "const" in given else _list(given.get("enum"))
    real = [choice for choice in choices if choice is not None]
    null: Schema = {"nullable": True} if len(real) < len(choices) else {}
    kinds = {_type_of(choice) for choice in real}
    kind = kept.get("type") or (kinds.pop() if len(kinds) == 1 else None)
    if not real or kind is None:
        return null
    if kind == "string" and all(isinstance(choice, str) for choice in real):
        return {"type": kind, "enum": real, **null}
    words = f"One of: {', '.join(json.dumps(choice, ensure_ascii=False) for choice in real)}."
    return {"type": kind, "description": " ".join(filter(None, [kept.get("description"), words])), **null}


def _bounds(given: Schema, kept: Schema) -> Schema:
    """Exclusive bounds as inclusive ones: exact for whole numbers, a little wider for others."""
    step = 1 if kept.get("type") == "integer" else 0
    low, high = given.get("exclusiveMinimum"), given.get("exclusiveMaximum")
    found: Schema = {}
    if _is_number(low):
        found["minimum"] = low + step
    if _is_number(high):
        found["maximum"] = high - step
    return found


def _example(given: Schema, kept: Schema) -> Schema:
    found = {key: given[key] for key in ("default", "example") if key in given}
    for example in _list(given.get("examples"))[:1]:
        found.setdefault("example", example)
    return found


def _merged(parts: list[Schema]) -> Schema:
    """`allOf` as one schema: properties and required names add up, other words of later parts win."""
    if len(parts) == 1:
        return parts[0]
    whole: Schema = {}
    properties: Schema = {}
    needed: dict[str, None] = {}
    for part in parts:
        whole |= part
        properties |= part["properties"] if _is_schema(part.get("properties")) else {}
        needed |= dict.fromkeys(_names(part.get("required")))
    added = {"properties": properties, "required": list(needed)}
    return whole | {word: item for word, item in added.items() if item}


def _at(root: Schema, pointer: str) -> Schema | None:
    """What a local reference names."""
    found: Any = root if pointer == "#" or pointer.startswith("#/") else None
    for key in keys_of(pointer):
        found = found.get(key) if _is_schema(found) else None
    return found if _is_schema(found) else None


def _is_schema(value: Any) -> TypeGuard[Schema]:
    return isinstance(value, dict)


def _is(value: Any, kind: type | tuple[type, ...]) -> bool:
    """Whether it is a value of this kind, as JSON sees it: true is no number."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _is_number(value: Any) -> TypeGuard[float]:
    return _is(value, (int, float))


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _schemas(value: Any) -> list[Schema]:
    return [item for item in _list(value) if _is_schema(item)]


def _names(value: Any) -> list[str]:
    return [item for item in _list(value) if isinstance(item, str)]


def _types(named: Any) -> list[str]:
    return [named] if isinstance(named, str) else _names(named)


def _type_of(value: Any) -> str:
    """The name of a JSON value's type."""
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
    """Who executes which tool: the client those it declared, the agent its own. Where both have a name, the agent's tool wins."""

    def __init__(self, frontend: Sequence[Tool], native: Collection[str] = ()) -> None:
        self.frontend: dict[str, Tool] = {tool.name: tool for tool in frontend if tool.name not in native}

    def is_frontend(self, name: str) -> bool:
        return name in self.frontend
