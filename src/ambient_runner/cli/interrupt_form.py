"""An interrupt as a form in the terminal. Pure: `run.py` prints the prompts and reads the lines.

The interrupt's JSON Schema defines the fields: one line per property of an object, one line for any other schema. Without a schema, an
approval is answered with yes or no, and any other interrupt with one line: JSON if it parses as a JSON object or array, else text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.protocol.events import Interrupt

_YES = {"y", "yes", "true", "1"}
_NO = {"n", "no", "false", "0"}
_APPROVAL_REASONS = {"approval", "confirmation", "tool_call"}
"""Reasons of interrupts that ask for an approval."""
_APPROVAL_SCHEMA: dict[str, Any] = {"properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
_WHOLE_ANSWER = "answer"
_ANY = "any"
_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "integer": int,
    "number": (int, float),
}


@dataclass(frozen=True, slots=True)
class FormField:
    """One input line. `kind` is its JSON Schema type; a field that is not required may be left empty."""

    name: str
    kind: str
    required: bool = True
    choices: tuple[Any, ...] = ()

    @property
    def prompt(self) -> str:
        hints = [*self._kind_hint(), *([] if self.required else ["may be empty"])]
        return f"{self.name} [{', '.join(hints)}]" if hints else self.name

    def _kind_hint(self) -> list[str]:
        if self.choices:
            return ["/".join(str(choice) for choice in self.choices)]
        if self.kind == "boolean":
            return ["y/n"]
        if self.kind == _ANY:
            return ["text or JSON"]
        return [] if self.kind == "string" and self.name == _WHOLE_ANSWER else [self.kind]

    def parse_line(self, line: str) -> Any:
        """Return the value of the line; None if it is empty and not required. Raises: ValueError if the line is not valid."""
        text = line.strip()
        if not text:
            return self._accept_empty()
        if self.choices:
            return self._parse_choice(text)
        if self.kind == "boolean":
            return _parse_boolean(text)
        if self.kind == _ANY:
            return _parse_object_or_text(text)
        return text if self.kind == "string" else _parse_json(self.kind, text)

    def _accept_empty(self) -> None:
        if self.required:
            raise ValueError(f"{self.name} is required.")

    def _parse_choice(self, text: str) -> Any:
        for choice in self.choices:
            if text == str(choice):
                return choice
        raise ValueError(f"Answer one of: {', '.join(str(choice) for choice in self.choices)}.")


def describe_interrupt(interrupt: Interrupt) -> str:
    """Return the text to show for an interrupt: its message, and its metadata as indented JSON if it has no message or no schema."""
    value = (interrupt.metadata or {}).get("value", interrupt.metadata)
    if not value or value == interrupt.message or (interrupt.message and interrupt.response_schema is not None):
        return interrupt.message or interrupt.reason
    details = json.dumps(value, ensure_ascii=False, indent=2)
    return f"{interrupt.message}\n{details}" if interrupt.message else details


def build_answer(interrupt: Interrupt, read: Callable[[FormField], Any]) -> Any:
    """Return the payload that answers an interrupt, built from the value `read` returns for each field."""
    schema = interrupt.response_schema or (_APPROVAL_SCHEMA if interrupt.reason in _APPROVAL_REASONS else {})
    return _build_value(_WHOLE_ANSWER, schema, True, read)


def _build_value(name: str, schema: dict[str, Any], required: bool, read: Callable[[FormField], Any]) -> Any:
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    if not properties:
        return read(FormField(name, _schema_type(schema), required, tuple(schema.get("enum") or ())))
    needed = cast("list[str]", schema.get("required") or [])
    answers = {inner: _build_value(inner, shape, inner in needed, read) for inner, shape in properties.items()}
    values = {inner: value for inner, value in answers.items() if value is not None}
    return values if values or required else None


def _schema_type(schema: dict[str, Any]) -> str:
    """Return the type to parse: string if it is one of several types, any if the schema has no type."""
    kind = schema.get("type", _ANY)
    if not isinstance(kind, list):
        return str(kind)
    kinds = cast("list[str]", kind)
    return "string" if "string" in kinds else next((name for name in kinds if name != "null"), "string")


def _parse_boolean(text: str) -> bool:
    if text.lower() in _YES | _NO:
        return text.lower() in _YES
    raise ValueError("Answer y or n.")


def _parse_object_or_text(text: str) -> Any:
    """Return a typed JSON object or array as such, and anything else as text. Raises: ValueError for a broken object or array."""
    return _parse_json("object or array", text) if text[0] in "{[" else text


def _parse_json(kind: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"That is not valid JSON of type {kind}: {error}.") from error
    if not isinstance(value, _PYTHON_TYPES.get(kind, object)):
        raise ValueError(f"That is not JSON of type {kind}.")  # noqa: TRY004
    return value
