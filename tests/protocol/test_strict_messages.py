"""The strict decoding of posted messages gives what the lenient one gives, or leaves them to it."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.errors import InvalidInput
from ambient_runner.protocol import run_input
from ambient_runner.protocol.events import RunAgentInput
from ambient_runner.protocol.run_input import parse_input
from ambient_runner.protocol.strict_messages import split_strict_messages
from tests.hypothesis_profiles import examples
from tests.protocol.samples import populated

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

IDS = st.sampled_from(["a", "b", "c", "d", "é\u00a0", "x" * 256])
BAD_IDS = st.sampled_from(["", "x" * 257, "a\x07", "a\x85", None, 1])
TEXTS = st.text(max_size=4) | st.sampled_from(['say "hi"', ":", '{"a":1}', "\\", "\\u0022", "\n"])
DEEP: Any = json.loads("[" * 58 + "]" * 58)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1.5, 10**308, 10**309, DEEP, "text"]) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=3,
)
METADATA = st.dictionaries(TEXTS, VALUES, max_size=2)
PARTS = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}, optional={"id": IDS, "metadata": VALUES})
    | st.fixed_dictionaries(
        {"type": st.just("image"), "source": st.just({"type": "url", "value": "https://a.test"})},
        optional={"id": IDS},
    )
    | st.just({"type": "binary", "mimeType": "image/png", "data": "aaaa"}),
    max_size=2,
)
CALLS: SearchStrategy[Any] = st.lists(
    st.fixed_dictionaries(
        cast("dict[str, Any]", {"id": IDS, "function": st.fixed_dictionaries({"name": IDS, "arguments": TEXTS})}),
        optional=cast("dict[str, Any]", {"type": st.just("function"), "metadata": METADATA}),
    ),
    max_size=2,
)
COMMON: dict[str, SearchStrategy[Any]] = {"metadata": METADATA, "subagentRunId": IDS, "name": TEXTS}


def _messages_of(role: str, required: dict[str, SearchStrategy[Any]], **optional: SearchStrategy[Any]) -> Any:
    members: dict[str, SearchStrategy[Any]] = {"id": IDS, "role": st.just(role), **required}
    return st.fixed_dictionaries(members, optional={**COMMON, **optional})


MESSAGES = st.one_of(
    _messages_of("user", {"content": TEXTS | PARTS}),
    _messages_of("assistant", {}, content=TEXTS, toolCalls=CALLS),
    _messages_of("tool", {"toolCallId": IDS, "content": TEXTS | PARTS}),
    _messages_of("activity", {"activityType": TEXTS, "content": METADATA}),
    _messages_of("narrator", {"content": TEXTS}),
)
CHANGES = st.sampled_from(["unknown", "null", "snake", "bad id", "wrong type"])


def _outcome(body: bytes) -> Any:
    """Return the parsed input, with the same id for all that have none, or why it is refused."""
    try:
        with patch.object(uuid, "uuid4", return_value=uuid.UUID(int=0)):
            return parse_input(body)
    except InvalidInput as error:
        return error.message


def _plain_outcome(body: bytes) -> Any:
    with patch.object(run_input, "split_strict_messages", return_value=None):
        return _outcome(body)


def _change_object(members: dict[str, Any], change: str, data: st.DataObject) -> None:
    match change:
        case "unknown":
            members[data.draw(TEXTS)] = data.draw(VALUES)
        case "null":
            members[data.draw(st.sampled_from(["name", "content", "toolCalls", "metadata", "type"]))] = None
        case "snake":
            members["tool_call_id"] = members.pop("toolCallId", "a")
        case "bad id":
            members["id"] = data.draw(BAD_IDS)
        case _:
            members["content"] = 1


def _write_json(value: Any, data: st.DataObject) -> str:
    """Write JSON as any client may: with members repeated, quotes escaped in either way, and spaces."""
    match value:
        case dict():
            pairs = list(cast("dict[str, Any]", value).items())
            if pairs and data.draw(st.integers(0, 30)) == 30:
                pairs.append(data.draw(st.sampled_from(pairs)))
            return "{" + ",".join(f"{_write_json(k, data)} :{_write_json(v, data)}" for k, v in pairs) + "}"
        case list():
            return "[" + ", ".join(_write_json(item, data) for item in cast("list[Any]", value)) + "]"
        case str():
            text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
            escapes_quotes = '\\"' in text and data.draw(st.integers(0, 4)) == 4
            return text.replace('\\"', "\\u0022") if escapes_quotes else text
        case _:
            return json.dumps(value)


@examples(150)
@given(st.data())
def test_messages_are_the_same_with_and_without_strict_decoding(data: st.DataObject) -> None:
    messages: list[Any] = data.draw(st.lists(MESSAGES, max_size=4))
    for change in data.draw(st.lists(CHANGES, max_size=1)) if messages else ():
        message: Any = data.draw(st.sampled_from(messages))
        calls: list[Any] = message.get("toolCalls") or []
        _change_object(
            data.draw(st.sampled_from([message, *calls, *(call["function"] for call in calls)])), change, data
        )
    wire = {"threadId": "t", "runId": "r", "messages": messages, "state": data.draw(VALUES)}
    body = _write_json(wire, data).encode(errors="surrogatepass")
    assert _outcome(body) == _plain_outcome(body)


@examples(100)
@given(st.data())
def test_damaged_bytes_are_read_or_refused_as_without_strict_decoding(data: st.DataObject) -> None:
    body = bytearray(_well_formed_body())
    for _ in range(data.draw(st.integers(1, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from(b'"\\{}[]:,0a\x00\xff'))
    assert _outcome(bytes(body)) == _plain_outcome(bytes(body))


def test_all_kinds_of_messages_are_decoded_strictly() -> None:
    body = _well_formed_body()
    split = split_strict_messages(body, msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
    assert split
    assert split.messages == msgspec.json.decode(body, type=RunAgentInput).messages


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c", "function": {"name": "f", "arguments": ""}, "x": 1},
        {"id": "c", "function": {"name": "f", "arguments": ""}, "x": "type"},
    ],
)
def test_a_member_that_is_left_out_is_found_although_another_is_added(call: dict[str, Any]) -> None:
    """The type of a call, which may be missing, is encoded always."""
    message = {"id": "a", "role": "assistant", "toolCalls": [call]}
    body = json.dumps({"threadId": "t", "runId": "r", "messages": [message]}).encode()
    assert parse_input(body).warnings == _plain_outcome(body).warnings != []


def _well_formed_body() -> bytes:
    (sample,) = populated(RunAgentInput)
    return msgspec.json.encode(sample)
