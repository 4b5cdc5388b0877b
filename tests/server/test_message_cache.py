"""A list of messages that begins as the one before is parsed as if nothing were cached."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from ambient_runner import Settings, create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.errors import InvalidInput
from ambient_runner.protocol import strict_messages
from ambient_runner.protocol.run_input import parse_input
from ambient_runner.protocol.strict_messages import NO_MESSAGES, PostedMessages
from ambient_runner.server import message_cache
from ambient_runner.server.message_cache import MessageCache
from tests.hypothesis_profiles import examples
from tests.protocol.test_strict_messages import MESSAGES
from tests.server.demo_server import client_of

if TYPE_CHECKING:
    import pytest

SEPARATORS = st.sampled_from([None, None, None, (",", ":"), (" , ", ": ")])


def outcome(body: bytes, cache: MessageCache | None) -> Any:
    try:
        with patch.object(uuid, "uuid4", return_value=uuid.UUID(int=0)):
            return parse_input(body, cache)
    except InvalidInput as error:
        return error.message


def write_body(messages: list[Any], separators: tuple[str, str] | None = None, **members: Any) -> bytes:
    wire = {"threadId": "t", "runId": "r", "messages": messages, **members}
    return json.dumps(wire, separators=separators).encode()


def write_messages(count: int) -> list[Any]:
    return [{"id": f"m{number}", "role": "user", "content": "x" * 100} for number in range(count)]


@examples(150)
@given(st.data())
def test_an_input_is_the_same_whatever_was_posted_before(data: st.DataObject) -> None:
    cache, messages = MessageCache(), list[Any]()
    with patch.object(message_cache, "_MIN_BYTES", 0):
        for _ in range(data.draw(st.integers(2, 5))):
            kept = data.draw(st.sampled_from([len(messages), len(messages), max(0, len(messages) - 1), 0]))
            messages = [*messages[:kept], *data.draw(st.lists(MESSAGES, max_size=2))]
            body = write_body(messages, data.draw(SEPARATORS), **data.draw(st.sampled_from([{}, {"x": '"'}])))
            if data.draw(st.integers(0, 4)) == 0:
                at = data.draw(st.integers(0, len(body) - 1))
                body = body[:at] + data.draw(st.sampled_from([b'"', b",", b"]", b"}", b" ", b"\\"])) + body[at + 1 :]
            assert outcome(body, cache) == outcome(body, None)


def test_only_the_new_messages_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded, decode = list[int](), strict_messages._decode_messages  # pyright: ignore[reportPrivateUsage]

    def decode_counted(text: bytes) -> Any:
        messages = decode(text)
        decoded.append(len(messages))
        return messages

    monkeypatch.setattr(strict_messages, "_decode_messages", decode_counted)
    cache = MessageCache()
    for count in (200, 200, 202, 50):
        assert len(parse_input(write_body(write_messages(count)), cache).input.messages) == count
    assert decoded == [200, 0, 2, 50]


def test_a_message_that_was_changed_is_decoded() -> None:
    cache, messages = MessageCache(), write_messages(300)
    parse_input(write_body(messages), cache)
    messages[7]["content"] = "changed"
    assert parse_input(write_body(messages), cache).input == parse_input(write_body(messages)).input


def test_thread_ids_do_not_share_what_was_posted_and_one_can_be_evicted() -> None:
    cache, known = MessageCache(), PostedMessages(b"[" + b" " * 20_000, (), 0)
    cache.put("t", known)
    assert cache.find_prefix("t", known.text + b"]") is known
    assert cache.find_prefix("other", known.text + b"]") is NO_MESSAGES
    cache.evict_thread("t")
    assert cache.find_prefix("t", known.text + b"]") is NO_MESSAGES


def test_the_lists_that_were_posted_longest_ago_are_evicted_first() -> None:
    cache, text = MessageCache(max_bytes=100_000), b"[" + b" " * 20_000
    for number in range(3):
        cache.put(f"t{number}", PostedMessages(text, (), 0))
    found = [cache.find_prefix(f"t{number}", text + b"]") is not NO_MESSAGES for number in range(3)]
    assert found == [False, True, True]
    cache.put("huge", PostedMessages(text * 10, (), 0))
    assert cache.find_prefix("huge", text * 10 + b"]") is NO_MESSAGES
    assert cache.find_prefix("t2", text + b"]") is not NO_MESSAGES


async def test_a_server_caches_what_is_posted_until_the_thread_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = list[int]()

    def decode_counted(text: bytes) -> Any:
        messages = decode(text)
        decoded.append(len(messages))
        return messages

    decode = strict_messages._decode_messages
    monkeypatch.setattr(strict_messages, "_decode_messages", decode_counted)
    headers = {"Content-Type": "application/json"}
    async with client_of(create_app(Settings(store="memory://"), {"demo": DemoBridge()})) as client:
        for count in (300, 301):
            response = await client.post("/", content=write_body(write_messages(count)), headers=headers)
            assert response.status_code == 200
        await client.delete("/thread/t")
        await client.post("/", content=write_body(write_messages(302)), headers=headers)
    assert decoded == [300, 1, 302]
