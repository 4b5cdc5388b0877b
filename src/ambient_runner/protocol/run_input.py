"""Parsing of a RunAgentInput from a request body, once, at the edge.

Older clients are accepted: missing ids are generated, retired `binary` parts become media parts, and repeated messages are merged. The last
two add a warning. `strict_json.py` parses the JSON, `lenient.py` applies the grammar.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, cast, get_args

import msgspec
from msgspec.structs import replace

from ambient_runner.errors import InvalidInput
from ambient_runner.protocol import lenient, strict_json
from ambient_runner.protocol.events import Message, RunAgentInput, ToolMessage, UserMessage
from ambient_runner.protocol.lenient import Warnings
from ambient_runner.protocol.strict_messages import split_strict_messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.protocol.strict_messages import PostedMessageCache

__all__ = ["ParsedInput", "newest_user_message", "parse_input"]

_LIMITS = {"messages": 10_000, "tools": 1_000, "context": 1_000, "resume": 10_000}
_ROLES = tuple(str(kind.__struct_config__.tag) for kind in get_args(Message))
_EXAMPLE = '{"messages": [{"role": "user", "content": "Hello"}]}'
_RENAMED_ID_NAMESPACE = uuid.UUID("6f1c1b0e-53a1-4f3e-9d0b-6d2b1a7c9e55")


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedInput:
    """A run input, and what was changed or left out to read it."""

    input: RunAgentInput
    warnings: list[str]
    skip_reason: str = ""
    """Reason why the first of the skipped messages is not in `input`; empty if none was skipped."""


def parse_input(body: bytes, message_cache: PostedMessageCache | None = None) -> ParsedInput:
    """Return the run input in a request body. Messages that are in `message_cache`, from an earlier body, are not decoded again.

    Raises: InvalidInput, naming the field that is wrong; PayloadTooLarge.
    """
    strict_json.check_value_count(body)
    members = _split_members(body)
    _check_counts(members)
    split = split_strict_messages(body, members, message_cache)
    if split is not None:
        with suppress(InvalidInput):  # Refused below, with the positions in the whole body.
            return _read_input(split.rest, split.messages)
    return _read_input(body)


def _read_input(body: bytes, decoded: list[Message] | None = None) -> ParsedInput:
    """Return the run input in a body, of which the messages may be decoded already. Raises: InvalidInput."""
    body_value = strict_json.loads(body)
    if not isinstance(body_value, dict):
        raise InvalidInput("The body must be an object.")
    warnings = Warnings()
    members = _add_missing_ids(cast("dict[str, Any]", body_value))
    if members.get("resume") or decoded is not None:
        members.setdefault("messages", [])
    if "messages" not in members:
        raise InvalidInput(f"messages is missing. Send at least {_EXAMPLE}.")
    if isinstance(members.get("messages"), list):
        members["messages"] = [
            _prepare_message(message, f"messages[{at}]", warnings) for at, message in enumerate(members["messages"])
        ]
    run_input = lenient.read_struct(RunAgentInput, members, "", warnings)
    posted = run_input.messages if decoded is None else decoded
    messages = _deduplicate_messages([_with_content(message) for message in posted], warnings)
    left_out = _skip_reason(members["messages"])
    return ParsedInput(input=replace(run_input, messages=messages), warnings=list(warnings), skip_reason=left_out)


def newest_user_message(messages: Sequence[Message]) -> UserMessage | None:
    """Return the last user message, at any position; None if there is none."""
    return next((message for message in reversed(messages) if isinstance(message, UserMessage)), None)


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _split_members(body: bytes) -> dict[str, msgspec.Raw]:
    """Return the members of a body, not decoded; none if it is not JSON, or not an object: `strict_json.loads` reports where."""
    try:
        return _decode_members(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _check_counts(members: Mapping[str, msgspec.Raw]) -> None:
    """Check the length of each list before its entries are decoded, so that a huge list costs little."""
    for name, limit in _LIMITS.items():
        if name in members and _count_entries(members[name]) > limit:
            raise InvalidInput(f"{name} must have at most {limit} entries.")


def _count_entries(raw: msgspec.Raw) -> int:
    """Return the number of entries of a list; 0 for anything else."""
    try:
        return len(_decode_entries(raw))
    except msgspec.MsgspecError:
        return 0


def _add_missing_ids(members: dict[str, Any]) -> dict[str, Any]:
    missing: dict[str, Any] = {}
    for name, snake in (("threadId", "thread_id"), ("runId", "run_id")):
        if members.get(name) is None and members.get(snake) is None:
            missing[name] = str(uuid.uuid4())
    return members | missing


def _skip_reason(messages: list[dict[str, Any]]) -> str:
    """Return the reason for the first message with an unknown role, without the role. `lenient.py` has checked that each has one."""
    for at, message in enumerate(messages):
        if message["role"] not in _ROLES:
            return f"messages[{at}] was left out: its role is none of {', '.join(_ROLES)}."
    return ""


def _prepare_message(message: Any, path: str, warnings: Warnings) -> Any:
    """Return the message with an id and without retired parts. `lenient.py` refuses what is not an object."""
    if not isinstance(message, dict):
        return message
    prepared = dict(cast("dict[str, Any]", message))
    if prepared.get("id") is None:
        prepared["id"] = str(uuid.uuid4())
    if isinstance(prepared.get("content"), list):
        prepared["content"] = _upgrade_parts(prepared["content"], f"{path}.content", warnings)
    return prepared


def _upgrade_parts(parts: list[Any], path: str, warnings: Warnings) -> list[Any]:
    """Return the parts with `binary` ones upgraded as in the official client. A `binary` copy of another part is left out."""
    upgraded_parts: list[Any] = []
    if not any(_is_binary(part) for part in parts):
        return parts
    originals = {_media_key(part) for part in parts if not _is_binary(part)}
    for at, part in enumerate(parts):
        if not _is_binary(part):
            upgraded_parts.append(part)
            continue
        upgraded = _upgrade_binary(part)
        if upgraded is None:
            warnings.add(f"{path}[{at}] is a `binary` part without a type, or without data and url, and was left out.")
        elif _media_key(upgraded) not in originals:
            warnings.add(f"{path}[{at}] is a retired `binary` part and was read as `{upgraded['type']}`.")
            upgraded_parts.append(upgraded)
    return upgraded_parts


def _is_binary(part: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(part, dict) and cast("dict[str, Any]", part).get("type") == "binary"


def _media_key(part: Any) -> str:
    """Return a key that is equal for two media parts with the same attachment."""
    if not isinstance(part, dict):
        return ""
    members = cast("dict[str, Any]", part)
    return json.dumps([members.get("type"), members.get("source"), members.get("metadata")], sort_keys=True)


def _upgrade_binary(part: dict[str, Any]) -> dict[str, Any] | None:
    mime = part.get("mimeType") or part.get("mime_type")
    kind = "data" if part.get("data") else "url"
    value, filename = part.get(kind), part.get("filename")
    if not isinstance(mime, str) or not isinstance(value, str) or not value:
        return None
    family = mime.partition("/")[0]
    upgraded: dict[str, Any] = {
        "type": family if family in ("image", "audio", "video") else "document",
        "source": {"type": kind, "value": value, "mimeType": mime},
    }
    return upgraded | {"metadata": {"filename": filename}} if isinstance(filename, str) and filename else upgraded


def _with_content(message: Message) -> Message:
    """Return a tool result with empty text if all its parts were left out: it still answers its call."""
    return replace(message, content="") if isinstance(message, ToolMessage) and message.content == [] else message


def _deduplicate_messages(messages: list[Message], warnings: Warnings) -> list[Message]:
    """Return one message per id, as the official client shows a list with repetitions: the last content at the first position.

    Some agents give a tool result the id of its call's message, or one id to several results. These are different messages, so
    the later ones get a new id, the same on every request.
    """
    if len({message.id for message in messages}) == len(messages):
        return messages
    by_id: dict[str, Message] = {}
    for message in messages:
        first = by_id.get(message.id)
        if first is not None and _message_identity(first) != _message_identity(message):
            second = str(uuid.uuid5(_RENAMED_ID_NAMESPACE, "\n".join((message.id, *_message_identity(message)))))
            warnings.add(f"The id {message.id!r} belongs to two different messages; the later one was renamed.")
            message = replace(message, id=second)
        elif first is not None:
            warnings.add(f"The message {message.id!r} appears twice; its last version was used.")
        by_id[message.id] = message
    return list(by_id.values())


def _message_identity(message: Message) -> tuple[str, str]:
    role = str(message.__struct_config__.tag)
    return (role, message.tool_call_id) if isinstance(message, ToolMessage) else (role, "")
