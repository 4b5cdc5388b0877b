"""Conversion of plain messages to `ag_ui.core` models without validation: texts, tool calls and their results. Nearly all messages of a
long thread are such, and their Structs are validated already. A run converts every message of its thread, so validating them again would
delay it.

Every call returns new models: an adapter may change those it gets. `agui_models.py` converts all other messages.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import ag_ui.core as ag
import pydantic

from ambient_runner.protocol.events import AssistantMessage, ReasoningMessage, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ambient_runner.protocol.events import Message, ToolCall

__all__ = ["convert_plain_messages"]


class _Kind(NamedTuple):
    """A kind of messages, or of their tool calls, that is converted here."""

    model: type[pydantic.BaseModel]
    fields: dict[str, Any]
    """The fields of a model that pydantic has validated, with all defaults."""
    optional: Sequence[str]
    """Texts that few of them have."""
    read_optional: Callable[[Any], tuple[str | None, ...]]
    absent: tuple[None, ...]
    """What `read_optional` returns for most of them."""


def convert_plain_messages(messages: Iterable[Message]) -> list[Any]:
    """Return the model of each plain message, and None in place of any other.

    A plain message has a text, tool calls or the result of one, and otherwise only texts: no parts, no metadata and no activity.
    """
    converted: list[Any] = []
    # One loop without calls for texts: the attributes are set as pydantic sets them, with the fields of a model that it has validated.
    for message in messages:
        kind = _TEXTS.get(type(message))
        if kind is None:
            converted.append(_convert_tool_result(message) if type(message) is ToolMessage else None)
            continue
        if type(message) is AssistantMessage and message.tool_calls is not None:
            converted.append(_convert_tool_calls(message, message.tool_calls))
            continue
        content = message.content
        if type(content) is not str or message.metadata is not None:
            converted.append(None)
            continue
        fields, fields_set = kind.fields.copy(), {"id", "role", "content"}
        fields["id"], fields["content"] = message.id, content
        if kind.read_optional(message) != kind.absent:
            _add_optional(kind, message, fields, fields_set)
        model = _new(kind.model)
        _set_fields(model, fields)
        _set_fields_set(model, fields_set)
        _set_extra(model, {})
        _set_private(model, None)
        converted.append(model)
    return converted


def _convert_tool_result(message: ToolMessage) -> Any:
    """Return the model of a tool's result, or None."""
    if type(message.content) is not str or message.metadata is not None:
        return None
    fields, fields_set = _RESULT.fields.copy(), {"id", "role", "content", "tool_call_id"}
    fields["id"], fields["content"], fields["tool_call_id"] = message.id, message.content, message.tool_call_id
    _add_optional(_RESULT, message, fields, fields_set)
    return _make_model(_RESULT.model, fields, fields_set)


def _convert_tool_calls(message: AssistantMessage, calls: Sequence[ToolCall]) -> Any:
    """Return the model of a message with tool calls, or None."""
    if not calls or message.metadata is not None:
        return None
    converted: list[Any] = []
    for call in calls:
        if call.metadata is not None:
            return None
        named = {"name": call.function.name, "arguments": call.function.arguments}
        fields, fields_set = _CALL.fields.copy(), {"id", "type", "function"}
        fields["id"], fields["function"] = call.id, _make_model(ag.FunctionCall, named, {"name", "arguments"})
        _add_optional(_CALL, call, fields, fields_set)
        converted.append(_make_model(_CALL.model, fields, fields_set))
    fields, fields_set = _ASSISTANT.fields.copy(), {"id", "role", "tool_calls"}
    fields["id"], fields["content"], fields["tool_calls"] = message.id, message.content, converted
    if message.content is not None:
        fields_set.add("content")
    _add_optional(_ASSISTANT, message, fields, fields_set)
    return _make_model(_ASSISTANT.model, fields, fields_set)


def _add_optional(kind: _Kind, source: Message | ToolCall, fields: dict[str, Any], fields_set: set[str]) -> None:
    """Add the texts that few messages have."""
    for name, value in zip(kind.optional, kind.read_optional(source), strict=True):
        if value is not None:
            fields[name] = value
            fields_set.add(name)


def _make_model(kind: type[pydantic.BaseModel], fields: dict[str, Any], fields_set: set[str]) -> Any:
    model = _new(kind)
    _set_fields(model, fields)
    _set_fields_set(model, fields_set)
    _set_extra(model, {})
    _set_private(model, None)
    return model


def _define_kind(model: type[pydantic.BaseModel], *optional: str, **members: Any) -> _Kind:
    """Return a kind whose models have these members, and perhaps the optional ones."""
    optional = ("encrypted_value", *optional)
    sample = model.model_validate({"id": "", **members})
    return _Kind(model, dict(vars(sample)), optional, _read_texts(*optional), (None,) * len(optional))


def _read_texts(first: str, *others: str) -> Callable[[Any], tuple[str | None, ...]]:
    """Return a function that reads these attributes, always as a tuple."""
    if others:
        return attrgetter(first, *others)
    read_one: Callable[[Any], str | None] = attrgetter(first)
    return lambda source: (read_one(source),)


_ASSISTANT = _define_kind(ag.AssistantMessage, "subagent_run_id", "name", role="assistant", content="")
_RESULT = _define_kind(ag.ToolMessage, "subagent_run_id", "error", role="tool", content="", toolCallId="")
_CALL = _define_kind(ag.ToolCall, type="function", function={"name": "", "arguments": ""})
_TEXTS: dict[type[Any], _Kind] = {
    UserMessage: _define_kind(ag.UserMessage, "subagent_run_id", "name", role="user", content=""),
    AssistantMessage: _ASSISTANT,
    ReasoningMessage: _define_kind(ag.ReasoningMessage, "subagent_run_id", role="reasoning", content=""),
}
_new = object.__new__
_attributes: dict[str, Any] = dict(vars(pydantic.BaseModel))
_set_fields, _set_fields_set, _set_extra, _set_private = (
    _attributes[f"__{name}__"].__set__ for name in ("dict", "pydantic_fields_set", "pydantic_extra", "pydantic_private")
)
