"""An interrupt as a form in the terminal. Pure: `run.py` prints the prompts and reads the lines.

The interrupt's JSON Schema defines the fields: one line per property of an object, one line for any other schema. Without a schema, an
approval is answered with yes or no, and any other interrupt with one line: a JSON object, array or string, else text. If the agent offers
options, one of them is chosen by its number.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.cli.arguments import is_utf8
from ambient_runner.errors import InvalidInput
from ambient_runner.protocol import strict_json
from ambient_runner.protocol.limits import MAX_MESSAGE_DEPTH
from ambient_runner.protocol.strict_json import is_too_deep

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
    "string": str,
}
_NUMBERS = {"integer", "number"}


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
        if not is_utf8(text):
            raise ValueError("That is not valid UTF-8 text.")
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
    """Return the text to show for an interrupt: its message, and its metadata as indented JSON if it has no message or no schema.

    A request of LangChain's HumanInTheLoopMiddleware comes with an example answer, and options of a command-line agent with numbers.
    """
    if options := _options_of(interrupt):
        lines = [f"  {number}  {_describe_option(option)}" for number, option in enumerate(options, 1)]
        return "\n".join([interrupt.message or interrupt.reason, *lines])
    value = (interrupt.metadata or {}).get("value", interrupt.metadata)
    if not value or value == interrupt.message or (interrupt.message and interrupt.response_schema is not None):
        return interrupt.message or interrupt.reason
    details = json.dumps(value, ensure_ascii=False, indent=2)
    example = _example_answer(value) if interrupt.response_schema is None else ""
    return "\n".join(part for part in (interrupt.message, details, example) if part)


def _example_answer(value: Any) -> str:
    """Return a line with an answer to a request with `action_requests`: one decision for each. Empty for any other value."""
    request = as_object(value)
    actions = _objects_in(request.get("action_requests"))
    if not actions:
        return ""
    configs = _objects_in(request.get("review_configs"))
    allowed = {str(config.get("action_name")): config.get("allowed_decisions") for config in configs}
    decisions = [_example_decision(action, allowed.get(str(action.get("name")))) for action in actions]
    return f"For example: {json.dumps({'decisions': decisions}, ensure_ascii=False)}"


def _objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the items of a list of objects; none for any other value."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def _example_decision(action: dict[str, Any], allowed: Any) -> dict[str, Any]:
    """Return the simplest decision among the `allowed` types, a list of names."""
    if not isinstance(allowed, list) or not allowed or "approve" in allowed:
        return {"type": "approve"}
    types = cast("list[Any]", allowed)
    if "reject" in types or "edit" not in types:
        return {"type": "reject" if "reject" in types else types[0], "message": "…"}
    arguments = action.get("args", action.get("arguments", {}))
    return {"type": "edit", "edited_action": {"name": action.get("name"), "args": arguments}}


def build_answer(interrupt: Interrupt, read: Callable[[FormField], Any]) -> Any:
    """Return the payload that answers an interrupt, built from the value `read` returns for each field."""
    if options := _options_of(interrupt):
        return _choose_option(options, read)
    schema = interrupt.response_schema or (_APPROVAL_SCHEMA if interrupt.reason in _APPROVAL_REASONS else {})
    return _build_value(_WHOLE_ANSWER, schema, True, read)


def _options_of(interrupt: Interrupt) -> list[dict[str, Any]]:
    """Return the options that a command-line agent offers with a permission request; none for any other interrupt."""
    options = _objects_in((interrupt.metadata or {}).get("options"))
    return [option for option in options if isinstance(option.get("optionId"), str)]


def _describe_option(option: dict[str, Any]) -> str:
    """Return the option's name and, since an agent can name it anything, its kind."""
    kind = str(option.get("kind") or "").replace("_", " ")
    return " ".join(f"{option.get('name') or option['optionId']}{f' ({kind})' if kind else ''}".split())


def _choose_option(options: list[dict[str, Any]], read: Callable[[FormField], Any]) -> dict[str, Any]:
    """Read the number of an option, and with a rejection what the agent should know."""
    numbers = tuple(str(number) for number, _ in enumerate(options, 1))
    option = options[int(read(FormField("number", "string", True, numbers))) - 1]
    answer = {"optionId": option["optionId"], "approved": not str(option.get("kind")).startswith("reject")}
    message = None if answer["approved"] else read(FormField("message", "string", required=False))
    return {**answer, "message": message} if message else answer


def _build_value(name: str, schema: dict[str, Any], required: bool, read: Callable[[FormField], Any]) -> Any:
    """Read a value by its schema. Parts of the schema that JSON Schema does not allow, and boolean schemas, are ignored."""
    properties = as_object(schema.get("properties"))
    if not properties:
        return read(FormField(name, _schema_type(schema), required, tuple(_list_of(schema.get("enum")))))
    needed = _list_of(schema.get("required"))
    answers = {
        inner: _build_value(inner, as_object(shape), inner in needed, read) for inner, shape in properties.items()
    }
    values = {inner: value for inner, value in answers.items() if value is not None}
    return values if values or required else None


def _list_of(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _schema_type(schema: dict[str, Any]) -> str:
    """Return the type to parse: string if it is one of several types, any if the schema has no type."""
    declared = schema.get("type")
    kinds = [kind for kind in _list_of(declared) or [declared] if isinstance(kind, str)]
    return "string" if "string" in kinds else next((kind for kind in kinds if kind != "null"), _ANY)


def _parse_boolean(text: str) -> bool:
    if text.lower() in _YES | _NO:
        return text.lower() in _YES
    raise ValueError("Answer y or n.")


def _parse_object_or_text(text: str) -> Any:
    """Return a typed JSON object, array or string as such, and anything else as text.

    Raises: ValueError for a broken object or array: it is far more often mistyped JSON than text. A JSON string can have any text.
    """
    if text[0] == '"':
        with suppress(ValueError):
            return _parse_json("string", text)
    if text[0] not in "{[":
        return text
    try:
        return _parse_json("object or array", text)
    except ValueError as error:
        raise ValueError(f"{error} To send it as text, write it as a JSON string, in double quotes.") from error


def _parse_json(kind: str, text: str) -> Any:
    """Return the JSON value, which must be of this type. The rules are those of a request over HTTP. Raises: ValueError."""
    body = text.encode()
    if is_too_deep(body, MAX_MESSAGE_DEPTH):
        raise ValueError(f"That is nested more than {MAX_MESSAGE_DEPTH} levels deep.")
    try:
        value = strict_json.loads(body)
    except InvalidInput as error:
        raise ValueError(f"That is not valid JSON of type {kind}. {error.message}") from error
    is_wrong_bool = isinstance(value, bool) and kind in _NUMBERS
    if is_wrong_bool or not isinstance(value, _PYTHON_TYPES.get(kind, object)):
        raise ValueError(f"That is not JSON of type {kind}.")
    return value
