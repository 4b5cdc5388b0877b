"""Interrupts for the audience `safe`: as they were asked, but arguments of tools only where they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ambient_runner.projections.known_calls import UNKNOWN_CALL
from ambient_runner.projections.safe_arguments import HiddenValues
from ambient_runner.projections.safe_schemas import is_structural, safe_schema
from ambient_runner.projections.summaries import summarize_value

if TYPE_CHECKING:
    from ambient_runner.projections.exposure import ExposureRules
    from ambient_runner.projections.known_calls import FindCall
    from ambient_runner.protocol.events import Interrupt

__all__ = ["HIDDEN_TEXT", "safe_interrupt"]

_ARGUMENT_KEYS = ("args", "arguments", "input", "kwargs", "parameters", "toolArguments", "tool_input", "toolInput")
_NAME_KEYS = ("name", "action", "tool", "toolName", "tool_name")
_KEPT_MEMBERS = frozenset({"argumentsDigest", *_ARGUMENT_KEYS})
"""Members that quote nothing: under the names of arguments are summaries, or the arguments of a tool that is shown."""
_REASONS = frozenset({"tool_call", "confirmation", "input_required", "credential"})
"""Reasons of our bridges. They are kept, whatever the arguments are."""
HIDDEN_TEXT = "The arguments of this call are not shown to you."


def safe_interrupt(interrupt: Interrupt, rules: ExposureRules, find_call: FindCall) -> Interrupt:
    """Return the interrupt with arguments that are not shown as summaries, also where it quotes them.

    Its id stays: a client answers with it.
    """
    hidden = _hidden_arguments(interrupt.tool_call_id, rules, find_call)
    metadata = _hide_arguments(interrupt.metadata, rules, hidden)
    if not hidden:
        return replace(interrupt, metadata=metadata)
    is_reason_kept = interrupt.reason in _REASONS or not hidden.are_quoted_in(interrupt.reason)
    return replace(
        interrupt,
        reason=interrupt.reason if is_reason_kept else "tool_call",
        message=_hide_quotes(interrupt.message, hidden),
        metadata=_hide_option_names(_hide_quotes(metadata, hidden)),
        response_schema=safe_schema(interrupt.response_schema, hidden, HIDDEN_TEXT),
    )


def _hide_option_names(metadata: Any) -> Any:
    """Return the metadata without the names of an agent's options, which may quote a part of a command. Ids and kinds stay."""
    members = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
    options: Any = members.get("options")
    if not isinstance(options, list):
        return cast("Any", metadata)
    return {**members, "options": [_without_name(option) for option in cast("list[Any]", options)]}


def _without_name(option: Any) -> Any:
    if not isinstance(option, dict):
        return option
    return {key: item for key, item in cast("dict[str, Any]", option).items() if key != "name"}


def _hidden_arguments(call_id: str | None, rules: ExposureRules, find_call: FindCall) -> HiddenValues:
    """Return the values in the arguments of the call that an interrupt is about, if they are not shown."""
    hidden = HiddenValues()
    call = find_call(call_id) if call_id else UNKNOWN_CALL
    if not rules.shows_arguments(call.name, is_client=call.is_client):
        hidden.add(call.arguments)
    return hidden


def _hide_arguments(value: Any, rules: ExposureRules, hidden: HiddenValues) -> Any:
    """Return the value with summaries in place of arguments; add the values of those arguments to `hidden`."""
    if isinstance(value, list):
        return [_hide_arguments(item, rules, hidden) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, Any]", value)
    name = next((members[key] for key in _NAME_KEYS if isinstance(members.get(key), str)), "")
    hides = not rules.shows_arguments(name)
    shown: dict[str, Any] = {}
    for key, item in members.items():
        if hides and key in _ARGUMENT_KEYS and item is not None:
            hidden.add(item)
            shown[key] = summarize_value(item, "tool_arguments")
        else:
            shown[key] = _hide_arguments(item, rules, hidden)
    return shown


def _hide_quotes(value: Any, hidden: HiddenValues) -> Any:
    match value:
        case list():
            return [_hide_quotes(item, hidden) for item in cast("list[Any]", value)]
        case dict():
            return {
                key: item if key in _KEPT_MEMBERS else _hide_quotes(item, hidden)
                for key, item in cast("dict[str, Any]", value).items()
                if is_structural(key) or not hidden.are_words_of(key)
            }
        case _:
            return value if is_structural(value) or not hidden.are_quoted_in(value) else HIDDEN_TEXT
