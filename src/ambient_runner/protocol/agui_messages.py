"""Conversion of text messages to `ag_ui.core` models without validation: nearly all messages of a long thread are such, and their Structs
are validated already. A run converts every message of its thread, so validating them again would delay it.

Every call returns new models: an adapter may change those it gets. `agui_models.py` converts all other messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ag_ui.core as ag
import pydantic

from ambient_runner.protocol.events import AssistantMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ambient_runner.protocol.events import Message

__all__ = ["copy_text_messages"]


def copy_text_messages(messages: Iterable[Message]) -> list[Any]:
    """Return the model of each message of a user or assistant that has an id and a text only; None in place of any other."""
    copied: list[Any] = []
    # One loop without calls: the attributes are set as pydantic sets them, with the fields of a model that it has validated.
    for message in messages:
        if type(message) is UserMessage:
            model_type, defaults = ag.UserMessage, _USER_FIELDS
        elif type(message) is AssistantMessage and message.tool_calls is None:
            model_type, defaults = ag.AssistantMessage, _ASSISTANT_FIELDS
        else:
            copied.append(None)
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


def _validate_sample(kind: type[pydantic.BaseModel], role: str) -> dict[str, Any]:
    """Return the fields of a model with an id and a text; all others are None."""
    return dict(vars(kind.model_validate({"id": "", "role": role, "content": ""})))


_USER_FIELDS = _validate_sample(ag.UserMessage, "user")
_ASSISTANT_FIELDS = _validate_sample(ag.AssistantMessage, "assistant")
_new = object.__new__
_attributes: dict[str, Any] = dict(vars(pydantic.BaseModel))
_set_fields, _set_fields_set, _set_extra, _set_private = (
    _attributes[f"__{name}__"].__set__ for name in ("dict", "pydantic_fields_set", "pydantic_extra", "pydantic_private")
)
