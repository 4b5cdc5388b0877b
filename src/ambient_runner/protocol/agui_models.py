"""Our events and run inputs to and from `ag_ui.core` models, so that adapters may speak either.

Everything goes over the wire form, which both sides agree on; only the three delta events, which are nearly all of a stream, are
copied field by field. A model's extra fields are dropped. `events.py` has the grammar, `inbound.py` reads what clients post.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import ag_ui.core as ag
import msgspec
import pydantic
import pydantic_core

from ambient_runner.protocol import events
from ambient_runner.protocol.events import (
    Event,
    ReasoningMessageContent,
    RunAgentInput,
    TextMessageContent,
    ToolCallArgs,
    decode_event,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Coercer", "coerce", "from_agui", "input_from_agui", "input_to_agui", "to_agui"]

_OURS = frozenset(events.EVENT_TYPES)
_input_decoder = msgspec.json.Decoder(RunAgentInput)
_models: pydantic.TypeAdapter[ag.BaseEvent] = pydantic.TypeAdapter(ag.Event)


def to_agui(event: Event) -> ag.BaseEvent:
    """The `ag_ui.core` model of an event.

    Raises: ValueError when `ag_ui.core` does not accept it (a JSON Patch with a bad pointer, an interrupt outcome without interrupts).
    """
    return _models.validate_python(msgspec.to_builtins(event))


def from_agui(event: ag.BaseEvent) -> Event:
    """Our event for an `ag_ui.core` model.

    A `raw_event` that JSON cannot hold is left out rather than losing the event: it is only there for debugging.
    Raises: ValueError when the model holds something that JSON or AG-UI 1.0 cannot.
    """
    if event.raw_event is None and event.metadata is None:
        copy = _DELTAS.get(type(event))
        if copy is not None:
            return copy(event)
    try:
        line = _json(event)
    except ValueError:
        if event.raw_event is None:
            raise
        line = _json(event.model_copy(update={"raw_event": None}))
    return decode_event(line)


def input_to_agui(given: RunAgentInput) -> ag.RunAgentInput:
    """What an adapter receives: state and forwarded props are `{}` when the client sent none, tools and context are always lists."""
    wire = msgspec.to_builtins(given)
    wire.setdefault("state", {})
    wire.setdefault("forwardedProps", {})
    return ag.RunAgentInput.model_validate(wire)


def input_from_agui(given: ag.RunAgentInput) -> RunAgentInput:
    """Our run input for an `ag_ui.core` model. Raises: ValueError when it holds something that JSON or AG-UI 1.0 cannot."""
    return _input_decoder.decode(_json(given))


class Coercer:
    """Makes Events of whatever an adapter yields. One per run: the retired THINKING_* events name no message, so their ids live here."""

    def __init__(self) -> None:
        self._span = ""
        self._message = ""

    def __call__(self, given: object) -> Event:
        """The Event for one of ours, an `ag_ui.core` model, another pydantic model of an event, or a mapping with a `type`.

        Raises: TypeError when it is none of these; ValueError when it is malformed.
        """
        if type(given) in _OURS:
            return cast("Event", given)
        if isinstance(given, ag.BaseEvent):
            return from_agui(given)
        if isinstance(given, pydantic.BaseModel):
            return self._from_members(msgspec.json.decode(_json(given)))
        if isinstance(given, Mapping):
            return self._from_members(_plain(cast("Mapping[str, Any]", given)))
        raise TypeError(f"an event is needed, not {type(given).__name__}")

    def _from_members(self, members: dict[str, Any]) -> Event:
        kind = str(members.get("type"))
        if kind.startswith("THINKING_"):
            members = self._reasoning(kind, members)
        elif kind == "REASONING_MESSAGE_START":
            members = members | {"role": "reasoning"}  # SDKs before 0.1.20 wrote "assistant"
        return from_agui(_models.validate_python(members))

    def _reasoning(self, kind: str, members: dict[str, Any]) -> dict[str, Any]:
        """The REASONING_* members for a retired event. A continuation without an opener gets a new id; the Verifier opens it."""
        match kind:
            case "THINKING_START":
                self._span = _new_id()
                renamed = {"type": "REASONING_START", "messageId": self._span}
            case "THINKING_END":
                renamed = {"type": "REASONING_END", "messageId": self._span or _new_id()}
                self._span = ""
            case "THINKING_TEXT_MESSAGE_START":
                self._message = _new_id()
                renamed = {"type": "REASONING_MESSAGE_START", "messageId": self._message, "role": "reasoning"}
            case "THINKING_TEXT_MESSAGE_CONTENT":
                self._message = self._message or _new_id()
                renamed = {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._message}
            case "THINKING_TEXT_MESSAGE_END":
                renamed = {"type": "REASONING_MESSAGE_END", "messageId": self._message or _new_id()}
                self._message = ""
            case _:
                raise ValueError(f"{kind} is not an AG-UI event")
        return members | renamed


def coerce(given: object) -> Event:
    """One event, with no memory of earlier ones: for a stream use a Coercer.

    Raises: TypeError when it is not an event of any kind; ValueError when it is malformed.
    """
    return Coercer()(given)


def _text(event: Any) -> Event:
    return TextMessageContent(
        message_id=event.message_id,
        delta=event.delta,
        subagent_run_id=event.subagent_run_id,
        timestamp=event.timestamp,
    )


def _arguments(event: Any) -> Event:
    return ToolCallArgs(
        tool_call_id=event.tool_call_id,
        delta=event.delta,
        subagent_run_id=event.subagent_run_id,
        timestamp=event.timestamp,
    )


def _reasoning_text(event: Any) -> Event:
    return ReasoningMessageContent(
        message_id=event.message_id,
        delta=event.delta,
        subagent_run_id=event.subagent_run_id,
        timestamp=event.timestamp,
    )


_DELTAS: dict[type[ag.BaseEvent], Callable[[ag.BaseEvent], Event]] = {
    ag.TextMessageContentEvent: _text,
    ag.ToolCallArgsEvent: _arguments,
    ag.ReasoningMessageContentEvent: _reasoning_text,
}


def _json(model: pydantic.BaseModel) -> str:
    """The model as JSON. A field that was mutated into another type is not reported here: decoding it into a Struct does."""
    try:
        return model.model_dump_json(by_alias=True, warnings=False)
    except (TypeError, RecursionError) as error:
        raise ValueError("the event holds something that is not JSON") from error


def _plain(members: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return pydantic_core.to_jsonable_python(dict(members), by_alias=True)
    except (TypeError, RecursionError) as error:
        raise ValueError("the event holds something that is not JSON") from error


def _new_id() -> str:
    return str(uuid.uuid4())
