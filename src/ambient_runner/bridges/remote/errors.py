"""How a run behind another server fails: a code and a calm sentence. Nothing of the other server's own words goes out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ambient_runner import errors as ours
from ambient_runner.errors import BridgeError, BridgeTimeout

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["RemoteFailed", "ended_early", "not_agui", "refused", "silent", "too_large", "unreachable"]

_OURS = frozenset(
    kind.code for kind in vars(ours).values() if isinstance(kind, type) and issubclass(kind, ours.RunnerError)
)
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_AGAIN = "Try again in a moment."
_WORDS = {
    401: "The other server did not accept our credentials. Its operator has to look at the headers of this agent.",
    403: "The other server does not allow this. Its operator has to look at the headers of this agent.",
    404: "There is no agent at the address of this one. Its operator has to look at the URL.",
    405: "There is no agent at the address of this one. Its operator has to look at the URL.",
    409: f"The other server cannot take this run on this thread now. {_AGAIN}",
    413: "This conversation is too large for the other server. Start a new thread.",
    422: "The other server did not understand this run. Its operator has to look which version of AG-UI it speaks.",
    429: f"The other server has too much to do. {_AGAIN}",
    503: f"The other server takes no new work now. {_AGAIN}",
    508: "The address of this agent leads back to this server or goes round among others. Its operator has to look at the URL.",
}


class RemoteFailed(BridgeError):
    """The other server failed. Try again in a moment."""

    code = "remote_failed"
    is_expected = True

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def unreachable() -> RemoteFailed:
    return RemoteFailed("remote_unreachable", f"The server of this agent cannot be reached. {_AGAIN}")


def silent(seconds: float) -> RemoteFailed:
    return RemoteFailed(
        BridgeTimeout.code, f"The server of this agent said nothing for {seconds:g} seconds. Send your message again."
    )


def ended_early() -> RemoteFailed:
    return RemoteFailed(
        "remote_ended_early",
        "The server of this agent ended in the middle of its answer. What it said until then is kept; send your message again.",
    )


def not_agui() -> RemoteFailed:
    return RemoteFailed(
        "remote_not_agui",
        "What answers at the address of this agent is not an AG-UI server. Its operator has to look at the URL.",
    )


def too_large(limit: int) -> RemoteFailed:
    return RemoteFailed(
        "remote_too_large", f"The server of this agent sent more than {limit} bytes and was cut off. Ask it for less."
    )


def refused(status: int, body: bytes, secrets: Collection[str] = ()) -> RemoteFailed:
    """An answer that is not 200: with the other server's own code if it gave one, and one that holds none of our secrets."""
    if 300 <= status < 400:
        return RemoteFailed(
            "remote_redirects",
            "The address of this agent leads elsewhere, and redirects are not followed. Its operator has to look at the URL.",
        )
    kind = "remote_refused" if status < 500 else "remote_failed"
    words = _WORDS.get(
        status, f"The other server {'refused this run' if status < 500 else 'failed'} (HTTP {status}). {_AGAIN}"
    )
    code = _code(body)
    return RemoteFailed(kind if code is None or any(secret in code for secret in secrets) else code, words)


def _code(body: bytes) -> str | None:
    """The code in an error body: `{"error": {"code"}}`, `{"detail": {"code"}}` or `{"code"}`.

    What stands there without the name `code` is mostly a word for people, so of that only a code of ours counts.
    """
    try:
        said: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    members = cast("dict[str, Any]", said)
    for found in (members.get("error"), members.get("detail"), members):
        if isinstance(found, dict):
            code = cast("dict[str, Any]", found).get("code")
            if isinstance(code, str) and _CODE.fullmatch(code):
                return code
        elif isinstance(found, str) and found in _OURS:
            return found
    return None
