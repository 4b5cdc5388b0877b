"""Chunks of text that are read from their line, against the same line read as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ambient_runner.bridges.acp.text_chunks import parse_text_chunk

TEXTS = st.text(max_size=20)
VALUES = st.one_of(
    st.none(), st.integers(), TEXTS, st.lists(TEXTS, max_size=2), st.dictionaries(TEXTS, TEXTS, max_size=2)
)


def chunk_line(text: str = "hello ", **changes: Any) -> dict[str, Any]:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}, "messageId": "m1"}
    line = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s1", "update": update}}
    return line | changes


def members(line: bytes) -> Any:
    """Return the parameters of the chunk in a line; None without one."""
    chunk = parse_text_chunk(line)
    if chunk is None:
        return None
    update = chunk.update
    return {
        "sessionId": chunk.session_id,
        "update": {
            "sessionUpdate": update.kind,
            "content": {"type": update.content.type, "text": update.content.text},
            "messageId": update.message_id,
        },
    }


@given(text=TEXTS, kind=st.sampled_from(["agent_message_chunk", "agent_thought_chunk"]), message_id=st.none() | TEXTS)
def test_a_plain_chunk_has_the_members_of_its_json(text: str, kind: str, message_id: str | None) -> None:
    line = chunk_line(text)
    line["params"]["update"] |= {"sessionUpdate": kind, "messageId": message_id}
    encoded = json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if any("\ud800" <= character <= "\udfff" for character in text + (message_id or "")):
        assert parse_text_chunk(encoded) is None
    else:
        assert members(encoded) == line["params"]


@given(st.sampled_from([(), ("params",), ("params", "update"), ("params", "update", "content")]), TEXTS, VALUES)
def test_a_line_with_any_other_member_is_no_plain_chunk(path: tuple[str, ...], name: str, value: Any) -> None:
    line = chunk_line()
    target: dict[str, Any] = line
    for step in path:
        target = target[step]
    is_known = name in target
    target[name] = value
    found = members(json.dumps(line).encode())
    assert found is None or (is_known and found == line["params"])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"_chunk",
        b'"agent_message_chunk"',
        json.dumps(chunk_line(id=1)).encode(),
        json.dumps(chunk_line(method="session/other_chunk")).encode(),
        json.dumps(chunk_line()).encode() * 2,
        json.dumps(chunk_line()).encode()[:-1],
        json.dumps(chunk_line("[" * 500)).encode() + b"[" * 500,
    ],
)
def test_anything_else_is_left_to_be_parsed_as_a_message(line: bytes) -> None:
    assert parse_text_chunk(line) is None
