"""What a client posts, read once at the door: a lenient RunAgentInput, and small questions about its messages.

Clients of every generation are met half-way. Missing ids are made, retired `binary` parts become media parts, repeated messages become
one; each time with a warning. `strict_json.py` reads the JSON, `lenient.py` the grammar.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, cast, get_args

import msgspec
from msgspec.structs import replace

from ambient_runner.errors import InvalidInput
from ambient_runner.protocol import lenient, strict_json
from ambient_runner.protocol.events import Message, RunAgentInput, ToolMessage, UserMessage
from ambient_runner.protocol.lenient import Warnings

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Inbound", "newest_user_message", "read_input"]

_LIMITS = {"messages": 10_000, "tools": 1_000, "context": 1_000, "resume": 100}
_ROLES = tuple(str(kind.__struct_config__.tag) for kind in get_args(Message))
_EXAMPLE = '{"messages": [{"role": "user", "content": "Hello"}]}'
_SECOND_IDS = uuid.UUID("6f1c1b0e-53a1-4f3e-9d0b-6d2b1a7c9e55")


@dataclass(frozen=True, kw_only=True, slots=True)
class Inbound:
    """A run input, and what had to be changed or left out to read it."""

    input: RunAgentInput
    warnings: list[str]
    left_out: str = ""
    """Why the first of the messages that are not in `input` is not; empty when all are."""


def read_input(body: bytes) -> Inbound:
    """The run input in a request body. Raises: InvalidInput, naming the field or place that is wrong."""
    _check_counts(body)
    given = strict_json.loads(body)
    if not isinstance(given, dict):
        raise InvalidInput("The body must be an object.")
    warnings = Warnings()
    members = _with_run_ids(cast("dict[str, Any]", given))
    if "messages" not in members:
        raise InvalidInput(f"messages is missing. Send at least {_EXAMPLE}.")
    if isinstance(members.get("messages"), list):
        members["messages"] = [
            _prepared(message, f"messages[{at}]", warnings) for at, message in enumerate(members["messages"])
        ]
    read = lenient.read(RunAgentInput, members, "", warnings)
    messages = _one_per_id([_answered(message) for message in read.messages], warnings)
    left_out = _left_out(members["messages"])
    return Inbound(input=replace(read, messages=messages), warnings=list(warnings), left_out=left_out)


def newest_user_message(messages: Sequence[Message]) -> UserMessage | None:
    """The last thing the user said, wherever it stands."""
    return next((message for message in reversed(messages) if isinstance(message, UserMessage)), None)


class _Lists(msgspec.Struct):
    """The lists of a body, left unread."""

    messages: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    context: msgspec.Raw = msgspec.Raw()
    resume: msgspec.Raw = msgspec.Raw()


_lists = msgspec.json.Decoder(_Lists).decode
_entries = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _check_counts(body: bytes) -> None:
    """Before any entry is read, so that a huge list costs next to nothing."""
    try:
        lists = _lists(body)
    except (msgspec.MsgspecError, RecursionError):
        return  # Not JSON, or not an object: the parser says where.
    for name, limit in _LIMITS.items():
        if _length(getattr(lists, name)) > limit:
            raise InvalidInput(f"{name} must have at most {limit} entries.")


def _length(raw: msgspec.Raw) -> int:
    """How many entries a list has; 0 for anything else."""
    try:
        return len(_entries(raw))
    except msgspec.MsgspecError:
        return 0


def _with_run_ids(members: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, snake in (("threadId", "thread_id"), ("runId", "run_id")):
        if members.get(name) is None and members.get(snake) is None:
            made[name] = str(uuid.uuid4())
    return members | made


def _left_out(messages: list[dict[str, Any]]) -> str:
    """The reader has passed these: each is an object with a role, which need not be one of ours."""
    for at, message in enumerate(messages):
        if message["role"] not in _ROLES:
            return f"messages[{at}] was left out: its role {message['role'][:64]!r} is none of {', '.join(_ROLES)}."
    return ""


def _prepared(message: Any, path: str, warnings: Warnings) -> Any:
    """The message with an id and without retired parts. What is not an object is left for the reader to refuse."""
    if not isinstance(message, dict):
        return message
    prepared = dict(cast("dict[str, Any]", message))
    if prepared.get("id") is None:
        prepared["id"] = str(uuid.uuid4())
    if isinstance(prepared.get("content"), list):
        prepared["content"] = _modern_parts(prepared["content"], f"{path}.content", warnings)
    return prepared


def _modern_parts(parts: list[Any], path: str, warnings: Warnings) -> list[Any]:
    """The parts with `binary` ones upgraded as the official client does it; a mirror of a modern part beside it is left out."""
    modern: list[Any] = []
    if not any(_is_binary(part) for part in parts):
        return parts
    originals = {_media_key(part) for part in parts if not _is_binary(part)}
    for at, part in enumerate(parts):
        if not _is_binary(part):
            modern.append(part)
            continue
        upgraded = _upgraded(part)
        if upgraded is None:
            warnings.add(f"{path}[{at}] is a `binary` part without a type, or without data and url, and was left out.")
        elif _media_key(upgraded) not in originals:
            warnings.add(f"{path}[{at}] is a retired `binary` part and was read as `{upgraded['type']}`.")
            modern.append(upgraded)
    return modern


def _is_binary(part: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(part, dict) and cast("dict[str, Any]", part).get("type") == "binary"


def _media_key(part: Any) -> str:
    """What makes two media parts the same attachment."""
    if not isinstance(part, dict):
        return ""
    members = cast("dict[str, Any]", part)
    return json.dumps([members.get("type"), members.get("source"), members.get("metadata")], sort_keys=True)


def _upgraded(part: dict[str, Any]) -> dict[str, Any] | None:
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


def _answered(message: Message) -> Message:
    """A tool result whose every part had to be left out is still an answer."""
    return replace(message, content="") if isinstance(message, ToolMessage) and message.content == [] else message


def _one_per_id(messages: list[Message], warnings: Warnings) -> list[Message]:
    """One message per id, as the official client shows a list with repetitions: the last content, at the first place.

    Some agents give a tool result the id of its call's message, or one id to several results. These are different messages, so
    the later ones get an id of their own, the same on every request.
    """
    kept: dict[str, Message] = {}
    for message in messages:
        first = kept.get(message.id)
        if first is not None and _identity(first) != _identity(message):
            second = str(uuid.uuid5(_SECOND_IDS, "\n".join((message.id, *_identity(message)))))
            warnings.add(f"The id {message.id!r} belongs to two different messages; the later one was renamed.")
            message = replace(message, id=second)
        elif first is not None:
            warnings.add(f"The message {message.id!r} appears twice; its last version was kept.")
        kept[message.id] = message
    return list(kept.values())


def _identity(message: Message) -> tuple[str, str]:
    role = str(message.__struct_config__.tag)
    return (role, message.tool_call_id) if isinstance(message, ToolMessage) else (role, "")
