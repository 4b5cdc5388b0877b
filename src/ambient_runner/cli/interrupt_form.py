"""An interrupt as a form in the terminal. Pure: `interrupt_text.py` says what it is about, `terminal.py` prints the prompts and reads.

The interrupt's JSON Schema defines the fields: one line per property of an object, one line for any other schema. Without a schema, an
approval is answered with yes or no, and any other interrupt with one line: a JSON object, array or string, else text. If the agent offers
options, one of them is chosen by its number, or with yes or no where that means a single one. A URL is answered with yes or no.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.cli.arguments import is_utf8
from ambient_runner.errors import InvalidInput
from ambient_runner.protocol import strict_json
from ambient_runner.protocol.limits import MAX_MESSAGE_DEPTH
from ambient_runner.protocol.strict_json import is_too_deep

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ambient_runner.protocol.events import Interrupt

__all__ = ["FormField", "build_answer", "objects_in", "offered_options", "requested_url"]

_YES = {"y", "yes", "true", "1"}
_NO = {"n", "no", "false", "0"}
_SINGLE_DECISIONS = (("allow_once", ("y", "yes")), ("reject_once", ("n", "no")))
"""Kinds of options for a single decision, and what is typed for them."""
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
    """One input line. `kind` is its JSON Schema type; a field that is not required may be left empty.

    `aliases` are other words for some of the choices, in lower case.
    """

    name: str
    kind: str
    required: bool = True
    choices: tuple[Any, ...] = ()
    aliases: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def prompt(self) -> str:
        hints = [*self._kind_hint(), *([] if self.required else ["may be empty"])]
        return f"{self.name} [{', '.join(hints)}]" if hints else self.name

    def _kind_hint(self) -> list[str]:
        if self.choices:
            letters = [word for word in self.aliases if len(word) == 1]
            return ["/".join(str(choice) for choice in self.choices), *(["/".join(letters)] if letters else [])]
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
        if text.lower() in self.aliases:
            return self.aliases[text.lower()]
        expected = [*self.choices, *(word for word in self.aliases if len(word) == 1)]
        raise ValueError(f"Answer one of: {', '.join(str(choice) for choice in expected)}.")


def build_answer(interrupt: Interrupt, read: Callable[[FormField], Any]) -> Any:
    """Return the payload that answers an interrupt, built from the value `read` returns for each field.

    Raises: EOFError as `read`, if nothing was read or a required field is missing. Optional fields after the end of input are left out.
    """
    reader = _PartialReader(read)
    if options := offered_options(interrupt):
        return _choose_option(options, reader.read)
    if requested_url(interrupt):
        return {"approved": reader.read(FormField("done", "boolean"))}
    schema = interrupt.response_schema or (_APPROVAL_SCHEMA if interrupt.reason in _APPROVAL_REASONS else {})
    return _build_value(_WHOLE_ANSWER, schema, True, reader.read)


@dataclass(slots=True)
class _PartialReader:
    """Reads fields until the input ends. What was given before is an answer if only optional fields are missing."""

    _read: Callable[[FormField], Any]
    _has_read: bool = False

    def read(self, form_field: FormField) -> Any:
        try:
            value = self._read(form_field)
        except EOFError:
            if form_field.required or not self._has_read:
                raise
            return None
        self._has_read = True
        return value


def offered_options(interrupt: Interrupt) -> list[dict[str, Any]]:
    """Return the options that a command-line agent offers with a permission request; none for any other interrupt."""
    options = objects_in((interrupt.metadata or {}).get("options"))
    return [option for option in options if isinstance(option.get("optionId"), str)]


def requested_url(interrupt: Interrupt) -> str:
    """Return the URL at which a person is to do something, and then say so; empty for an interrupt that asks for anything else."""
    url = (interrupt.metadata or {}).get("url")
    fields = as_object(as_object(interrupt.response_schema).get("properties"))
    is_form = interrupt.response_schema is None or (bool(fields) and "approved" not in fields)
    return url if isinstance(url, str) and not is_form else ""


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the items of a list of objects; none for any other value."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def _choose_option(options: list[dict[str, Any]], read: Callable[[FormField], Any]) -> dict[str, Any]:
    """Read the number of an option, and with a rejection what the agent should know."""
    numbers = tuple(str(number) for number, _ in enumerate(options, 1))
    choice = read(FormField("number", "string", True, numbers, _single_decisions(options)))
    option = options[int(choice) - 1]
    answer = {"optionId": option["optionId"], "approved": not str(option.get("kind")).startswith("reject")}
    message = None if answer["approved"] else read(FormField("message", "string", required=False))
    return {**answer, "message": message} if message else answer


def _single_decisions(options: list[dict[str, Any]]) -> dict[str, str]:
    """Return the numbers of the options for yes and no, by word. A word that could mean several options, or none, is left out."""
    kinds = [option.get("kind") for option in options]
    return {
        word: str(kinds.index(kind) + 1)
        for kind, words in _SINGLE_DECISIONS
        if kinds.count(kind) == 1
        for word in words
    }


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
