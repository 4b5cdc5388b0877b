"""An interrupt as questions a person can answer in a terminal. Pure: `run.py` shows them and reads the lines.

A JSON Schema says what is asked: the fields of an object one line each, anything else as itself. Without one, an approval is a yes or no
and every other question is answered in words, which the agent gets as they were typed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.cli.render import compact

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.protocol.events import Interrupt

_YES = {"y", "yes", "true", "1"}
_NO = {"n", "no", "false", "0"}
_APPROVALS = {"approval", "confirmation", "tool_call"}
"""Reasons of interrupts that ask for leave to do something."""
_APPROVAL: dict[str, Any] = {"properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
_WHOLE = "answer"
_KINDS: dict[str, type | tuple[type, ...]] = {"object": dict, "array": list, "integer": int, "number": (int, float)}


@dataclass(frozen=True, slots=True)
class Field:
    """One thing to ask for. `kind` is its JSON Schema type; a field that is not required may be left empty."""

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
        return [] if self.kind == "string" and self.name == _WHOLE else [self.kind]

    def read(self, line: str) -> Any:
        """The answer this line gives; None when it is left empty and may be. Raises: ValueError when it is not one."""
        text = line.strip()
        if not text:
            return self._left_empty()
        if self.choices:
            return self._chosen(text)
        if self.kind == "boolean":
            return _yes_or_no(text)
        return text if self.kind == "string" else _json(self.kind, text)

    def _left_empty(self) -> None:
        if self.required:
            raise ValueError(f"{self.name} is needed.")

    def _chosen(self, text: str) -> Any:
        for choice in self.choices:
            if text == str(choice):
                return choice
        raise ValueError(f"Answer one of: {', '.join(str(choice) for choice in self.choices)}.")


def question_of(interrupt: Interrupt) -> str:
    """What is asked, in words; of a question without words, what came with it."""
    return interrupt.message or (compact(interrupt.metadata) if interrupt.metadata else interrupt.reason)


def answer_to(interrupt: Interrupt, read: Callable[[Field], Any]) -> Any:
    """The payload that answers an interrupt, made of what `read` gives for each of its fields."""
    schema = interrupt.response_schema or (_APPROVAL if interrupt.reason in _APPROVALS else {})
    return _answer(_WHOLE, schema, True, read)


def _answer(name: str, schema: dict[str, Any], required: bool, read: Callable[[Field], Any]) -> Any:
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    if not properties:
        return read(Field(name, _kind(schema), required, tuple(schema.get("enum") or ())))
    needed = cast("list[str]", schema.get("required") or [])
    answers = {inner: _answer(inner, shape, inner in needed, read) for inner, shape in properties.items()}
    given = {inner: value for inner, value in answers.items() if value is not None}
    return given if given or required else None


def _kind(schema: dict[str, Any]) -> str:
    """The type to read; words, where they are one of several types or nothing is said."""
    kind = schema.get("type", "string")
    if not isinstance(kind, list):
        return str(kind)
    kinds = cast("list[str]", kind)
    return "string" if "string" in kinds else next((one for one in kinds if one != "null"), "string")


def _yes_or_no(text: str) -> bool:
    if text.lower() in _YES | _NO:
        return text.lower() in _YES
    raise ValueError("Answer y or n.")


def _json(kind: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"That is not JSON for the type {kind}.") from error
    if not isinstance(value, _KINDS.get(kind, object)):
        raise ValueError(f"That is not JSON for the type {kind}.")  # noqa: TRY004
    return value
