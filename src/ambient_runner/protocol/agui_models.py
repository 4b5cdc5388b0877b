"""Conversion of events and run inputs to and from `ag_ui.core` models, so that adapters may use either.

Both sides share the wire format, so conversion goes through JSON; only events whose fields are texts, which are nearly all of a stream, are
copied field by field, and so are plain messages (`agui_messages.py`). A model's extra fields are dropped. `events.py` has the grammar,
`run_input.py` parses request bodies.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, cast, get_args

import ag_ui.core as ag
import msgspec
import pydantic
import pydantic_core
from msgspec.structs import replace

from ambient_runner.protocol import events
from ambient_runner.protocol.agui_batches import MAX_BATCH, count_models, validate_messages
from ambient_runner.protocol.agui_messages import convert_plain_messages
from ambient_runner.protocol.dropped_events import dropped_event
from ambient_runner.protocol.event_limits import limit_event
from ambient_runner.protocol.events import (
    Custom,
    Event,
    ReasoningMessageContent,
    RunAgentInput,
    TextMessageContent,
    ToolCallArgs,
    decode_event,
)
from ambient_runner.protocol.reserved_events import PlatformEvent, to_plain_event

if TYPE_CHECKING:
    from ambient_runner.protocol.message_models import MessageModels

__all__ = [
    "EventCoercer",
    "coerce_event",
    "copy_plain_event",
    "from_agui",
    "input_from_agui",
    "input_to_agui",
    "to_agui",
]

_EVENT_TYPES = frozenset(events.EVENT_TYPES)
_TYPE_NAMES = frozenset(member.value for member in ag.EventType)
_RETIRED_TYPES = frozenset({"THINKING_START", "THINKING_END"}) | {
    f"THINKING_TEXT_MESSAGE_{phase}" for phase in ("START", "CONTENT", "END")
}
_ROLES = frozenset(kind.__struct_config__.tag for kind in get_args(events.Message))
_CONVERTED_AT_ONCE = 512
"""Messages of a snapshot that are converted before other tasks may run: about 3 milliseconds."""
_input_decoder = msgspec.json.Decoder(RunAgentInput)
_models: pydantic.TypeAdapter[ag.BaseEvent] = pydantic.TypeAdapter(ag.Event)


def to_agui(event: Event) -> ag.BaseEvent:
    """Return the `ag_ui.core` model of an event.

    Raises: ValueError if `ag_ui.core` does not accept it (a JSON Patch with a bad pointer, an interrupt outcome without interrupts).
    """
    return _models.validate_python(msgspec.to_builtins(event))


def from_agui(event: ag.BaseEvent) -> Event:
    """Return our event for an `ag_ui.core` model.

    A `raw_event` that JSON cannot represent is left out rather than the event: it only serves debugging.
    Raises: ValueError if the model holds a value that JSON or AG-UI 1.0 cannot represent.
    """
    if (copied := copy_plain_event(event)) is not None:
        return copied
    try:
        line = _dump_json(event)
    except ValueError:
        if event.raw_event is None:
            raise
        line = _dump_json(event.model_copy(update={"raw_event": None}))
    return decode_event(line)


def input_to_agui(run_input: RunAgentInput, reused: MessageModels | None = None) -> ag.RunAgentInput:
    """Return the model for an adapter. State and forwarded props are `{}` if the client sent none; tools and context are always lists.

    `reused` are the models of the thread's last run: those that nobody else has or has changed are used again.
    """
    copied = reused.convert(run_input.messages) if reused is not None else convert_plain_messages(run_input.messages)
    pairs = zip(run_input.messages, copied, strict=True)
    others = [] if all(copied) else [message for message, model in pairs if model is None]
    is_split = bool(others) and count_models(others) > MAX_BATCH
    wire = msgspec.to_builtins(replace(run_input, messages=[] if is_split else others))
    wire.setdefault("state", {})
    wire.setdefault("forwardedProps", {})
    converted = ag.RunAgentInput.model_validate(wire)
    rest = iter(validate_messages(others) if is_split else converted.messages)
    converted.messages = [next(rest) if model is None else model for model in copied] if others else copied
    return converted


def input_from_agui(run_input: ag.RunAgentInput) -> RunAgentInput:
    """Return our run input for an `ag_ui.core` model. Raises: ValueError if it holds a value that JSON or AG-UI 1.0 cannot represent."""
    return _input_decoder.decode(_dump_json(run_input))


class EventCoercer:
    """Converts what an adapter yields to Events. One per run: the retired THINKING_* events name no message, so their ids are kept here."""

    def __init__(self, *, accepts_unknown: bool = False) -> None:
        """With `accepts_unknown`, a mapping of a type that AG-UI 1.0 does not have becomes CUSTOM; otherwise it is refused."""
        self._accepts_unknown = accepts_unknown
        self._reasoning_span_id = ""
        self._reasoning_message_id = ""
        self._notices: list[Event] = []

    def take_notices(self) -> list[Event]:
        """Return an `ambient:dropped` event for what was left out of the last event; once."""
        if not self._notices:
            return []
        notices, self._notices = self._notices, []
        return notices

    def __call__(self, value: object) -> Event:
        """Return the Event for one of ours, an `ag_ui.core` model, another pydantic model of an event, or a mapping with a `type`.

        A `PlatformEvent` becomes a plain `Custom`: check its type first where it counts. For a model or mapping that is too large, the
        `PlatformEvent` `ambient:dropped` is returned, which may use that name.
        Raises: TypeError if it is none of these; ValueError if it is malformed.
        """
        if type(value) in _EVENT_TYPES:
            return cast("Event", value)
        if (plain := copy_plain_event(value)) is not None:
            return plain
        if isinstance(value, PlatformEvent):
            return to_plain_event(value)
        if not isinstance(value, pydantic.BaseModel | Mapping):
            raise TypeError(f"expected an AG-UI event, not {type(value).__name__}")
        return self._convert(limit_event(cast("pydantic.BaseModel | Mapping[str, Any]", value)))

    def convert_in_slices(self, value: object) -> Generator[None, None, Event]:
        """Do what a call does, and stop wherever other tasks may run: the messages of a long snapshot are converted some at a time."""
        if not (_is_long_snapshot(value) and isinstance(value, pydantic.BaseModel | Mapping)):
            return self(value)
        limited = limit_event(cast("ag.MessagesSnapshotEvent | Mapping[str, Any]", value))
        yield
        if isinstance(limited, PlatformEvent):
            return limited
        messages: list[Any]
        if isinstance(limited, ag.MessagesSnapshotEvent):
            messages, rest = limited.messages, from_agui(limited.model_copy(update={"messages": []}))
        else:
            members = _to_jsonable(limited)
            yield
            messages, rest = self._read_messages(members["messages"]), self._from_members(members | {"messages": []})
        converted: list[events.Message] = []
        for at in range(0, len(messages), _CONVERTED_AT_ONCE):
            yield
            part = messages[at : at + _CONVERTED_AT_ONCE]
            model = (
                ag.MessagesSnapshotEvent.model_construct(messages=part)
                if isinstance(limited, ag.MessagesSnapshotEvent)
                else _models.validate_python({"type": "MESSAGES_SNAPSHOT", "messages": part})
            )
            converted += cast("events.MessagesSnapshot", from_agui(model)).messages
        return replace(cast("events.MessagesSnapshot", rest), messages=converted)

    def _convert(self, value: pydantic.BaseModel | Mapping[str, Any] | PlatformEvent) -> Event:
        match value:
            case PlatformEvent():
                return value
            case ag.BaseEvent():
                return from_agui(value)
            case pydantic.BaseModel():
                return self._from_members(msgspec.json.decode(_dump_json(value)))
            case _:
                return self._from_members(_to_jsonable(value))

    def _from_members(self, members: dict[str, Any]) -> Event:
        kind = str(members.get("type"))
        if kind in _RETIRED_TYPES:
            members = self._upgrade_thinking(kind, members)
        elif kind == "MESSAGES_SNAPSHOT" and isinstance(members.get("messages"), list):
            members = members | {"messages": self._read_messages(members["messages"])}
        elif kind == "REASONING_MESSAGE_START":
            members = members | {"role": "reasoning"}  # SDKs before 0.1.20 wrote "assistant"
        elif self._accepts_unknown and isinstance(members.get("type"), str) and kind not in _TYPE_NAMES:
            return _custom_from_unknown(kind, members)
        return from_agui(_models.validate_python(members))

    def _read_messages(self, messages: list[Any]) -> list[dict[str, Any]]:
        """Return the messages of a known role. One without an id gets an empty one, as from another server (`projections/history.py`)."""
        named = [cast("dict[str, Any]", message) for message in messages if isinstance(message, dict)]
        kept = [message for message in named if str(message.get("role")) in _ROLES]
        if len(kept) < len(messages):
            omitted = len(messages) - len(kept)
            self._notices = [dropped_event("MESSAGES_SNAPSHOT", "unknown_role", count=omitted)]
        return [message | {"id": ""} if message.get("id") is None else message for message in kept]

    def _upgrade_thinking(self, kind: str, members: dict[str, Any]) -> dict[str, Any]:
        """Return the REASONING_* members for a retired event. A continuation without a start gets a new id; the Repairer starts it."""
        match kind:
            case "THINKING_START":
                self._reasoning_span_id = _new_id()
                renamed = {"type": "REASONING_START", "messageId": self._reasoning_span_id}
            case "THINKING_END":
                renamed = {"type": "REASONING_END", "messageId": self._reasoning_span_id or _new_id()}
                self._reasoning_span_id = ""
            case "THINKING_TEXT_MESSAGE_START":
                self._reasoning_message_id = _new_id()
                renamed = {
                    "type": "REASONING_MESSAGE_START",
                    "messageId": self._reasoning_message_id,
                    "role": "reasoning",
                }
            case "THINKING_TEXT_MESSAGE_CONTENT":
                self._reasoning_message_id = self._reasoning_message_id or _new_id()
                renamed = {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._reasoning_message_id}
            case _:  # THINKING_TEXT_MESSAGE_END
                renamed = {"type": "REASONING_MESSAGE_END", "messageId": self._reasoning_message_id or _new_id()}
                self._reasoning_message_id = ""
        return members | renamed


def _is_long_snapshot(value: object) -> bool:
    """Return True for a model or a dict of a snapshot with more messages than are converted at once."""
    if type(value) is ag.MessagesSnapshotEvent:
        messages: Any = value.messages
    elif type(value) is dict:
        members = cast("dict[str, Any]", value)
        messages = members.get("messages") if members.get("type") == "MESSAGES_SNAPSHOT" else None
    else:
        return False
    return type(messages) is list and len(cast("list[Any]", messages)) > _CONVERTED_AT_ONCE


def _custom_from_unknown(kind: str, members: dict[str, Any]) -> Custom:
    """Return a CUSTOM event for a type that AG-UI 1.0 does not have, named after it. Raises: ValueError for an empty type."""
    if kind == "META":
        name, value = f"meta:{members.get('metaType', members.get('meta_type', ''))}", members.get("payload")
    else:
        name, value = kind, {key: item for key, item in members.items() if key != "type"}
    if not kind:
        raise ValueError("the type of the event is empty")
    return Custom(name=name, value=value)


def coerce_event(value: object) -> Event:
    """Return one event, without state from earlier ones. For a stream use an `EventCoercer`.

    Raises: TypeError if it is not an event of any kind; ValueError if it is malformed.
    """
    return EventCoercer()(value)


_Fields = Mapping[str, Any]
"""The fields of a model by their names, from its `__dict__`: reading one as an attribute of a pydantic model costs more."""


def _copy_text_delta(fields: _Fields) -> Event:
    return TextMessageContent(
        message_id=fields["message_id"],
        delta=fields["delta"],
        subagent_run_id=fields["subagent_run_id"],
        timestamp=fields["timestamp"],
    )


def _copy_args_delta(fields: _Fields) -> Event:
    return ToolCallArgs(
        tool_call_id=fields["tool_call_id"],
        delta=fields["delta"],
        subagent_run_id=fields["subagent_run_id"],
        timestamp=fields["timestamp"],
    )


def _copy_reasoning_delta(fields: _Fields) -> Event:
    return ReasoningMessageContent(
        message_id=fields["message_id"],
        delta=fields["delta"],
        subagent_run_id=fields["subagent_run_id"],
        timestamp=fields["timestamp"],
    )


def _copy_texts_of(kind: type[Any]) -> Callable[[_Fields], Event | None]:
    """Return a function that copies the fields of a model if all are texts, numbers or None; it returns None if one is not."""
    wire_names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    names = [name for name in kind.__struct_fields__ if name not in {"raw_event", "metadata"}]

    def copy(fields: _Fields) -> Event | None:
        members = {wire_names[name]: fields[name] for name in names}
        if not _PLAIN_TYPES.issuperset(map(type, members.values())):
            return None
        try:
            return msgspec.convert(members, kind)
        except msgspec.ValidationError:
            return None  # The conversion through JSON reports it.

    return copy


_PLAIN_TYPES = frozenset({str, int, type(None)})
_PLAIN_MODELS: dict[type[Any], Callable[[_Fields], Event | None]] = {
    ag.TextMessageContentEvent: _copy_text_delta,
    ag.ToolCallArgsEvent: _copy_args_delta,
    ag.ReasoningMessageContentEvent: _copy_reasoning_delta,
    ag.TextMessageStartEvent: _copy_texts_of(events.TextMessageStart),
    ag.TextMessageChunkEvent: _copy_texts_of(events.TextMessageChunk),
    ag.TextMessageEndEvent: _copy_texts_of(events.TextMessageEnd),
    ag.ToolCallStartEvent: _copy_texts_of(events.ToolCallStart),
    ag.ToolCallChunkEvent: _copy_texts_of(events.ToolCallChunk),
    ag.ToolCallEndEvent: _copy_texts_of(events.ToolCallEnd),
    ag.ToolCallResultEvent: _copy_texts_of(events.ToolCallResult),
    ag.ReasoningStartEvent: _copy_texts_of(events.ReasoningStart),
    ag.ReasoningMessageStartEvent: _copy_texts_of(events.ReasoningMessageStart),
    ag.ReasoningMessageChunkEvent: _copy_texts_of(events.ReasoningMessageChunk),
    ag.ReasoningMessageEndEvent: _copy_texts_of(events.ReasoningMessageEnd),
    ag.ReasoningEndEvent: _copy_texts_of(events.ReasoningEnd),
    ag.StepStartedEvent: _copy_texts_of(events.StepStarted),
    ag.StepFinishedEvent: _copy_texts_of(events.StepFinished),
}
_find_copier: Callable[[Any], Callable[[_Fields], Event | None] | None] = _PLAIN_MODELS.get
_DELTA_MEMBERS: dict[Any, tuple[str, Callable[[str, str], Event]]] = {
    "TEXT_MESSAGE_CONTENT": ("messageId", lambda name, delta: TextMessageContent(message_id=name, delta=delta)),
    "TOOL_CALL_ARGS": ("toolCallId", lambda name, delta: ToolCallArgs(tool_call_id=name, delta=delta)),
    "REASONING_MESSAGE_CONTENT": (
        "messageId",
        lambda name, delta: ReasoningMessageContent(message_id=name, delta=delta),
    ),
}
"""The member with the id, and how to build the event, of mappings that have an id and a text only."""


def copy_plain_event(value: Any) -> Event | None:
    """Return our event for a model whose fields are texts, or a dict of a delta; None for any other: it is converted through JSON."""
    copier = _find_copier(type(value))
    if copier is None:
        return _copy_delta_members(cast("dict[Any, Any]", value)) if type(value) is dict else None
    fields = value.__dict__
    return copier(fields) if fields["raw_event"] is None and fields["metadata"] is None else None


def _copy_delta_members(members: dict[Any, Any]) -> Event | None:
    found = _DELTA_MEMBERS.get(members.get("type")) if len(members) == 3 else None
    if found is None:
        return None
    name, delta = members.get(found[0]), members.get("delta")
    # An empty text is refused, or accepted, by the model.
    return found[1](name, delta) if type(name) is str and type(delta) is str and delta else None


def _dump_json(model: pydantic.BaseModel) -> str:
    """Return the model as JSON. A field changed to another type is reported later, when the JSON is decoded into a Struct."""
    try:
        return model.model_dump_json(by_alias=True, warnings=False)
    except (TypeError, RecursionError) as error:
        raise ValueError("the event holds a value that JSON cannot represent") from error


def _to_jsonable(members: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return pydantic_core.to_jsonable_python(dict(members), by_alias=True)
    except (TypeError, RecursionError) as error:
        raise ValueError("the event holds a value that JSON cannot represent") from error


def _new_id() -> str:
    return str(uuid.uuid4())
