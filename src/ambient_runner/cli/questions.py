"""An interrupt as questions a person can answer in a terminal: its JSON Schema's fields, one line each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ambient_runner.protocol.events import Interrupt

_YES = {"y", "yes", "true", "1"}
_NO = {"n", "no", "false", "0"}


@dataclass(frozen=True, slots=True)
class Field:
    """One thing to ask for. `kind` is its JSON Schema type; a field that is not required may be left empty."""

    name: str
    kind: str
    required: bool

    @property
    def prompt(self) -> str:
        hint = "y/n" if self.kind == "boolean" else self.kind
        return f"{self.name} [{hint}{'' if self.required else ', may be empty'}]"

    def read(self, line: str) -> Any:
        """The answer this line gives; None when it is left empty and may be. Raises: ValueError when it is not one."""
        text = line.strip()
        if not text:
            return self._left_empty()
        if self.kind == "boolean":
            return _yes_or_no(text)
        return text if self.kind == "string" else _json(self.kind, text)

    def _left_empty(self) -> None:
        if self.required:
            raise ValueError(f"{self.name} is needed.")


def fields(interrupt: Interrupt) -> list[Field]:
    """What to ask. Without a schema, or with one that is no object, it is a yes or no called `approved`."""
    schema = interrupt.response_schema or {}
    properties = cast("dict[str, dict[str, Any]]", schema.get("properties") or {})
    required = cast("list[str]", schema.get("required") or [])
    if not properties:
        return [Field("approved", "boolean", True)]
    return [Field(name, str(shape.get("type", "string")), name in required) for name, shape in properties.items()]


def _yes_or_no(text: str) -> bool:
    if text.lower() in _YES | _NO:
        return text.lower() in _YES
    raise ValueError("Answer y or n.")


def _json(kind: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"That is not JSON for the type {kind}.") from error
