"""To and from `ag_ui.core`: the wire JSON of both sides is the same, for everything the grammar has."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import ag_ui.core as ag
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.bridges.base import remember
from ambient_runner.protocol.agui_models import (
    EventCoercer,
    coerce_event,
    from_agui,
    input_from_agui,
    input_to_agui,
    to_agui,
)
from ambient_runner.protocol.events import (
    EVENT_TYPES,
    AssistantMessage,
    BaseEvent,
    Custom,
    Event,
    Raw,
    ReasoningEnd,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    ReasoningStart,
    RunAgentInput,
    RunFinished,
    StateDelta,
    StateSnapshot,
    TextMessageContent,
    ToolCallArgs,
    UserMessage,
    decode_event,
    encode_event,
    type_of,
)
from ambient_runner.protocol.limits import MAX_EVENT_BYTES, MAX_PATCH_OPERATIONS, MAX_VALUES
from ambient_runner.protocol.reserved_events import PlatformEvent
from tests.protocol.samples import every_event, minimal, populated
from tests.protocol.strategies import CONTENTS

MODELS: pydantic.TypeAdapter[ag.BaseEvent] = pydantic.TypeAdapter(ag.Event)


def official_json(model: pydantic.BaseModel) -> Any:
    return json.loads(model.model_dump_json(by_alias=True))


def our_json(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize("event", every_event(), ids=type_of)
def test_an_event_has_the_same_wire_form_as_its_model_and_comes_back_equal(event: Event) -> None:
    model = to_agui(event)
    assert model.type.value == type_of(event)
    assert not model.model_extra
    assert official_json(model) == our_json(event)
    assert from_agui(model) == event


@pytest.mark.parametrize("run_input", [*minimal(RunAgentInput), *populated(RunAgentInput)])
def test_a_run_input_has_the_same_wire_form_as_its_model_and_comes_back_equal(run_input: RunAgentInput) -> None:
    model = input_to_agui(run_input)
    defaults: dict[str, Any] = {"state": {}, "forwardedProps": {}}
    assert official_json(model) == defaults | our_json(run_input)
    assert our_json(input_from_agui(model)) == defaults | our_json(run_input)


def test_the_samples_have_every_role_part_source_and_outcome() -> None:
    (messages,) = [input_.messages for input_ in populated(RunAgentInput)]
    roles = {message.__struct_config__.tag for message in messages}
    assert roles == {"developer", "system", "assistant", "user", "tool", "activity", "reasoning"}
    parts = [part for message in messages if isinstance(message, UserMessage) for part in message.content]
    assert {part.__struct_config__.tag for part in parts if not isinstance(part, str)} == {
        "text",
        "image",
        "audio",
        "video",
        "document",
    }
    outcomes = {event.outcome.__struct_config__.tag for event in populated(RunFinished) if event.outcome}
    assert outcomes == {"success", "interrupt", "cancelled"}


def test_an_adapter_finds_empty_objects_and_lists_where_the_client_sent_nothing() -> None:
    model = input_to_agui(RunAgentInput(thread_id="t", run_id="r", messages=[]))
    assert (model.state, model.forwarded_props, model.tools, model.context, model.resume) == ({}, {}, [], [], None)


def test_a_model_without_tools_becomes_an_input_with_none() -> None:
    model = ag.RunAgentInput(thread_id="t", run_id="r", messages=[ag.AssistantMessage(id="a")])
    assert input_from_agui(model) == RunAgentInput(thread_id="t", run_id="r", messages=[AssistantMessage(id="a")])


@pytest.mark.parametrize(
    ("model", "event"),
    [
        (
            ag.TextMessageContentEvent(message_id="m", delta="d", timestamp=1, subagent_run_id="s"),
            TextMessageContent(message_id="m", delta="d", timestamp=1, subagent_run_id="s"),
        ),
        (ag.ToolCallArgsEvent(tool_call_id="c", delta="d"), ToolCallArgs(tool_call_id="c", delta="d")),
        (
            ag.ReasoningMessageContentEvent(message_id="m", delta="d"),
            ReasoningMessageContent(message_id="m", delta="d"),
        ),
        (
            ag.TextMessageContentEvent(message_id="m", delta="d", metadata={"k": 1}),
            TextMessageContent(message_id="m", delta="d", metadata={"k": 1}),
        ),
    ],
)
def test_a_delta_is_copied_whole(model: ag.BaseEvent, event: Event) -> None:
    assert from_agui(model) == event


@given(
    event=CONTENTS,
    extra=st.sampled_from([{}, {"metadata": {"a": 1}}, {"rawEvent": [1]}, {"timestamp": 5}, {"more": 1}]),
)
def test_a_model_and_its_members_are_copied_as_they_are_converted_through_json(
    event: Event, extra: dict[str, Any]
) -> None:
    members = our_json(event) | extra
    try:
        model = MODELS.validate_python(members)
    except ValueError:
        with pytest.raises(ValueError):
            coerce_event(members)
        return
    converted = decode_event(model.model_dump_json(by_alias=True))
    assert from_agui(model) == coerce_event(model) == converted
    assert coerce_event(members) == converted


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ag.TextMessageStartEvent, {"message_id": "m", "role": "nobody"}),
        (ag.TextMessageEndEvent, {"message_id": 5}),
        (ag.ToolCallStartEvent, {"tool_call_id": "c", "tool_call_name": None, "parent_message_id": None}),
    ],
)
def test_a_model_that_was_not_validated_is_checked(kind: type[ag.BaseEvent], fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        from_agui(kind.model_construct(**fields, subagent_run_id=None, timestamp=None))


def test_extra_fields_of_a_model_are_dropped() -> None:
    extra: dict[str, Any] = {"mesage_id": "misspelled"}
    assert from_agui(ag.TextMessageContentEvent(message_id="m", delta="d", **extra)) == TextMessageContent(
        message_id="m", delta="d"
    )
    assert from_agui(ag.StateSnapshotEvent(snapshot={}, **extra)) == StateSnapshot(snapshot={})


def test_a_subclass_of_a_model_is_read_as_its_parent() -> None:
    class Shouting(ag.TextMessageContentEvent):
        volume: int = 11

    assert from_agui(Shouting(message_id="m", delta="d")) == TextMessageContent(message_id="m", delta="d")


def test_python_values_become_json() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    event = from_agui(
        ag.CustomEvent(name="n", value={"at": noon, "set": {1}, "model": ag.Context(description="d", value="v")})
    )
    assert event == Custom(
        name="n", value={"at": "2026-01-01T12:00:00Z", "set": [1], "model": {"description": "d", "value": "v"}}
    )


def circle() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize("value", [object(), b"\xff", circle()], ids=["object", "bytes", "circle"])
def test_a_value_that_is_not_json_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError):
        from_agui(ag.CustomEvent(name="n", value=value))
    with pytest.raises(ValueError):
        coerce_event({"type": "CUSTOM", "name": "n", "value": value})


def test_a_raw_event_that_is_not_json_does_not_drop_the_event() -> None:
    model = ag.TextMessageContentEvent(message_id="m", delta="d", raw_event=object())
    assert from_agui(model) == TextMessageContent(message_id="m", delta="d")


def test_a_model_mutated_into_nonsense_is_a_value_error() -> None:
    model = ag.StateSnapshotEvent(snapshot={}, timestamp=1)
    model.timestamp = "yesterday"  # type: ignore[assignment]
    with pytest.raises(ValueError):
        from_agui(model)


def test_an_event_the_official_models_refuse_is_a_value_error() -> None:
    with pytest.raises(ValueError):
        to_agui(StateDelta(delta=[{"op": "add", "path": "no-slash", "value": 1}]))


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_an_event_is_coerced_from_ours_from_a_model_and_from_its_members(kind: type[BaseEvent]) -> None:
    for event in populated(kind):
        assert coerce_event(event) is event
        model = to_agui(coerce_event(event))
        assert coerce_event(model) == event
        assert coerce_event(msgspec.to_builtins(event)) == event
        assert coerce_event(model.model_dump()) == event


@pytest.mark.parametrize(
    "nonsense", [None, "RUN_STARTED", 3, b"{}", BaseEvent, BaseEvent(), ag.Context(description="", value="")]
)
def test_a_value_that_is_not_an_event_is_refused(nonsense: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        coerce_event(nonsense)


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"type": None},
        {"type": "NO_SUCH_EVENT"},
        {"type": "THINKING_ABOUT_IT"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": 3, "delta": "d"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "tool"},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": {"type": "interrupt", "interrupts": []}},
        {"type": "STATE_DELTA", "delta": [{"op": "explode", "path": "/a"}]},
    ],
)
def test_malformed_members_are_a_value_error(members: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        coerce_event(members)


@pytest.mark.parametrize(
    ("members", "custom"),
    [
        ({"type": "NO_SUCH_EVENT", "level": 3}, Custom(name="NO_SUCH_EVENT", value={"level": 3})),
        ({"type": "THINKING_ABOUT_IT"}, Custom(name="THINKING_ABOUT_IT", value={})),
        (
            {"type": "META", "metaType": "thumbs_up", "payload": {"messageId": "m"}},
            Custom(name="meta:thumbs_up", value={"messageId": "m"}),
        ),
        ({"type": "META", "meta_type": "tag"}, Custom(name="meta:tag", value=None)),
    ],
)
def test_an_event_of_an_unknown_type_becomes_custom(members: dict[str, Any], custom: Custom) -> None:
    """A newer protocol or a draft of it must not fail the run."""
    assert EventCoercer(accepts_unknown=True)(members) == custom


def test_an_unknown_type_does_not_become_an_event_of_the_server() -> None:
    coerce = EventCoercer(accepts_unknown=True)
    assert type(coerce({"type": "ambient:memory", "value": 1})) is Custom
    assert type(coerce(remember(1))) is Custom
    with pytest.raises(ValueError):
        coerce({"type": "", "value": 1})


def test_null_for_an_optional_member_means_absent() -> None:
    members = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "d", "timestamp": None, "rawEvent": None}
    assert encode_event(coerce_event(members)) == b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"d"}'


def test_a_reasoning_message_gets_the_role_of_the_protocol() -> None:
    members = {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "assistant"}
    assert coerce_event(members) == ReasoningMessageStart(message_id="m")


def test_a_model_of_another_copy_of_the_sdk_is_read_by_its_members() -> None:
    class VendoredEvent(pydantic.BaseModel):
        type: str = "CUSTOM"
        name: str = "n"
        value: int = 1

    assert coerce_event(VendoredEvent()) == Custom(name="n", value=1)


def test_retired_thinking_events_become_reasoning_under_one_id_per_message() -> None:
    read = EventCoercer()
    events = [
        read({"type": "THINKING_START", "title": "lost"}),
        read({"type": "THINKING_TEXT_MESSAGE_START", "timestamp": 5}),
        read({"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "hm"}),
        read({"type": "THINKING_TEXT_MESSAGE_END"}),
        read({"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "again"}),
        read({"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "!"}),
        read({"type": "THINKING_END"}),
    ]
    span, message, other = (str(msgspec.to_builtins(events[at])["messageId"]) for at in (0, 1, 4))
    assert len({span, message, other}) == 3
    assert events == [
        ReasoningStart(message_id=span),
        ReasoningMessageStart(message_id=message, timestamp=5),
        ReasoningMessageContent(message_id=message, delta="hm"),
        ReasoningMessageEnd(message_id=message),
        ReasoningMessageContent(message_id=other, delta="again"),
        ReasoningMessageContent(message_id=other, delta="!"),
        ReasoningEnd(message_id=span),
    ]


LARGE = {f"k{at}": at for at in range(MAX_VALUES)}


@pytest.mark.parametrize(
    ("event", "event_type"),
    [
        (ag.StateSnapshotEvent(snapshot=LARGE), "STATE_SNAPSHOT"),
        ({"type": "STATE_SNAPSHOT", "snapshot": LARGE}, "STATE_SNAPSHOT"),
        (ag.CustomEvent(name="x", value=("x" * MAX_EVENT_BYTES, "x")), "CUSTOM"),
        (ag.CustomEvent(name="x", value={"x" * MAX_EVENT_BYTES: "x"}), "CUSTOM"),
        ({"type": "SOMETHING", "value": LARGE}, "SOMETHING"),
        ({"type": "STATE_DELTA", "delta": [{"op": "add"}] * (MAX_PATCH_OPERATIONS + 1)}, "STATE_DELTA"),
        (ag.MessagesSnapshotEvent(messages=[ag.UserMessage(id="u", content="x")] * 25_001), "MESSAGES_SNAPSHOT"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_m9_an_event_that_is_too_large_is_dropped_and_not_converted(event: object, event_type: str) -> None:
    dropped = EventCoercer(accepts_unknown=True)(event)
    assert isinstance(dropped, PlatformEvent)
    assert (dropped.name, dropped.value) == ("ambient:dropped", {"type": event_type, "reason": "too_large"})


@pytest.mark.parametrize("member", ["raw_event", "metadata", "result"])
def test_m9_an_end_of_a_run_is_kept_without_what_is_too_large(member: str) -> None:
    model = ag.RunFinishedEvent.model_validate({"thread_id": "t", "run_id": "r", member: LARGE})
    assert coerce_event(model) == RunFinished(thread_id="t", run_id="r")
    members = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", member: LARGE}
    assert coerce_event(members) == RunFinished(thread_id="t", run_id="r")


def test_m9_an_event_is_kept_without_a_raw_event_that_is_too_large() -> None:
    assert coerce_event(ag.StateSnapshotEvent(snapshot=1, raw_event=LARGE)) == StateSnapshot(snapshot=1)
    assert coerce_event(ag.RawEvent(event=LARGE)) == Raw(event=None)


def test_m9_as_many_values_as_are_allowed_are_converted() -> None:
    snapshot = [0] * (MAX_VALUES - 1)
    assert coerce_event(ag.StateSnapshotEvent(snapshot=snapshot)) == StateSnapshot(snapshot=snapshot)
    adds = [{"op": "add", "path": "/a", "value": [0] * 9}] * MAX_PATCH_OPERATIONS
    assert coerce_event({"type": "STATE_DELTA", "delta": adds}) == StateDelta(delta=adds)
