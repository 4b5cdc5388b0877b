"""Errors of runs on another server: a code and a message of ours. Texts of the other server are never passed on to clients."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from ambient_runner import errors as ours
from ambient_runner.errors import BridgeError, BridgeTimeout
from ambient_runner.protocol.strict_json import is_too_deep

if TYPE_CHECKING:
    from collections.abc import Collection

    from ambient_runner.protocol.events import RunError, SubagentError

__all__ = [
    "RemoteFailed",
    "ended_early",
    "hide_error_text",
    "is_missing_route",
    "no_response",
    "not_agui",
    "parse_response",
    "request_refused",
    "server_unreachable",
    "too_large",
    "tools_unknown",
]

_KNOWN_CODES = frozenset(
    kind.code for kind in vars(ours).values() if isinstance(kind, type) and issubclass(kind, ours.RunnerError)
)
_RUN_ERRORS: dict[str, type[ours.RunnerError]] = {
    kind.code: kind
    for kind in vars(ours).values()
    if isinstance(kind, type) and issubclass(kind, BridgeError | ours.ServiceError | ours.LedgerError | ours.Draining)
}
"""The errors that end a run which has begun, by their code."""
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_TRY_AGAIN = "Try again in a moment."
_MESSAGES = {
    401: "The other server rejected our credentials. The operator must check the headers of this agent.",
    403: "The other server denied access. The operator must check the headers of this agent.",
    404: "There is no agent at the URL of this agent. The operator must check the URL.",
    405: "There is no agent at the URL of this agent. The operator must check the URL.",
    409: f"The other server cannot accept this run on this thread now. {_TRY_AGAIN}",
    413: "This conversation is too large for the other server. Start a new thread.",
    422: "The other server did not accept the input of this run. The operator must check which version of AG-UI it supports.",
    429: f"The other server is overloaded. {_TRY_AGAIN}",
    503: f"The other server accepts no new runs now. {_TRY_AGAIN}",
    508: "The URL of this agent leads back to this server or forms a loop among servers. The operator must check the URL.",
}

_NOT_OPEN = (
    "The other server shows only the safe part of a run, which must not be stored as the conversation. Its operator must set the "
    "audience of this agent to open."
)


class RemoteFailed(BridgeError):
    """The other server failed. Try again in a moment."""

    code = "remote_failed"
    is_expected = True

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def server_unreachable() -> RemoteFailed:
    return RemoteFailed("remote_unreachable", f"The server of this agent cannot be reached. {_TRY_AGAIN}")


def no_response(seconds: float) -> RemoteFailed:
    return RemoteFailed(
        BridgeTimeout.code, f"The server of this agent sent nothing for {seconds:g} seconds. Send your message again."
    )


def ended_early() -> RemoteFailed:
    return RemoteFailed(
        "remote_ended_early",
        "The server of this agent broke off its response. What it sent until then is stored; send your message again.",
    )


def not_agui() -> RemoteFailed:
    return RemoteFailed(
        "remote_not_agui",
        "The server at the URL of this agent is not an AG-UI server. The operator must check the URL.",
    )


def too_large(limit: int) -> RemoteFailed:
    return RemoteFailed(
        "remote_too_large",
        f"The server of this agent sent more than {limit} bytes and was cut off. Ask for less at once.",
    )


def tools_unknown() -> RemoteFailed:
    return RemoteFailed(
        "remote_tools_unknown",
        "The server of this agent does not list its tools as Ambient Runner does: it is another AG-UI server, or an older version.",
    )


def request_refused(status: int, body: bytes, secrets: Collection[str] = ()) -> RemoteFailed:
    """Return the error for a status other than 200, with the other server's code if it sent one that contains none of our secrets."""
    if 300 <= status < 400:
        return RemoteFailed(
            "remote_redirects",
            "The URL of this agent redirects, and redirects are not followed. The operator must check the URL.",
        )
    kind = "remote_refused" if status < 500 else "remote_failed"
    message = _MESSAGES.get(
        status, f"The other server {'refused this run' if status < 500 else 'failed'} (HTTP {status}). {_TRY_AGAIN}"
    )
    code = _parse_error_code(body)
    if code == ours.AudienceNotOpen.code:
        message = _NOT_OPEN
    return RemoteFailed(kind if code is None or any(secret in code for secret in secrets) else code, message)


def hide_error_text(error: RunError | SubagentError, secrets: Collection[str] = ()) -> RunError | SubagentError:
    """Return the error with a message of ours. Its code stays if it is one and contains none of our secrets."""
    code = error.code or BridgeError.code
    known = _RUN_ERRORS.get(code)
    if not _CODE.fullmatch(code) or any(secret in code for secret in secrets):
        code = RemoteFailed.code
    message = known().message if known else f"The agent failed on the other server. {_TRY_AGAIN}"
    return replace(error, message=message, code=code, metadata=None)


def is_missing_route(status: int, body: bytes) -> bool:
    """Return True if the other server has no such route: a 404 or 405 that is not about a thread, a repository or a file."""
    return status in {404, 405} and _parse_error_code(body) not in _KNOWN_CODES


def parse_response(status: int, body: bytes, secrets: Collection[str] = ()) -> Any:
    """Return the JSON of a response, or of an error that another Ambient Runner reports to the user. Raises: RemoteFailed."""
    is_reported = status not in {401, 403} and _parse_error_code(body) in _KNOWN_CODES
    if not 200 <= status < 300 and not is_reported:
        raise request_refused(status, body, secrets)
    if is_too_deep(body):
        raise not_agui()
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise not_agui() from error


def _parse_error_code(body: bytes) -> str | None:
    """Return the code in an error body: `{"error": {"code"}}`, `{"detail": {"code"}}` or `{"code"}`.

    A string in place of the object is usually a message for people, so it counts only if it is one of our codes.
    """
    if is_too_deep(body):
        return None
    try:
        payload: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if not isinstance(payload, dict):
        return None
    members = cast("dict[str, Any]", payload)
    for found in (members.get("error"), members.get("detail"), members):
        if isinstance(found, dict):
            code = cast("dict[str, Any]", found).get("code")
            if isinstance(code, str) and _CODE.fullmatch(code):
                return code
        elif isinstance(found, str) and found in _KNOWN_CODES:
            return found
    return None
