"""Parsing of run inputs: strict JSON, lenient grammar, precise errors."""

from __future__ import annotations

import copy
import json
import re
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import InvalidInput
from ambient_runner.protocol.events import (
    AssistantMessage,
    ContentPart,
    DataSource,
    DocumentPart,
    FunctionCall,
    ImagePart,
    Message,
    ReasoningMessage,
    RunAgentInput,
    TextPart,
    ToolCall,
    ToolMessage,
    UrlSource,
    UserMessage,
    VideoPart,
)
from ambient_runner.protocol.run_input import ParsedInput, newest_user_message, parse_input
from tests.hypothesis_profiles import examples
from tests.protocol.samples import minimal, populated

HELLO: dict[str, Any] = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}]}


def parse_members(**members: Any) -> ParsedInput:
    return parse_input(json.dumps(HELLO | members).encode())


def refusal(body: bytes | dict[str, Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        parse_input(body if isinstance(body, bytes) else json.dumps(body).encode())
    return caught.value.message


def parse_parts(*parts: Any, role: str = "user") -> ParsedInput:
    extra = {"toolCallId": "c"} if role == "tool" else {}
    return parse_members(messages=[{"id": "m", "role": role, "content": list(parts)} | extra])


def test_a_plain_input_is_read_without_warnings() -> None:
    assert parse_members(protocolVersion="1.0", state={"a": None}, forwardedProps=[1]) == ParsedInput(
        input=RunAgentInput(
            thread_id="t",
            run_id="r",
            messages=[UserMessage(id="m", content="hi")],
            protocol_version="1.0",
            state={"a": None},
            forwarded_props=[1],
        ),
        warnings=[],
    )


def unlike_ids(value: Any) -> Any:
    """Distinct message ids: the samples have one for all."""
    value = copy.deepcopy(value)
    for at, message in enumerate(value["messages"]):
        message["id"] = f"m{at}"
    return value


@pytest.mark.parametrize("sample", [*minimal(RunAgentInput), *populated(RunAgentInput)])
def test_everything_the_grammar_has_survives(sample: RunAgentInput) -> None:
    wire = unlike_ids(msgspec.to_builtins(sample))
    read = parse_input(json.dumps(wire).encode())
    assert msgspec.to_builtins(read.input) == wire
    assert read.warnings == []


def snaked(value: Any) -> Any:
    """A JSON value with every protocol name in snake_case."""
    match value:
        case list():
            return [snaked(item) for item in cast("list[Any]", value)]
        case dict():
            return {
                re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name): snaked(item)
                for name, item in cast("dict[str, Any]", value).items()
            }
        case _:
            return value


def test_snake_case_names_are_accepted() -> None:
    (sample,) = populated(RunAgentInput)
    wire = unlike_ids(msgspec.to_builtins(sample))
    read = parse_input(json.dumps(snaked(wire)).encode())
    assert msgspec.to_builtins(read.input) == wire
    assert read.warnings == []


def test_camel_case_wins_if_both_spellings_are_present() -> None:
    assert parse_members(thread_id="other").input.thread_id == "t"
    assert parse_input(json.dumps({"thread_id": "other"} | HELLO).encode()).input.thread_id == "t"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "line 1, column 1"),
        (b"{", "line 1, column 2"),
        (b'{"threadId": "t" "a"}', "line 1, column 18"),
        (b'{"threadId": "t",}', "line 1, column 1"),  # The comma or what follows it: interpreters differ.
        (b"{} {}", "line 1, column 4"),
        (b"\xef\xbb\xbf{}", "line 1, column 1"),
        (b'{"a": "\x01"}', "line 1, column 8"),
        (b'{"a": "\xff"}', "byte 7"),
        (b'{"a": "\xed\xa0\x80"}', "byte 7"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1e400}', "1e400"),
        (b'{"a": -1' + b"0" * 309 + b"}", "-1000"),
        (b'{"a": 1' + b"0" * 100_000 + b"}", "1000"),
        (b'{"a": 1, "b": {"x": 1, "x": 2}}', "'x'"),
        (b'{"state": {"a": ["\\ud800"]}}', "state.a[0]"),
        (b'{"state": {"\\uDC00": 1}}', "state"),
        (b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", "64 levels"),
        (b"[" * 1_000_000, "64 levels"),
        (b"[" * 500_000 + b"]" * 500_000, "64 levels"),
        (b'{"a":' * 100_000, "64 levels"),
        (b'"' + b'\\"' * 1_000_000, "Unterminated"),
        (b"[1]", "The body must be an object."),
        (b"null", "The body must be an object."),
    ],
)
def test_a_body_that_is_not_strict_json_is_refused_with_its_position(body: bytes, expected: str) -> None:
    assert expected in refusal(body)


def test_brackets_in_strings_are_not_nesting_and_pairs_of_surrogates_are_text() -> None:
    text = '[{"' * 100 + "\\\U0001f600"
    assert parse_members(state=text).input.state == text


def test_sixty_four_levels_are_accepted() -> None:
    state: Any = 1
    for _ in range(63):
        state = [state]
    assert parse_members(state=state).input.state == state


def test_every_number_a_browser_can_write_is_accepted() -> None:
    numbers = [2**64, -(10**20), 10**308, 1.7e308, 5e-324]
    assert parse_members(state=numbers).input.state == numbers


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages must be a list."),
    ({"messages": {}}, "messages must be a list."),
    ({"messages": [3]}, "messages[0] must be an object."),
    ({"messages": [{"id": "m", "content": "x"}]}, "messages[0].role must be a string."),
    ({"messages": [{"id": 3, "role": "user", "content": "x"}]}, "messages[0].id must be a string."),
    (
        {"messages": [*HELLO["messages"], {"id": "n", "role": "user", "content": 3}]},
        "messages[1].content must be a string or a list of parts.",
    ),
    ({"messages": [{"id": "m", "role": "user"}]}, "messages[0].content is missing."),
    (
        {"messages": [{"id": "m", "role": "user", "content": None}]},
        "messages[0].content must be a string or a list of parts.",
    ),
    ({"messages": [{"id": "m", "role": "system", "content": []}]}, "messages[0].content must be a string."),
    ({"messages": [{"id": "m", "role": "tool", "content": ""}]}, "messages[0].toolCallId is missing."),
    (
        {"messages": [{"id": "m", "role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text is missing.",
    ),
    (
        {"messages": [{"id": "m", "role": "user", "content": [{"type": "image", "source": "x"}]}]},
        "messages[0].content[0].source must be an object.",
    ),
    (
        {"messages": [{"id": "m", "role": "assistant", "toolCalls": [{"id": "c", "function": {"name": "f"}}]}]},
        "messages[0].toolCalls[0].function.arguments is missing.",
    ),
    (
        {"messages": [{"id": "m", "role": "user", "content": "", "metadata": [1]}]},
        "messages[0].metadata must be an object.",
    ),
    ({"threadId": ""}, "threadId must have 1 to 256 characters."),
    ({"threadId": 4}, "threadId must be a string."),
    ({"runId": "x" * 257}, "runId must have 1 to 256 characters."),
    ({"runId": "a\nb"}, "runId contains characters that are not allowed."),
    ({"messages": [{"id": "", "role": "user", "content": ""}]}, "messages[0].id must have 1 to 256 characters."),
    (
        {"messages": [{"id": "m", "role": "tool", "content": "", "toolCallId": "\x7f"}]},
        "messages[0].toolCallId contains characters that are not allowed.",
    ),
    ({"tools": [{"name": "", "description": ""}]}, "tools[0].name must have 1 to 256 characters."),
    ({"tools": "none"}, "tools must be a list."),
    ({"context": [{"description": "d", "value": {}}]}, "context[0].value must be a string."),
    (
        {"resume": [{"interruptId": "i", "status": "maybe"}]},
        "resume[0].status must be 'cancelled' or 'resolved'.",
    ),
    ({"resume": [{"status": "resolved"}]}, "resume[0].interruptId is missing."),
    ({"protocolVersion": 1.0}, "protocolVersion must be a string."),
    ({"messages": [HELLO["messages"][0]] * 10_001}, "messages must have at most 10000 entries."),
    ({"tools": [1] * 1_001}, "tools must have at most 1000 entries."),
    ({"context": [1] * 1_001}, "context must have at most 1000 entries."),
    ({"resume": [1] * 10_001}, "resume must have at most 10000 entries."),
]


@pytest.mark.parametrize(("members", "message"), MALFORMED)
def test_a_known_field_with_a_wrong_value_is_refused_by_its_path(members: dict[str, Any], message: str) -> None:
    assert refusal(HELLO | members) == message


def test_messages_are_the_one_thing_that_must_be_there() -> None:
    message = refusal({"threadId": "t", "runId": "r"})
    assert message == 'messages is missing. Send at least {"messages": [{"role": "user", "content": "Hello"}]}.'


def test_an_answer_to_an_interrupt_needs_no_messages() -> None:
    body = json.dumps({"threadId": "t", "resume": [{"interruptId": "i", "status": "resolved"}]}).encode()
    parsed = parse_input(body)
    assert (parsed.input.messages, parsed.warnings, parsed.skip_reason) == ([], [], "")
    with pytest.raises(InvalidInput):
        parse_input(json.dumps({"threadId": "t", "resume": []}).encode())


def test_as_many_interrupts_can_be_answered_as_a_run_can_have() -> None:
    """A run with more than 100 interrupts blocked its thread: every answer to all of them was refused."""
    answers = [{"interruptId": f"i{at}", "status": "resolved"} for at in range(500)]
    parsed = parse_input(json.dumps({"threadId": "t", "resume": answers}).encode())
    assert len(parsed.input.resume or ()) == 500


def test_null_for_an_optional_field_means_absent() -> None:
    optional = ("protocolVersion", "parentRunId", "state", "tools", "context", "forwardedProps", "resume")
    message = {"id": "m", "role": "assistant", "content": None, "toolCalls": None, "metadata": None, "name": None}
    assert parse_members(**dict.fromkeys(optional), messages=[message]) == ParsedInput(
        input=RunAgentInput(thread_id="t", run_id="r", messages=[AssistantMessage(id="m")]), warnings=[]
    )


def test_unknown_capabilities_are_left_out_and_named() -> None:
    read = parse_members(
        shiny=1,
        messages=[
            {"id": "m", "role": "user", "content": "hi", "mood": "good"},
            {"id": "n", "role": "oracle", "content": "?"},
            {"id": "o", "role": "user", "content": [{"type": "hologram"}, {"type": "text", "text": "x"}]},
            {"id": "p", "role": "user", "content": [{"type": "image", "source": {"type": "dream", "value": "v"}}]},
        ],
    )
    assert read == ParsedInput(
        input=RunAgentInput(
            thread_id="t",
            run_id="r",
            messages=[
                UserMessage(id="m", content="hi"),
                UserMessage(id="o", content=[TextPart(text="x")]),
                UserMessage(id="p", content=[]),
            ],
        ),
        warnings=[
            "shiny is not part of the protocol and was left out.",
            "messages[0].mood is not part of the protocol and was left out.",
            "messages[1].role 'oracle' is not part of the protocol: messages[1] was left out.",
            "messages[2].content[0].type 'hologram' is not part of the protocol: messages[2].content[0] was left out.",
            "messages[3].content[0].source.type 'dream' is not part of the protocol: messages[3].content[0] was left out.",
        ],
        skip_reason="messages[1] was left out: its role is none of developer, system, assistant, user, tool, activity, reasoning.",
    )


def test_a_name_cannot_break_a_line_of_the_log() -> None:
    assert parse_members(**{"a\nb": 1}).warnings == ["'a\\nb' is not part of the protocol and was left out."]


def test_a_million_unknown_members_are_not_a_million_warnings() -> None:
    assert len(parse_members(**{f"x{number}": 1 for number in range(5_000)}).warnings) == 100


def test_a_tool_result_that_loses_every_part_is_still_an_answer() -> None:
    (message,) = parse_parts({"type": "hologram"}, role="tool").input.messages
    assert message == ToolMessage(id="m", tool_call_id="c", content="")


def test_retired_binary_parts_become_the_media_they_were() -> None:
    read = parse_parts(
        {"type": "binary", "mimeType": "image/png", "data": "aGk="},
        {"type": "binary", "mime_type": "video/mp4", "url": "https://x/v", "filename": "v.mp4"},
        {"type": "binary", "mimeType": "application/pdf", "data": "aGk=", "url": "https://x/p"},
        {"type": "binary", "mimeType": "image/png", "id": "only-an-id"},
        {"type": "binary", "data": "aGk="},
    )
    expected: list[ContentPart] = [
        ImagePart(source=DataSource(value="aGk=", mime_type="image/png")),
        VideoPart(source=UrlSource(value="https://x/v", mime_type="video/mp4"), metadata={"filename": "v.mp4"}),
        DocumentPart(source=DataSource(value="aGk=", mime_type="application/pdf")),
    ]
    assert read.input.messages == [UserMessage(id="m", content=expected)]
    assert len(read.warnings) == 5


def test_a_binary_mirror_of_a_modern_part_is_not_a_second_attachment() -> None:
    modern = {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}}
    read = parse_parts({"type": "binary", "mimeType": "image/png", "data": "aGk="}, modern)
    picture = ImagePart(source=DataSource(value="aGk=", mime_type="image/png"))
    assert read.input.messages == [UserMessage(id="m", content=[picture])]


def test_missing_ids_are_generated_without_warnings() -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
    first, second = parse_input(body), parse_input(body)
    assert first.warnings == []
    ids = {
        each
        for read in (first, second)
        for each in (read.input.thread_id, read.input.run_id, read.input.messages[0].id)
    }
    assert len(ids) == 6


def test_a_repeated_message_is_read_once_in_its_last_version() -> None:
    read = parse_members(
        messages=[
            {"id": "a", "role": "user", "content": "first"},
            {"id": "b", "role": "assistant", "content": "between"},
            {"id": "a", "role": "user", "content": "last"},
        ]
    )
    assert read.input.messages == [UserMessage(id="a", content="last"), AssistantMessage(id="b", content="between")]
    assert len(read.warnings) == 1


def test_different_messages_under_one_id_are_all_kept_and_renamed_deterministically() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"id": "a", "role": "assistant", "toolCalls": [call | {"id": "c1"}, call | {"id": "c2"}]},
        {"id": "a", "role": "tool", "toolCallId": "c1", "content": "one"},
        {"id": "a", "role": "tool", "toolCallId": "c2", "content": "two"},
    ]
    read, again = parse_members(messages=messages), parse_members(messages=messages)
    calls = [ToolCall(id=each, function=FunctionCall(name="f", arguments="{}")) for each in ("c1", "c2")]
    one, two = (message.id for message in read.input.messages[1:])
    assert len({"a", one, two}) == 3
    assert read.input.messages == [
        AssistantMessage(id="a", tool_calls=calls),
        ToolMessage(id=one, tool_call_id="c1", content="one"),
        ToolMessage(id=two, tool_call_id="c2", content="two"),
    ]
    assert again == read


@examples(150)
@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_invalid_input(body: bytes) -> None:
    _read_or_refuse(body)


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["user", "tool", "text"])
)
NAMES = st.text() | st.sampled_from(
    ["threadId", "runId", "messages", "id", "role", "content", "type", "source", "tools", "toolCalls", "resume"]
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=20)


@examples(150)
@given(VALUES)
def test_no_json_value_raises_anything_but_invalid_input(value: Any) -> None:
    _read_or_refuse(json.dumps(value).encode(errors="surrogatepass"))


@examples(150)
@given(VALUES, st.sampled_from(["messages", "tools", "context", "resume", "state", "threadId"]))
def test_no_value_in_any_field_raises_anything_but_invalid_input(value: Any, name: str) -> None:
    _read_or_refuse(json.dumps(HELLO | {name: value}).encode(errors="surrogatepass"))


def _read_or_refuse(body: bytes) -> None:
    try:
        read = parse_input(body)
    except InvalidInput:
        return
    assert msgspec.json.decode(msgspec.json.encode(read.input), type=RunAgentInput) == read.input


@examples(50)
@given(st.data())
def test_a_valid_input_survives_unknown_members_anywhere(data: st.DataObject) -> None:
    (sample,) = populated(RunAgentInput)
    wire = unlike_ids(msgspec.to_builtins(sample))
    sprinkled = copy.deepcopy(wire)
    objects = _protocol_objects(sprinkled)
    chosen = data.draw(st.sets(st.integers(0, len(objects) - 1), max_size=10))
    for at in chosen:
        objects[at]["x-unknown"] = data.draw(VALUES.filter(lambda value: _is_strict(value)))
    read = parse_input(json.dumps(sprinkled).encode())
    assert msgspec.to_builtins(read.input) == wire
    assert len(read.warnings) == len(chosen)


def _is_strict(value: Any) -> bool:
    try:
        parse_input(json.dumps(HELLO | {"state": value}).encode())
    except InvalidInput:
        return False
    return True


def _protocol_objects(members: dict[str, Any]) -> list[dict[str, Any]]:
    """Every object of an input whose members the protocol names."""
    found = [members, *members["tools"], *members["context"], *members["resume"]]
    for message in members["messages"]:
        found.append(message)
        found += [each for call in message.get("toolCalls", []) for each in (call, call["function"])]
        if isinstance(message["content"], list):
            found += message["content"]
            found += [part["source"] for part in message["content"] if "source" in part]
    return found


RESULT = ToolMessage(id="t1", tool_call_id="c1", content="1")
SAID: list[Message] = [
    UserMessage(id="u1", content="old"),
    ToolMessage(id="t0", tool_call_id="c0", content="0"),
    UserMessage(id="u2", content="new"),
    AssistantMessage(id="a"),
]


def test_the_newest_user_message_is_the_last_one() -> None:
    assert newest_user_message(SAID) == SAID[2]
    assert newest_user_message([ReasoningMessage(id="x", content="")]) is None
    assert newest_user_message([]) is None
