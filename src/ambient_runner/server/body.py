"""Reading a request body: JSON by its content type, and never more of it than allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.errors import InvalidInput, TooLarge, WrongType

if TYPE_CHECKING:
    from fastapi import Request


async def read_body(request: Request, limit: int, *, types: tuple[str, ...] = ("application/json",)) -> bytes:
    """The whole body. Raises: WrongType, TooLarge before it is all here, InvalidInput."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in types:
        raise WrongType
    if request.headers.get("content-encoding", "identity").lower() not in {"", "identity"}:
        raise WrongType("Send the body without a content encoding.")
    _check_length(request.headers.get("content-length"), limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def _check_length(declared: str | None, limit: int) -> None:
    if declared is None:
        return
    if not declared.isdigit():
        raise InvalidInput("Content-Length is not a number.")
    if int(declared) > limit:
        raise _too_large(limit)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"The request body is larger than {limit} bytes.")
