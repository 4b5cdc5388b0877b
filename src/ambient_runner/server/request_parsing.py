"""Parse a request: its thread id, the headers and tokens to pass on, and its body, within a limit."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from anyio import to_thread

from ambient_runner.errors import InvalidInput, PayloadTooLarge, RequestTimedOut, UnsupportedMediaType
from ambient_runner.projections.thread_fork import ForkOrigin
from ambient_runner.protocol import strict_json
from ambient_runner.protocol.lenient import check_id, check_thread_id
from ambient_runner.protocol.profiles import is_version, profile_for_version
from ambient_runner.services.credentials import RequestScope

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from fastapi import Request

    from ambient_runner.protocol.profiles import Profile
    from ambient_runner.runs.run import Actor
    from ambient_runner.server.runtime import ServerRuntime

__all__ = [
    "RESPOND_ASYNC",
    "THREAD_MEMBERS",
    "client_profile",
    "forwarded_headers",
    "git_token_headers",
    "parse_fork_origin",
    "parse_thread_id",
    "read_chunks",
    "read_object",
    "read_text",
    "request_git_tokens",
    "request_scope",
    "wants_all_snapshots",
    "wants_async_response",
    "wants_snapshots",
]

THREAD_MEMBERS = ("threadId", "thread_id")
"""Members of a body, and query parameters, that name the thread."""

BODY_TIMEOUT = 30.0
"""Seconds that a request body may make no progress."""

RESPOND_ASYNC = "respond-async"
_MAX_BODY_BYTES = 1 << 16
_NO_THREAD = "`threadId` is missing. A server with a single thread can name it in the setting `default_thread`."
_MIN_TOKEN_LENGTH, _MAX_TOKEN_LENGTH = 8, 4096
_TOKEN_HEADERS = {"x-github-token": "GITHUB_TOKEN", "x-gitlab-token": "GITLAB_TOKEN"}


async def read_object(request: Request) -> dict[str, Any]:
    """Return the body, which must be a JSON object. Raises: UnsupportedMediaType, PayloadTooLarge, InvalidInput."""
    value = strict_json.loads(await read_body(request, _MAX_BODY_BYTES))
    if not isinstance(value, dict):
        raise InvalidInput("The body must be a JSON object.")
    return cast("dict[str, Any]", value)


async def request_scope(
    runtime: ServerRuntime, request: Request, actor: Actor, body: Mapping[str, Any] | None = None
) -> RequestScope:
    """Return the actor and thread of a request: the thread id in the body or query, else the default thread. Starts the runtime.

    Raises: InvalidInput; what opening the store raises.
    """
    thread = parse_thread_id(body or {}, request.query_params, default=runtime.settings.default_thread)
    key = actor.thread_key(thread)
    (await runtime.ensure_runner()).secrets.check_thread_id(key)
    headers = forwarded_headers(request, runtime.settings.pass_headers)
    return RequestScope(actor=actor, thread=key, headers=headers)


def parse_thread_id(*sources: Mapping[str, Any], default: str = "") -> str:
    """Return the first thread id, under `threadId` or `thread_id`; else the default. Raises: InvalidInput."""
    thread_ids = [source[name] for source in sources for name in THREAD_MEMBERS if source.get(name)]
    thread = thread_ids[0] if thread_ids else default
    if not isinstance(thread, str) or not thread:
        raise InvalidInput(_NO_THREAD)
    check_thread_id(thread, "threadId")
    return thread


def forwarded_headers(request: Request, names: Iterable[str]) -> Mapping[str, str]:
    """Return the headers that are passed on to agents. Repeated headers are joined, as in HTTP."""
    values_by_name = {name.lower(): request.headers.getlist(name) for name in names}
    return MappingProxyType({name: ", ".join(values) for name, values in values_by_name.items() if values})


def request_git_tokens(request: Request) -> dict[str, str]:
    """Return the git tokens of the request, for this one clone, by the name of their environment variable. Raises: InvalidInput."""
    return {_TOKEN_HEADERS[header]: token for header, token in git_token_headers(request).items()}


def git_token_headers(request: Request) -> dict[str, str]:
    """Return the headers of the request that hold a git token. Raises: InvalidInput."""
    tokens = {header: value for header in _TOKEN_HEADERS if (value := request.headers.get(header, "").strip())}
    for value in tokens.values():
        if not _MIN_TOKEN_LENGTH <= len(value) <= _MAX_TOKEN_LENGTH:
            raise InvalidInput(
                f"A token must have {_MIN_TOKEN_LENGTH} to {_MAX_TOKEN_LENGTH} characters. Send the whole token, or none."
            )
    return tokens


def read_text(body: Mapping[str, Any], name: str, *, required: bool = False) -> str:
    """Return a string member without surrounding whitespace; empty if absent or null. Raises: InvalidInput."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"`{name}` must be a string.")
    if required and not (value or "").strip():
        raise InvalidInput(f"`{name}` is missing.")
    return (value or "").strip()


def client_profile(request: Request, declared: str | None, assumed: str) -> Profile:
    """Return the profile of the client: by `?protocol=` or X-Ambient-Protocol, by the input's `protocolVersion`, else as assumed.

    Raises: InvalidInput.
    """
    explicit = request.query_params.get("protocol", request.headers.get("x-ambient-protocol"))
    if explicit is not None and not is_version(explicit):
        raise InvalidInput("`protocol` must be a version of AG-UI or of its client, such as 1.0 or 0.0.55.")
    return profile_for_version(explicit or declared or assumed)


def wants_snapshots(request: Request) -> bool:
    """Return False if the client asks for a stream without the MESSAGES_SNAPSHOT of its runs. Raises: InvalidInput."""
    value = request.query_params.get("snapshots", "1")
    if value not in {"0", "1", "all"}:
        raise InvalidInput("`snapshots` can only be `0`, `1` or `all`.")
    return value != "0"


def wants_all_snapshots(request: Request) -> bool:
    """Return True if the client asks for the snapshots too that a replay leaves out."""
    return request.query_params.get("snapshots") == "all"


def parse_fork_origin(request: Request) -> ForkOrigin | None:
    """Return the conversation that the thread of a run begins with: `?fork=THREAD&before=MESSAGE`. Raises: InvalidInput."""
    thread, before = request.query_params.get("fork"), request.query_params.get("before")
    if thread is None and before is None:
        return None
    if not thread or not before:
        raise InvalidInput(
            "`fork` and `before` go together: the thread to copy, and the user message before which the copy ends."
        )
    check_id(thread, "fork")
    check_id(before, "before")
    return ForkOrigin(thread_id=thread, message_id=before)


def wants_async_response(request: Request) -> bool:
    """Return True if the client prefers an answer as soon as its run has begun (RFC 7240). Other preferences are ignored."""
    preferences = ",".join(request.headers.getlist("prefer")).split(",")
    return any(each.partition(";")[0].strip().lower() == RESPOND_ASYNC for each in preferences)


async def read_run_body(request: Request, limit: int) -> bytes:
    """Return the whole JSON text of a run input. `parse_input` counts its values, where it parses them. Raises: as `read_body`."""
    return await _read_typed_body(request, limit, None)


async def read_body(request: Request, limit: int, *, media_types: tuple[str, ...] | None = None) -> bytes:
    """Return the JSON text of a request. Its media type is one of `media_types`; by default any JSON type.

    Raises: UnsupportedMediaType; PayloadTooLarge as soon as it has more than `limit` bytes, or if it has too many values; RequestTimedOut.
    """
    body = await _read_typed_body(request, limit, media_types)
    await _check_value_count(body)
    return body


async def _read_typed_body(request: Request, limit: int, media_types: tuple[str, ...] | None) -> bytes:
    """Return the body of a request with one of these media types; with any JSON type if there are none. Raises: as `read_body`."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not (_is_json_type(media_type) if media_types is None else media_type in media_types):
        raise UnsupportedMediaType
    if request.headers.get("content-encoding", "identity").lower() not in {"", "identity"}:
        raise UnsupportedMediaType("Send the body without a content encoding.")
    _check_length(request.headers.get("content-length"), limit)
    body, now = bytearray(), asyncio.get_running_loop().time
    try:
        # One timeout that every chunk extends costs less than one for each, as `read_chunks` has: most bodies arrive whole.
        async with asyncio.timeout(BODY_TIMEOUT) as timeout, aclosing(request.stream()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit)
                timeout.reschedule(now() + BODY_TIMEOUT)
    except TimeoutError as error:
        raise RequestTimedOut from error
    return bytes(body)


async def _check_value_count(body: bytes) -> None:
    """Check the number of JSON values in a body, whatever a route decodes of it. Raises: PayloadTooLarge."""
    if len(body) > strict_json.MAX_VALUES:  # A shorter one cannot have more values.
        with suppress(InvalidInput):  # The route refuses it, with its own code.
            await to_thread.run_sync(strict_json.check_value_count, body)


async def read_chunks(request: Request) -> AsyncGenerator[bytes, None]:
    """Yield the body as it arrives. Raises: RequestTimedOut if nothing arrives for 30 seconds."""
    chunks = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(
                BODY_TIMEOUT
            ):  # A fifth of the cost of a cancel scope, for every chunk of every request.
                chunk = await anext(chunks, None)
        except TimeoutError as error:
            raise RequestTimedOut from error
        if chunk is None:
            return
        yield chunk


def _is_json_type(media_type: str) -> bool:
    """Return True for `application/json` and types based on it, such as `application/vnd.api+json`."""
    return media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json"))


def _check_length(declared: str | None, limit: int) -> None:
    if declared is None:
        return
    if not declared.isdigit():
        raise InvalidInput("Content-Length is not a number.")
    if int(declared) > limit:
        raise _too_large(limit)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The request body is larger than {limit} bytes.")
