"""The messages of JSON-RPC 2.0, and what can be told of a line that is no complete one. Pure; `json_rpc.py` sends and receives them."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "JsonRpcError",
    "Message",
    "Notification",
    "RawMessage",
    "Request",
    "RequestId",
    "Response",
    "begins_result",
    "describe_head",
    "is_request_id",
    "parse_error",
    "parse_head",
]

INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

_BLANK = b" \t\r"
_METHOD = re.compile(rb'"method"\s*:\s*"([\w$/.-]{1,100})"')
_RESULT = re.compile(rb'"(?:result|error)"\s*:')
_SCALAR_MEMBER = re.compile(rb'\s*"(\w+)"\s*:\s*("(?:[^"\\]|\\.)*"|-?[\d.eE+-]+|null)\s*,')
"""A member at the beginning of a message whose value is no object or list, and the comma after it."""

RequestId = int | float | str | None
"""The id of a request, as its sender chose it: 0 and null are ids too."""


class JsonRpcError(Exception):
    """The other side answered a request with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


class Notification(msgspec.Struct, frozen=True):
    """A message that wants no answer."""

    method: str
    params: Any = None


class Request(msgspec.Struct, frozen=True):
    """A message that waits for `respond` or `respond_error` with its id."""

    id: RequestId
    method: str
    params: Any = None


class Response(msgspec.Struct, frozen=True):
    """The answer to a `send_request`."""

    id: RequestId
    result: Any = None
    error: JsonRpcError | None = None


Message = Notification | Request | Response


class RawMessage(msgspec.Struct):
    """The members of any JSON-RPC message."""

    id: Any = msgspec.UNSET
    method: Any = msgspec.UNSET
    params: Any = None
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET


def is_request_id(value: Any) -> bool:
    """Return True if the value of `id` is one that a request may have."""
    return value is None or type(value) in (int, float, str)


def describe_head(head: bytes) -> str:
    """Return what a message is by its beginning: its method, if it has one."""
    if method := _METHOD.search(head):
        return method[1].decode()
    return "a response" if _RESULT.search(head) else "a line that is no message"


def parse_head(head: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the first members of a message that has no end, up to one that is an object or a list, and what follows them."""
    members: dict[str, Any] = {}
    rest = head.lstrip(_BLANK).removeprefix(b"{")
    while found := _SCALAR_MEMBER.match(rest):
        try:
            members[found[1].decode()] = msgspec.json.decode(found[2])
        except (msgspec.MsgspecError, ValueError):
            return {}, b""
        rest = rest[found.end() :]
    return members, rest.lstrip()


def begins_result(rest: bytes) -> bool:
    """Return True if what follows the first members of a message is the result or the error of a response."""
    return _RESULT.match(rest) is not None


def parse_error(error: Any) -> JsonRpcError | None:
    """Return the error of a response, however it is written; None without one."""
    if error is None or error is msgspec.UNSET:
        return None
    if not isinstance(error, dict):
        return JsonRpcError(INTERNAL_ERROR, str(error))
    members = cast("dict[str, Any]", error)
    code, message = members.get("code"), members.get("message")
    return JsonRpcError(
        code if type(code) is int else INTERNAL_ERROR,
        message if type(message) is str else "The other side reported an error without a message",
        members.get("data"),
    )
