"""Conventions of the packages `copilotkit` and `ag_ui_langgraph`: metadata of model calls, and dispatched events with an effect. Pure.

Graphs written for them use `copilotkit_customize_config`, `copilotkit_emit_message`, `copilotkit_emit_state`, `copilotkit_emit_tool_call`
and `copilotkit_exit`, or dispatch the events themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.composer import random_id
from ambient_runner.bridges.toolkit.json_values import as_object, to_jsonable_or_type_name, to_text_or_json

if TYPE_CHECKING:
    from ambient_runner.bridges.langgraph.instrumentation import DispatchedEvent

__all__ = [
    "EmittedMessage",
    "EmittedState",
    "EmittedToolCall",
    "ExitRequest",
    "emit_flags",
    "intermediate_mappings",
    "parse_emitted",
    "shown_tools",
    "shows_text",
]

_MESSAGE_FLAGS = ("emit-messages", "emit_messages", "copilotkit:emit-messages")
_TOOL_CALL_FLAGS = ("emit-tool-calls", "emit_tool_calls", "copilotkit:emit-tool-calls")
_INTERMEDIATE_STATE = "copilotkit:emit-intermediate-state"
_WHOLE_ARGUMENTS = ""
"""The `tool_argument` of a mapping of all arguments to one key."""


@dataclass(frozen=True, slots=True)
class EmittedMessage:
    """A message that a node sends before it ends."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class EmittedToolCall:
    """A tool call that a node sends by itself. `arguments` is JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class EmittedState:
    """State that a node shows before it ends."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExitRequest:
    """A request to the client to leave the agent after this run."""


Emitted = EmittedMessage | EmittedToolCall | EmittedState | ExitRequest


def parse_emitted(event: DispatchedEvent) -> Emitted | None:
    """Return the effect of a dispatched event; None if it has none and is only a CUSTOM event."""
    match event.name, event.data:
        case "manually_emit_message" | "copilotkit_manually_emit_message", {"message": str(text), **more} if text:
            return EmittedMessage(_text_or_new(more.get("message_id"), "message"), text)
        case "manually_emit_tool_call" | "copilotkit_manually_emit_tool_call", {"name": str(name), **more} if name:
            arguments: Any = more.get("args") or {}
            return EmittedToolCall(_text_or_new(more.get("id"), "call"), name, to_text_or_json(arguments))
        case "manually_emit_state" | "copilotkit_manually_emit_intermediate_state", data:
            return _parse_state(data)
        case "copilotkit_exit", _:
            return ExitRequest()
        case _:
            return None


def _parse_state(data: Any) -> EmittedState | None:
    if isinstance(data, Mapping):
        return EmittedState(cast("Mapping[str, Any]", data))
    members = as_object(to_jsonable_or_type_name(data))
    return EmittedState(members) if members else None


def emit_flags(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags in the metadata of a model call that hide parts of its message."""
    return {
        name: metadata[name] for name in (*_MESSAGE_FLAGS, *_TOOL_CALL_FLAGS) if metadata.get(name, True) is not True
    }


def shows_text(metadata: Mapping[str, Any]) -> bool:
    return all(metadata.get(name, True) is not False for name in _MESSAGE_FLAGS)


def shown_tools(metadata: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the names of the tools whose calls are shown; None for all."""
    for name in _TOOL_CALL_FLAGS:
        flag: Any = metadata.get(name)
        if flag is False:
            return frozenset()
        if isinstance(flag, str):
            return frozenset({flag})
        if isinstance(flag, list | tuple | set):
            return frozenset(map(str, cast("list[Any]", flag)))
    return None


def intermediate_mappings(metadata: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the mappings of tool arguments to state in the metadata of a model call. Without `tool_argument` it is all arguments."""
    requested: Any = metadata.get(_INTERMEDIATE_STATE)
    items = [as_object(item) for item in cast("list[Any]", requested)] if isinstance(requested, list | tuple) else []
    return [
        {
            "state_key": item["state_key"],
            "tool": item["tool"],
            "tool_argument": item.get("tool_argument") or _WHOLE_ARGUMENTS,
        }
        for item in items
        if isinstance(item.get("state_key"), str) and isinstance(item.get("tool"), str)
    ]


def _text_or_new(value: Any, kind: str) -> str:
    return value if isinstance(value, str) and value else random_id(kind)
