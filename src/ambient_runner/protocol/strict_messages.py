"""Strict decoding of posted messages, for clients that post all of theirs with every run: it takes a third of the time of the lenient one.

Messages that need leniency are left to `lenient.py`, as is every error, so that a client cannot tell the two apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from ambient_runner.protocol import strict_json
from ambient_runner.protocol.events import AssistantMessage, Message, ToolMessage
from ambient_runner.protocol.ids import CONTROL_CHARS, MAX_ID_LENGTH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.protocol.events import ContentPart, ToolCall

__all__ = ["SplitInput", "split_strict_messages"]


class SplitInput(NamedTuple):
    """The messages of a run input, and the JSON of its other members."""

    messages: list[Message]
    rest: bytes


class _Call(msgspec.Struct):
    type: Literal["function"]


class _Calls(msgspec.Struct, rename="camel"):
    """The tool calls of a message if each of them has a type, which is optional in posted messages and always encoded."""

    tool_calls: list[_Call] | None = None


_decode_messages = msgspec.json.Decoder(list[Message]).decode
_decode_calls = msgspec.json.Decoder(list[_Calls]).decode
_encode = msgspec.json.Encoder().encode


def split_strict_messages(body: bytes, members: Mapping[str, msgspec.Raw]) -> SplitInput | None:
    """Return the messages in a body with these members, and the rest of it, which is not checked; None if they need leniency."""
    raw = members.get("messages")
    if raw is None:
        return None
    try:
        messages = _decode_messages(raw)
        if _list_calls(messages):
            _decode_calls(raw)
        encoded = _encode(messages)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    others = [_encode(name) + b":" + bytes(value) for name, value in members.items() if name != "messages"]
    rest = b"{" + b",".join(others) + b"}"
    if not _has_all_members(body, encoded, rest) or not _has_valid_ids(messages) or _has_extreme_values(encoded):
        return None
    return SplitInput(messages, rest)


def _has_all_members(body: bytes, encoded: bytes, rest: bytes) -> bool:
    """Return False if a member of the body was left out: unknown, null, or the first of two with one name.

    Each has quotes around its name. A quote within a string is escaped in one of two ways, and the encoder uses the other one.
    """
    quotes = encoded.count(b'"') + rest.count(b'"') + len('""')
    return body.count(b'"') == quotes and rb"\u0022" not in body


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
