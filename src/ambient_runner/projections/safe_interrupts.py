"""Interrupts for the audience `safe`: as they were asked, but arguments of tools only where they are shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ambient_runner.projections.json_values import parse_or_text
from ambient_runner.projections.known_calls import UNKNOWN_CALL
from ambient_runner.projections.summaries import summarize_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.projections.exposure import ExposureRules
    from ambient_runner.projections.known_calls import FindCall
    from ambient_runner.protocol.events import Interrupt

__all__ = ["HIDDEN_TEXT", "safe_interrupt"]

_ARGUMENT_KEYS = ("args", "arguments", "input", "kwargs", "parameters", "toolArguments", "tool_input", "toolInput")
_NAME_KEYS = ("name", "action", "tool", "toolName", "tool_name")
_MIN_QUOTED_LENGTH = 4
"""Characters of an argument from which on a text that contains it is taken to quote it."""
_SCHEMA_TEXTS = frozenset({"default", "description", "example", "examples", "title"})
HIDDEN_TEXT = "The arguments of this call are not shown to you."


def safe_interrupt(interrupt: Interrupt, rules: ExposureRules, find_call: FindCall) -> Interrupt:
    """Return the interrupt with arguments that are not shown as summaries, also where its texts quote them."""
    quoted = set(_hidden_arguments(interrupt.tool_call_id, rules, find_call))
    metadata = _hide_arguments(interrupt.metadata, rules, quoted)
    if not quoted:
        return replace(interrupt, metadata=metadata)
    return replace(
        interrupt,
        message=_hide_quotes(interrupt.message, quoted),
        metadata=_hide_quotes(metadata, quoted),
        response_schema=_hide_quotes_in_schema(interrupt.response_schema, quoted),
    )


def _hidden_arguments(call_id: str | None, rules: ExposureRules, find_call: FindCall) -> Iterable[str]:
    """Return the texts in the arguments of the call that an interrupt is about, if they are not shown."""
    call = find_call(call_id) if call_id else UNKNOWN_CALL
    return () if rules.shows_arguments(call.name, is_client=call.is_client) else _texts_in(call.arguments)


def _hide_arguments(value: Any, rules: ExposureRules, quoted: set[str]) -> Any:
    """Return the value with summaries in place of arguments; add the texts of those arguments to `quoted`."""
    if isinstance(value, list):
        return [_hide_arguments(item, rules, quoted) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, Any]", value)
    name = next((members[key] for key in _NAME_KEYS if isinstance(members.get(key), str)), "")
    hides = not rules.shows_arguments(name)
    shown: dict[str, Any] = {}
    for key, item in members.items():
        if hides and key in _ARGUMENT_KEYS and item is not None:
            quoted.update(_texts_in(item))
            shown[key] = summarize_value(item, "tool_arguments")
        else:
            shown[key] = _hide_arguments(item, rules, quoted)
    return shown


def _hide_quotes(value: Any, quoted: set[str]) -> Any:
    match value:
        case str() if any(text in value for text in quoted):
            return HIDDEN_TEXT
        case list():
            return [_hide_quotes(item, quoted) for item in cast("list[Any]", value)]
        case dict():
            return {key: _hide_quotes(item, quoted) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _hide_quotes_in_schema(schema: Any, quoted: set[str]) -> Any:
    """Return a JSON Schema with quotes hidden in its texts for people. Other members decide which answers are valid."""
    match schema:
        case list():
            return [_hide_quotes_in_schema(item, quoted) for item in cast("list[Any]", schema)]
        case dict():
            return {
                key: (_hide_quotes if key in _SCHEMA_TEXTS else _hide_quotes_in_schema)(item, quoted)
                for key, item in cast("dict[str, Any]", schema).items()
            }
        case _:
            return schema


def _texts_in(value: Any) -> Iterable[str]:
    """Yield the texts in a value, in each form in which another text may quote them. Text that is JSON also has those of its value."""
    match value:
        case str() if len(value) >= _MIN_QUOTED_LENGTH:
            yield from (value, repr(value)[1:-1], json.dumps(value)[1:-1])
            parsed = parse_or_text(value)
            if isinstance(parsed, dict | list):
                yield from _texts_in(parsed)
        case int() | float() if not isinstance(value, bool) and len(str(value)) >= _MIN_QUOTED_LENGTH:
            yield str(value)
        case list():
            for item in cast("list[Any]", value):
                yield from _texts_in(item)
        case dict():
            for item in cast("dict[str, Any]", value).values():
                yield from _texts_in(item)
        case _:
            return
