"""Elicitations: forms and URLs with which an agent asks a person for input, and their answers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.interrupts import check_members
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ELICITATION_CANCELLED", "answer_elicitation", "check_form", "form_schema"]

ELICITATION_CANCELLED: dict[str, Any] = {"action": "cancel"}
"""The response to an elicitation that nobody answers."""

_EXPECTED = 'Send an object with the fields of the form. To decline, send {"declined": true}.'
_FIELD_TYPES: dict[str, type | tuple[type, ...]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "string": str,
}
"""Types of the fields that a form can have. A field of another type is for the agent to check."""


def form_schema(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the answer to an elicitation."""
    schema = as_object(params.get("requestedSchema"))
    return dict(schema) if schema else {"type": "object", "properties": {}}


def check_form(schema: Mapping[str, Any], payload: Any) -> None:
    """Return if the answer fills in the form or declines it. Raises: InvalidInput."""
    fields = as_object(schema.get("properties"))
    own = {name: bool for name in ("approved", "declined") if name not in fields}
    required = [str(name) for name in cast("list[Any]", schema.get("required") or [])]
    expected = f"The form needs {', '.join(required)}. {_EXPECTED}" if required else _EXPECTED
    answer = check_members(payload, expected, **own)
    if _is_declined(answer, fields):
        return
    if not answer.keys() >= set(required):
        raise InvalidInput(f"The answer is not complete. {expected}")
    wrong = [name for name, field in fields.items() if name in answer and not _has_type(answer[name], as_object(field))]
    if wrong:
        raise InvalidInput(f"The answer has values of another type than the form for {', '.join(wrong)}.")


def answer_elicitation(params: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    """Return the response to an elicitation: what the form asks for, nothing else. A URL has no content."""
    fields = as_object(as_object(params.get("requestedSchema")).get("properties"))
    answer = as_object(payload)
    if not isinstance(payload, dict) or _is_declined(answer, fields):
        return {"action": "decline"}
    if "requestedSchema" not in params:
        return {"action": "accept"}
    content = {name: value for name, value in answer.items() if name in fields and value is not None}
    return {"action": "accept", "content": content}


def _is_declined(answer: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Return True for `{"declined": true}` or `{"approved": false}`, unless the form itself has that field."""
    is_declined = answer.get("declined") is True and "declined" not in fields
    return is_declined or (answer.get("approved") is False and "approved" not in fields)


def _has_type(value: Any, field: Mapping[str, Any]) -> bool:
    """Return True if the value has the type of the field, in JSON, where true is not a number."""
    name = field.get("type")
    kind = _FIELD_TYPES.get(name) if isinstance(name, str) else None
    return kind is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool)))
