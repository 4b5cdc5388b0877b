"""Response schemas of interrupts for the audience `safe`: they still tell which answers fit, without values that are hidden. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.projections.summaries import json_type

if TYPE_CHECKING:
    from ambient_runner.projections.safe_arguments import HiddenValues

__all__ = ["is_structural", "safe_schema"]

_TEXTS = frozenset({"default", "description", "example", "examples", "title"})
"""Members for people and forms. They decide nothing, so a text takes the place of a quote."""
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_STRUCTURE = frozenset({"type", "format", "$ref", "$schema"})
_STRUCTURAL_WORDS = frozenset(
    {
        *("accept", "accepted", "allow", "answer", "answers", "approve", "approved", "cancel", "comment", "confirm"),
        *("confirmed", "decision", "decisions", "deny", "edit", "feedback", "ignore", "reject", "respond", "response"),
        *("yes", "no", "status", "type", "value", "message", "reason", "name", "tool", "action", "description"),
        *("question", "questions", "options", "header", "label", "config", "toolcalls", "action_requests"),
        *("review_configs", "allowed_decisions", "args", "arguments", "input", "kwargs", "parameters", "edited_action"),
        *("editedargs", "edited_args"),
    }
)
"""Names and values with which agents ask and people decide. They are kept, also if an argument is the same word."""


def safe_schema(schema: Any, hidden: HiddenValues, replacement: str) -> Any:
    """Return a JSON Schema without hidden values; texts for people that quote one are replaced.

    A `const`, and an `enum` of nothing else, becomes the type of its values. Members named by a hidden value are left out.
    """
    if isinstance(schema, list):
        return [safe_schema(item, hidden, replacement) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    shown: dict[str, Any] = {}
    for key, item in cast("dict[str, Any]", schema).items():
        match key, item:
            case "const", _:
                shown |= {key: item} if _is_shown(item, hidden) else _types_of([item])
            case "enum", list():
                listed = cast("list[Any]", item)
                kept = [value for value in listed if _is_shown(value, hidden)]
                shown |= {key: kept} if kept or not listed else _types_of(listed)
            case "required", list():
                shown[key] = [name for name in cast("list[Any]", item) if _is_shown_name(name, hidden)]
            case _, dict() if key in _NAMED_SCHEMAS:
                named = cast("dict[str, Any]", item).items()
                shown[key] = {
                    name: safe_schema(value, hidden, replacement)
                    for name, value in named
                    if _is_shown_name(name, hidden)
                }
            case _ if key in _TEXTS:
                shown[key] = _replace_quotes(item, hidden, replacement)
            case _, dict() | list():
                shown[key] = safe_schema(item, hidden, replacement)
            case _ if key in _STRUCTURE or not hidden.are_quoted_in(item):
                shown[key] = item
            case _:
                pass
    return shown


def is_structural(value: Any) -> bool:
    """Return True for a word that belongs to the form of a question, not to its content."""
    return isinstance(value, str) and value.casefold() in _STRUCTURAL_WORDS


def _is_shown(value: Any, hidden: HiddenValues) -> bool:
    return is_structural(value) or not hidden.are_quoted_in(value)


def _is_shown_name(name: Any, hidden: HiddenValues) -> bool:
    return not isinstance(name, str) or is_structural(name) or not hidden.are_words_of(name)


def _types_of(values: list[Any]) -> dict[str, Any]:
    types = sorted({json_type(value) for value in values})
    return {"type": types[0] if len(types) == 1 else types}


def _replace_quotes(value: Any, hidden: HiddenValues, replacement: str) -> Any:
    match value:
        case list():
            return [_replace_quotes(item, hidden, replacement) for item in cast("list[Any]", value)]
        case dict():
            members = cast("dict[str, Any]", value).items()
            return {
                key: _replace_quotes(item, hidden, replacement) for key, item in members if _is_shown_name(key, hidden)
            }
        case _:
            return replacement if hidden.are_quoted_in(value) else value
