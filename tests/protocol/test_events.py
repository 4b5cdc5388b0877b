"""The grammar: what a line looks like, and that nothing is lost on the way through it."""

from __future__ import annotations

import ag_ui.core as ag
import msgspec
import pytest

from ambient_runner.protocol.agui_models import coerce_event, to_agui
from ambient_runner.protocol.events import (
    EVENT_TYPES,
    BaseEvent,
    Custom,
    Event,
    FunctionCall,
    ReasoningMessageStart,
    RunAgentInput,
    StateSnapshot,
    TextMessageContent,
    ToolCall,
    UserMessage,
    decode_event,
    encode_event,
    is_delta_line,
    type_of,
    type_of_line,
    without_deltas,
)

from .samples import every_event, populated


def test_there_is_a_struct_for_every_event_type_of_the_protocol() -> None:
    assert sorted(str(kind.__struct_config__.tag) for kind in EVENT_TYPES) == sorted(
        kind.value for kind in ag.EventType
    )


@pytest.mark.parametrize("event", every_event(), ids=type_of)
def test_only_deltas_are_left_out_of_a_run_wherever_the_others_are(event: Event) -> None:
    deltas = [encode_event(TextMessageContent(message_id="m", delta=text)) for text in ("\u0001", "a", "\U0010ffff")]
    line = encode_event(event)
    others = [] if is_delta_line(line) else [line]
    for at in range(4):
        assert list(without_deltas([*deltas[:at], line, *deltas[at:]])) == others
    assert list(without_deltas([line])) == others
    assert list(without_deltas(deltas)) == list(without_deltas([])) == []


@pytest.mark.parametrize("event", every_event(), ids=type_of)
def test_a_line_says_its_type_first_and_reads_back_as_the_same_event(event: Event) -> None:
    line = encode_event(event)
    assert type_of_line(line) == type_of(event)
    assert b"\n" not in line
    assert decode_event(line) == event


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_every_field_has_the_wire_name_of_the_official_model(kind: type[BaseEvent]) -> None:
    model = type(to_agui(coerce_event(populated(kind)[0])))
    official = {field.alias for field in model.model_fields.values()}
    assert {field.encode_name for field in msgspec.structs.fields(kind)} | {"type"} == official


def _wire(value: object) -> dict[str, object]:
    return msgspec.to_builtins(value)


def test_what_is_absent_is_not_sent() -> None:
    assert encode_event(TextMessageContent(message_id="m", delta="")) == (
        b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":""}'
    )


def test_null_is_sent_where_it_is_a_value() -> None:
    assert encode_event(StateSnapshot(snapshot=None)) == b'{"type":"STATE_SNAPSHOT","snapshot":null}'
    assert encode_event(Custom(name="n", value=None)) == b'{"type":"CUSTOM","name":"n","value":null}'


def test_what_clients_require_is_sent_although_it_is_the_default() -> None:
    assert encode_event(ReasoningMessageStart(message_id="m")) == (
        b'{"type":"REASONING_MESSAGE_START","messageId":"m","role":"reasoning"}'
    )
    call = ToolCall(id="c", function=FunctionCall(name="f", arguments="{}"))
    assert _wire(call) == {"id": "c", "function": {"name": "f", "arguments": "{}"}, "type": "function"}
    run_input = RunAgentInput(thread_id="t", run_id="r", messages=[UserMessage(id="m", content="hi")])
    assert _wire(run_input) == {
        "threadId": "t",
        "runId": "r",
        "messages": [{"role": "user", "id": "m", "content": "hi"}],
        "tools": [],
        "context": [],
    }


def test_two_inputs_do_not_share_their_lists() -> None:
    one, other = (RunAgentInput(thread_id="t", run_id="r", messages=[]) for _ in range(2))
    assert one.tools is not other.tools


def test_text_that_is_not_unicode_cannot_be_encoded() -> None:
    with pytest.raises(ValueError):
        encode_event(TextMessageContent(message_id="m", delta="\ud800"))
