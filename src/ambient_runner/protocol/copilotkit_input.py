"""Requests of CopilotKit's client besides run inputs: the envelope of its single route, stops, changes of threads, annotations. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args
from urllib.parse import unquote, urlsplit

import msgspec

from ambient_runner.errors import InvalidInput, InvalidMethod
from ambient_runner.protocol import strict_json

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Annotation",
    "Envelope",
    "Method",
    "ResourcePath",
    "parse_annotation",
    "parse_envelope",
    "parse_resource_path",
    "parse_stopped_run",
]

Method = Literal["info", "agent/run", "agent/connect", "agent/suggest", "agent/stop", "resource/request"]
"""The methods of the single route."""

_METHODS: tuple[Method, ...] = get_args(Method)
_PARAMS: dict[Method, tuple[str, ...]] = {
    "info": (),
    "agent/run": ("agentId",),
    "agent/connect": ("agentId",),
    "agent/suggest": ("agentId",),
    "agent/stop": ("agentId", "threadId"),
    "resource/request": ("path", "httpMethod"),
}
_ENVELOPE_HINT = 'Send {"method": "…", "params": {…}, "body": {…}}.'
_MAX_EVENT_ID_LENGTH = 256
_FEEDBACK_VALUES = ("thumbs_up", "thumbs_down")


class _RawEnvelope(msgspec.Struct):
    method: msgspec.Raw = msgspec.Raw()
    params: msgspec.Raw = msgspec.Raw()
    body: msgspec.Raw = msgspec.Raw()


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """A request to the single route. `body` is the JSON of the request it stands for; empty if it has none."""

    method: Method
    params: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourcePath:
    """The path of a `resource/request` below the runtime's URL: its decoded segments, and the query as it was sent."""

    segments: tuple[str, ...]
    query: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotation:
    """Feedback on a message, as an annotation of the client. `event_id` identifies it: the client may send it again."""

    thread_id: str
    event_id: str
    message_id: str
    value: str
    comment: str | None


def parse_envelope(body: bytes) -> Envelope:
    """Return the request in the body of the single route. The body inside is not decoded. Raises: InvalidMethod, PayloadTooLarge."""
    strict_json.check_value_count(body)
    if strict_json.is_too_deep(body, strict_json.MAX_DEPTH + 1):
        raise InvalidMethod(f"The body is nested too deeply. {_ENVELOPE_HINT}")
    try:
        raw = msgspec.json.decode(body, type=_RawEnvelope)
        method = msgspec.json.decode(raw.method, type=str) if raw.method else ""
        params = msgspec.json.decode(raw.params, type=dict[str, Any] | None) if raw.params else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMethod(f"The body is not such a request. {_ENVELOPE_HINT}") from error
    if method not in _METHODS:
        raise InvalidMethod(f"`method` must be one of {', '.join(_METHODS)}.")
    inner = bytes(raw.body)
    return Envelope(method=method, params=_check_params(method, params or {}), body=b"" if inner == b"null" else inner)


def _check_params(method: Method, params: Mapping[str, Any]) -> dict[str, str]:
    checked: dict[str, str] = {}
    for name in _PARAMS[method]:
        value = params.get(name)
        if not isinstance(value, str) or not value:
            raise InvalidMethod(f"`{method}` needs `params.{name}`, a text.")
        checked[name] = value
    return checked


def parse_resource_path(path: str) -> ResourcePath:
    """Return the path of a `resource/request`. Raises: InvalidMethod for any path but those of threads and annotations."""
    refusal = InvalidMethod("`params.path` must be a path below `/threads`, or `/annotate`, without a host.")
    try:
        parts = urlsplit(path)
        segments = tuple(unquote(segment, errors="strict") for segment in parts.path.split("/")[1:])
    except ValueError as error:
        raise refusal from error
    is_plain = (
        not (parts.scheme or parts.netloc or parts.fragment) and parts.path.startswith("/") and path.isprintable()
    )
    if not is_plain or "\\" in path or any(segment in {"", ".", ".."} for segment in segments):
        raise refusal
    if segments[0] != "threads" and segments != ("annotate",):
        raise refusal
    return ResourcePath(segments=segments, query=parts.query)


def parse_stopped_run(body: bytes) -> str:
    """Return the client's id of the run to stop; empty if the body names none. Raises: InvalidInput."""
    if not body.strip():
        return ""
    run_id = _parse_object(body).get("runId")
    if run_id is not None and not isinstance(run_id, str):
        raise InvalidInput("`runId` must be a string.")
    return run_id or ""


def parse_annotation(body: bytes) -> Annotation:
    """Return the feedback of an annotation. Raises: InvalidInput for its shape, and for every type but `feedback`."""
    members = _parse_object(body)
    if members.get("type") != "feedback":
        raise InvalidInput("`type` must be `feedback`: this server stores no other annotations.")
    payload = members.get("payload")
    if not isinstance(payload, dict):
        raise InvalidInput('`payload` must be {"messageId": "…", "value": "thumbs_up" or "thumbs_down"}.')
    feedback = cast("dict[str, Any]", payload)
    value = _read_text(feedback, "value", "payload.value")
    if value not in _FEEDBACK_VALUES:
        raise InvalidInput(f"`payload.value` must be one of {', '.join(_FEEDBACK_VALUES)}.")
    comment = feedback.get("comment")
    return Annotation(
        thread_id=_read_text(members, "threadId", "threadId"),
        event_id=_read_text(members, "clientEventId", "clientEventId", max_length=_MAX_EVENT_ID_LENGTH),
        message_id=_read_text(feedback, "messageId", "payload.messageId"),
        value=value,
        comment=None if comment is None else _read_text(feedback, "comment", "payload.comment"),
    )


def _parse_object(body: bytes) -> dict[str, Any]:
    value = strict_json.loads(body)
    if not isinstance(value, dict):
        raise InvalidInput("The body must be a JSON object.")
    return cast("dict[str, Any]", value)


def _read_text(members: Mapping[str, Any], name: str, path: str, *, max_length: int | None = None) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"`{path}` must be a text.")
    if max_length is not None and len(value) > max_length:
        raise InvalidInput(f"`{path}` has more than {max_length} characters.")
    return value
