"""What a request carries besides its run input: the thread it names, headers and tokens to pass on, and a bounded body."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.errors import InvalidInput, TooLarge, WrongType
from ambient_runner.protocol import strict_json
from ambient_runner.protocol.lenient import check_id
from ambient_runner.services.credentials import Visit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fastapi import Request

    from ambient_runner.runs.run import Actor
    from ambient_runner.server.runtime import Service

__all__ = ["brought_tokens", "named_thread", "passed_headers", "read_object", "text_of", "visit_of"]

_MAX_BODY = 1 << 16
_NO_THREAD = (
    "Say which thread is meant: `threadId`. A server that has only one can name it in the setting `default_thread`."
)
_SHORTEST_TOKEN, _LONGEST_TOKEN = 8, 4096
_TOKENS = {"x-github-token": "GITHUB_TOKEN", "x-gitlab-token": "GITLAB_TOKEN"}


async def read_object(request: Request) -> dict[str, Any]:
    """The body, which is one object. Raises: WrongType, TooLarge, InvalidInput."""
    value = strict_json.loads(await read_body(request, _MAX_BODY))
    if not isinstance(value, dict):
        raise InvalidInput("The body must be a JSON object.")
    return cast("dict[str, Any]", value)


async def visit_of(service: Service, request: Request, actor: Actor, body: Mapping[str, Any] | None = None) -> Visit:
    """Who asks about which thread: named in the body or in the query, else the server's own. The service runs from now on.

    Raises: InvalidInput; what opening the store raises.
    """
    thread = named_thread(body or {}, request.query_params, default=service.settings.default_thread)
    await service.runner()
    headers = passed_headers(request, service.settings.pass_headers)
    return Visit(actor=actor, thread=actor.thread(thread), headers=headers)


def named_thread(*places: Mapping[str, Any], default: str = "") -> str:
    """The thread that is named first, as `threadId` or as the ADR's `thread_id`; else the default. Raises: InvalidInput."""
    named = [place[name] for place in places for name in ("threadId", "thread_id") if place.get(name)]
    thread = named[0] if named else default
    if not isinstance(thread, str) or not thread:
        raise InvalidInput(_NO_THREAD)
    check_id(thread, "threadId")
    return thread


def passed_headers(request: Request, names: Iterable[str]) -> Mapping[str, str]:
    """The headers that code of others may see. Several of one name become one, as HTTP joins them."""
    given = {name.lower(): request.headers.getlist(name) for name in names}
    return MappingProxyType({name: ", ".join(values) for name, values in given.items() if values})


def brought_tokens(request: Request) -> dict[str, str]:
    """Tokens the request itself brings for git, for this one clone. Raises: InvalidInput."""
    given = {name: value for header, name in _TOKENS.items() if (value := request.headers.get(header, "").strip())}
    for value in given.values():
        if not _SHORTEST_TOKEN <= len(value) <= _LONGEST_TOKEN:
            raise InvalidInput(
                f"A token in a header has {_SHORTEST_TOKEN} to {_LONGEST_TOKEN} characters. Send the whole token, or none."
            )
    return given


def text_of(body: Mapping[str, Any], name: str, *, needed: bool = False) -> str:
    """A member that is text; empty when it is absent or null. Raises: InvalidInput."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"`{name}` must be a text.")
    if needed and not (value or "").strip():
        raise InvalidInput(f"`{name}` is missing.")
    return (value or "").strip()


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
