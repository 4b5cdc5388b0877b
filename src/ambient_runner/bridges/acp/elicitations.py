"""Elicitations: forms and URLs with which an agent asks a person for input, and their answers. Pure. `form_values.py` checks the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.acp.form_values import is_allowed_value, normalize_form
from ambient_runner.bridges.toolkit.interrupts import approval_schema, check_members, join_names, read_answer
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ELICITATION_CANCELLED",
    "ELICITATION_DECLINED",
    "answer_elicitation",
    "answer_schema",
    "check_elicitation_answer",
    "is_web_url",
    "normalize_elicitation",
]

ELICITATION_CANCELLED: dict[str, Any] = {"action": "cancel"}
"""The response to an elicitation that nobody answers."""
ELICITATION_DECLINED: dict[str, Any] = {"action": "decline"}

_EXPECTED = 'Send an object with the fields of the form. To decline, send {"declined": true}.'
_EXPECTED_AT_URL = 'Send {"approved": true} once it is done at the URL. To decline, send {"declined": true}.'
_WEB_SCHEMES = ("https://", "http://")


def normalize_elicitation(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an elicitation with either a `url` or a `requestedSchema`, of which nothing is malformed."""
    others = {name: value for name, value in params.items() if name not in ("url", "requestedSchema")}
    if params.get("mode") == "url" or ("url" in params and "requestedSchema" not in params):
        url = params.get("url")
        return {**others, "url": url if isinstance(url, str) else ""}
    return {**others, "requestedSchema": normalize_form(params.get("requestedSchema"))}


def is_web_url(url: str) -> bool:
    """Return True for a URL that a browser may be given: others, such as `javascript:`, run code or open programs."""
    return url.lower().startswith(_WEB_SCHEMES) and url.isprintable() and " " not in url


def answer_schema(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the answer to an elicitation."""
    return approval_schema() if "url" in params else dict(params["requestedSchema"])


def check_elicitation_answer(schema: Mapping[str, Any], payload: Any, *, is_at_url: bool) -> None:
    """Return if the answer fills in the form, says that it is done at the URL, or declines. Raises: InvalidInput."""
    if is_at_url:
        answer = check_members(read_answer(payload), _EXPECTED_AT_URL, approved=bool, declined=bool, message=str)
        if "approved" not in answer and answer.get("declined") is not True:
            raise InvalidInput(f"The answer says neither yes nor no. {_EXPECTED_AT_URL}")
        return
    _check_form(schema, payload)


def _check_form(schema: Mapping[str, Any], payload: Any) -> None:
    fields = as_object(schema.get("properties"))
    own = {name: bool for name in ("approved", "declined") if name not in fields}
    required = cast("list[str]", schema.get("required", []))
    expected = f"The form needs {join_names(required)}. {_EXPECTED}" if required else _EXPECTED
    answer = check_members(read_answer(payload), expected, **own)
    if _is_declined(answer, fields):
        return
    if not answer.keys() >= set(required):
        raise InvalidInput(f"The answer is not complete. {expected}")
    wrong = [name for name, field in fields.items() if name in answer and not is_allowed_value(answer[name], field)]
    if wrong:
        raise InvalidInput(f"The answer has values that the form does not allow for {join_names(wrong)}.")


def answer_elicitation(params: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    """Return the response to an elicitation: what the form asks for, nothing else. A URL has no content."""
    answer = as_object(read_answer(payload))
    if "url" in params:
        is_done = answer.get("approved") is True and answer.get("declined") is not True
        return {"action": "accept"} if is_done else ELICITATION_DECLINED
    fields = as_object(params["requestedSchema"]["properties"])
    if not isinstance(read_answer(payload), dict) or _is_declined(answer, fields):
        return ELICITATION_DECLINED
    content = {name: value for name, value in answer.items() if name in fields and value is not None}
    return {"action": "accept", "content": content}


def _is_declined(answer: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Return True for `{"declined": true}` or `{"approved": false}`, unless the form itself has that field."""
    is_declined = answer.get("declined") is True and "declined" not in fields
    return is_declined or (answer.get("approved") is False and "approved" not in fields)
