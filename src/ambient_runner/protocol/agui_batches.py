"""Validation of many messages as `ag_ui.core` models, in batches: no other thread runs while pydantic validates.

A batch takes about a millisecond. `agui_models.py` validates everything else of an input at once.
"""

from __future__ import annotations

from functools import cache
from types import GenericAlias
from typing import TYPE_CHECKING, Any, cast

import ag_ui.core as ag
import msgspec
import pydantic

from ambient_runner.protocol.events import AssistantMessage, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.protocol.events import Message

__all__ = ["MAX_BATCH", "count_models", "validate_messages"]

MAX_BATCH = 250
"""Messages, parts and tool calls that are validated in one call."""


def count_models(messages: Sequence[Message]) -> int:
    """Return the number of messages, parts and tool calls."""
    return len(messages) + sum(len(_parts_of(message)) for message in messages)


def validate_messages(messages: Sequence[Message]) -> list[Any]:
    """Return the models that pydantic makes of these messages."""
    models: list[Any] = []
    batch: list[Message] = []
    count = 0
    for message in messages:
        weight = 1 + len(_parts_of(message))
        if batch and count + weight > MAX_BATCH:
            models += _validate(ag.Message, batch)
            batch, count = [], 0
        if weight > MAX_BATCH:
            models.append(_validate_wide(message))
        else:
            batch.append(message)
            count += weight
    return models + _validate(ag.Message, batch)


def _validate_wide(message: Message) -> Any:
    """Return the model of a message with many parts or tool calls: they are validated in batches, and it without them."""
    name, kind = ("tool_calls", ag.ToolCall) if isinstance(message, AssistantMessage) else ("content", ag.ContentPart)
    parts = _parts_of(message)
    (model,) = _validate(ag.Message, [msgspec.structs.replace(message, **{name: []})])
    batches = (parts[at : at + MAX_BATCH] for at in range(0, len(parts), MAX_BATCH))
    setattr(model, name, [part for each in batches for part in _validate(kind, each)])
    return model


def _validate(kind: Any, values: Sequence[Any]) -> list[Any]:
    return _validator_of(kind).validate_python(msgspec.to_builtins(values))


@cache
def _validator_of(kind: Any) -> pydantic.TypeAdapter[list[Any]]:
    """Return the validator of a list. It is built when it is first needed: all of them take 10 ms."""
    return pydantic.TypeAdapter(cast("type[list[Any]]", GenericAlias(list, (kind,))))


def _parts_of(message: Message) -> Sequence[Any]:
    """Return the parts or the tool calls of a message; nothing if it has none."""
    if isinstance(message, AssistantMessage):
        return message.tool_calls or ()
    if isinstance(message, UserMessage | ToolMessage) and not isinstance(message.content, str):
        return message.content
    return ()
