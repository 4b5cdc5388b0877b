"""Strict decoding of posted messages, for clients that post all of theirs with every run: it takes a third of the time of the lenient one.

Messages that need leniency are left to `lenient.py`, as is every error, so that a client cannot tell the two apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec

from ambient_runner.protocol import strict_json
from ambient_runner.protocol.events import AssistantMessage, Message, ToolMessage
from ambient_runner.protocol.ids import CONTROL_CHARS, MAX_ID_LENGTH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.protocol.events import ContentPart, ToolCall

__all__ = ["NO_MESSAGES", "PostedMessageCache", "PostedMessages", "SplitInput", "split_strict_messages"]


class SplitInput(NamedTuple):
    """The messages of a run input, and the JSON of its other members."""

    messages: list[Message]
    rest: bytes


class PostedMessages(NamedTuple):
    """Messages that need no leniency, and their JSON without the closing bracket."""

    text: bytes
    messages: tuple[Message, ...]
    quote_count: int
    """Number of quotes in their JSON."""


NO_MESSAGES = PostedMessages(b"[", (), 0)


class PostedMessageCache(Protocol):
    """The messages that were posted last to each thread."""

    def find_prefix(self, thread_id: str, text: bytes) -> PostedMessages:
        """Return the messages that were posted last if the list begins with all of them, else `NO_MESSAGES`."""
        ...

    def put(self, thread_id: str, messages: PostedMessages) -> None:
        """Keep the messages of a list, in place of those that the thread had."""
        ...


class _Call(msgspec.Struct):
    type: Literal["function"]


class _Calls(msgspec.Struct, rename="camel"):
    """The tool calls of a message if each of them has a type, which is optional in posted messages and always encoded."""

    tool_calls: list[_Call] | None = None


_decode_messages = msgspec.json.Decoder(list[Message]).decode
_decode_calls = msgspec.json.Decoder(list[_Calls]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


def split_strict_messages(
    body: bytes, members: Mapping[str, msgspec.Raw], message_cache: PostedMessageCache | None = None
) -> SplitInput | None:
    """Return the messages in a body with these members, and the rest of it, which is not checked; None if they need leniency.

    Those that were posted before are found in `message_cache`, and the others are added there.
    """
    raw = members.get("messages")
    if raw is None:
        return None
    text, thread_id = bytes(raw), _decode_thread_id(members)
    known = message_cache.find_prefix(thread_id, text) if message_cache is not None and thread_id else NO_MESSAGES
    new_text = b"[" + text[len(known.text) :].removeprefix(b",") if known.messages else text
    try:
        messages = _decode_messages(new_text)
        if _list_calls(messages):
            _decode_calls(new_text)
        encoded = _encode(messages)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    others = [_encode(name) + b":" + bytes(value) for name, value in members.items() if name != "messages"]
    rest = b"{" + b",".join(others) + b"}"
    quote_count = known.quote_count + encoded.count(b'"')
    if not _has_all_members(body, quote_count, rest) or not _has_valid_ids(messages) or _has_extreme_values(encoded):
        return None
    posted = PostedMessages(text[:-1], (*known.messages, *messages), quote_count)
    if message_cache is not None and thread_id and text.endswith(b"]"):
        message_cache.put(thread_id, posted)
    return SplitInput(list(posted.messages), rest)


def _decode_thread_id(members: Mapping[str, msgspec.Raw]) -> str:
    """Return the thread id of a body; empty if it has none, or one that is refused later."""
    try:
        thread_id = _decode_text(members.get("threadId") or members.get("thread_id") or b'""')
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return thread_id if len(thread_id) <= MAX_ID_LENGTH else ""


def _has_all_members(body: bytes, quote_count: int, rest: bytes) -> bool:
    """Return False if a member of the body was left out: unknown, null, or the first of two with one name.

    Each has quotes around its name; `quote_count` is that of the messages as they are encoded. A quote within a string is escaped in
    one of two ways, and the encoder uses the other one.
    """
    return body.count(b'"') == quote_count + rest.count(b'"') + len('""') and rb"\u0022" not in body


def _has_valid_ids(messages: list[Message]) -> bool:
    """Return True if `lenient.py` accepts all ids: they are searched as one text."""
    ids = [message.id for message in messages]
    ids += [message.subagent_run_id for message in messages if message.subagent_run_id is not None]
    ids += [message.tool_call_id for message in messages if isinstance(message, ToolMessage)]
    for call in _list_calls(messages):
        ids += (call.id, call.function.name)
    ids += [part.id for part in _list_parts(messages) if part.id is not None]
    return all(ids) and len(max(ids, key=len, default="")) <= MAX_ID_LENGTH and not _has_control_chars("".join(ids))


def _has_control_chars(text: str) -> bool:
    # `isprintable` takes a tenth of the time of the search.
    return not text.isprintable() and CONTROL_CHARS.search(text) is not None


def _has_extreme_values(encoded: bytes) -> bool:
    """Return True if `strict_json.py` might refuse a value. Only metadata and activities have values of any kind."""
    if b'"metadata":' not in encoded and b'"role":"activity"' not in encoded:
        return False
    return strict_json.is_too_deep(encoded, strict_json.MAX_DEPTH - 1) or strict_json.has_long_number(encoded)


def _list_calls(messages: list[Message]) -> list[ToolCall]:
    return [call for message in messages if isinstance(message, AssistantMessage) for call in message.tool_calls or ()]


def _list_parts(messages: list[Message]) -> list[ContentPart]:
    return [part for message in messages if isinstance(message.content, list) for part in message.content]
