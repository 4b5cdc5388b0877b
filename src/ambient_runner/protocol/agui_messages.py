"""Conversion of plain messages to `ag_ui.core` models without validation: texts, tool calls and their results. Nearly all messages of a
long thread are such, and their Structs are validated already. A run converts every message of its thread, so validating them again would
delay it.

Every call returns new models: an adapter may change those it gets. `agui_models.py` converts all other messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ag_ui.core as ag
import pydantic

from ambient_runner.protocol.events import AssistantMessage, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ambient_runner.protocol.events import Message, ToolCall

__all__ = ["convert_plain_messages"]


def convert_plain_messages(messages: Iterable[Message]) -> list[Any]:
    """Return the model of each plain message, and None in place of any other.

    A plain message is a user's, an assistant's or a tool's, with an id, a text or tool calls, and nothing else: no parts, name, metadata,
    error or encrypted value.
    """
    copied: list[Any] = []
    # One loop without calls for texts: the attributes are set as pydantic sets them, with the fields of a model that it has validated.
    for message in messages:
        if type(message) is UserMessage:
            model_type, defaults = ag.UserMessage, _USER_FIELDS
        elif type(message) is AssistantMessage:
            if message.tool_calls is not None:
                copied.append(_convert_tool_calls(message, message.tool_calls))
                continue
            model_type, defaults = ag.AssistantMessage, _ASSISTANT_FIELDS
        else:
            copied.append(_convert_tool_result(message) if type(message) is ToolMessage else None)
            continue
        content = message.content
        if (
            type(content) is not str
            or message.metadata is not None
            or message.name is not None
            or message.encrypted_value is not None
            or message.subagent_run_id is not None
        ):
            copied.append(None)
            continue
        fields = defaults.copy()
        fields["id"], fields["content"] = message.id, content
        model = _new(model_type)
        _set_fields(model, fields)
        _set_fields_set(model, {"id", "role", "content"})
        _set_extra(model, {})
        _set_private(model, None)
        copied.append(model)
    return copied


def _convert_tool_result(message: ToolMessage) -> Any:
    """Return the model of a tool's result, or None."""
    if type(message.content) is not str or message.error is not None or _has_optional_fields(message):
        return None
    fields = _RESULT_FIELDS.copy()
    fields["id"], fields["content"], fields["tool_call_id"] = message.id, message.content, message.tool_call_id
    return _make_model(ag.ToolMessage, fields, {"id", "role", "content", "tool_call_id"})


def _convert_tool_calls(message: AssistantMessage, calls: Sequence[ToolCall]) -> Any:
    """Return the model of a message with tool calls, or None."""
    if not calls or message.name is not None or _has_optional_fields(message):
        return None
    copied: list[Any] = []
    for call in calls:
        if call.encrypted_value is not None or call.metadata is not None:
            return None
        named = {"name": call.function.name, "arguments": call.function.arguments}
        fields = _CALL_FIELDS.copy()
        fields["id"], fields["function"] = call.id, _make_model(ag.FunctionCall, named, {"name", "arguments"})
        copied.append(_make_model(ag.ToolCall, fields, {"id", "type", "function"}))
    fields = _ASSISTANT_FIELDS.copy()
    fields["id"], fields["content"], fields["tool_calls"] = message.id, message.content, copied
    text = () if message.content is None else ("content",)
    return _make_model(ag.AssistantMessage, fields, {"id", "role", "tool_calls", *text})


def _has_optional_fields(message: AssistantMessage | ToolMessage) -> bool:
    """Return True if a message has metadata, an encrypted value or a subagent."""
    return message.metadata is not None or message.encrypted_value is not None or message.subagent_run_id is not None


def _make_model(kind: type[pydantic.BaseModel], fields: dict[str, Any], fields_set: set[str]) -> Any:
    model = _new(kind)
    _set_fields(model, fields)
    _set_fields_set(model, fields_set)
    _set_extra(model, {})
    _set_private(model, None)
    return model


def _validate_sample(kind: type[pydantic.BaseModel], **members: Any) -> dict[str, Any]:
    """Return the fields of a model with these members; all others have their defaults."""
    return dict(vars(kind.model_validate({"id": "", **members})))


_USER_FIELDS = _validate_sample(ag.UserMessage, role="user", content="")
_ASSISTANT_FIELDS = _validate_sample(ag.AssistantMessage, role="assistant", content="")
_RESULT_FIELDS = _validate_sample(ag.ToolMessage, role="tool", content="", toolCallId="")
_CALL_FIELDS = _validate_sample(ag.ToolCall, type="function", function={"name": "", "arguments": ""})
_new = object.__new__
_attributes: dict[str, Any] = dict(vars(pydantic.BaseModel))
_set_fields, _set_fields_set, _set_extra, _set_private = (
    _attributes[f"__{name}__"].__set__ for name in ("dict", "pydantic_fields_set", "pydantic_extra", "pydantic_private")
)
