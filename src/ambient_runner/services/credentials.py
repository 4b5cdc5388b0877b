"""Credentials, fetched for one run or one request and stored nowhere.

A source is any async function. The variables it returns go to child processes through `Run.environment`, never into this process's own
environment, a file, an event or a log: their values are registered as secrets as soon as they arrive.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import quote, urlencode, urlsplit

import anyio
from anyio import to_thread

from ambient_runner.config import SPLIT_ADVICE, is_split_by_streams
from ambient_runner.errors import CredentialsError
from ambient_runner.runs.isolate import reraise_as
from ambient_runner.services.bounded_http import send_request

if TYPE_CHECKING:
    from ambient_runner.ledger.records import ThreadKey
    from ambient_runner.projections.redaction import Secrets
    from ambient_runner.runs.run import Actor
    from ambient_runner.services.recent_grants import RecentGrants

__all__ = ["CredentialSubject", "Credentials", "RequestScope", "fetch_credentials", "from_url", "register_secrets"]

logger = logging.getLogger(__name__)

TIMEOUT = 10.0  # seconds
_MAX_RESPONSE_BYTES = 1 << 18
_MAX_REPORTED_NAMES = 1024
"""Names of variables that are reported once. A source may choose them."""
_MAX_THREADS = 32
"""Threads that wait for one source. Each source has its own, so that a slow source delays nothing else."""
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_NOT_SECRET = frozenset(
    {"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GH_HOST", "GITLAB_HOST"}
)
"""Variables that identify a person or host but prove nothing. Redacting them from every text would only confuse readers."""


class CredentialSubject(Protocol):
    """The actor and thread that credentials are fetched for: a `Run`, or a `RequestScope` for a request outside of runs."""

    @property
    def actor(self) -> Actor: ...
    @property
    def thread(self) -> ThreadKey: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


Credentials = Callable[[CredentialSubject], Awaitable[Mapping[str, str]]]
"""A source: returns the environment variables that child processes of this subject may have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestScope:
    """A request about a thread outside of a run, such as adding a repository or reading the status of MCP servers."""

    actor: Actor
    thread: ThreadKey
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


async def fetch_credentials(
    source: Credentials | None,
    subject: CredentialSubject,
    secrets: Secrets,
    recent: RecentGrants | None = None,
    *,
    timeout: float = TIMEOUT,
) -> dict[str, str]:
    """Return the variables granted to `subject`. Their values are registered with `secrets`, and with `recent` for later, first.

    Raises: CredentialsError.
    """
    if source is None:
        return {}
    timeout_message = f"The credentials did not arrive within {timeout:g} seconds. Try again."
    with (
        reraise_as(lambda error: CredentialsError(timeout_message if isinstance(error, TimeoutError) else None)),
        anyio.fail_after(timeout),
    ):
        answer = await source(subject)
    granted = _validate_variables(answer)
    _report_split_variables(granted)
    await to_thread.run_sync(register_secrets, secrets, granted)  # A key file of many kilobytes takes its time.
    if recent is not None:
        recent.remember(subject.actor.tenant, subject.actor.owner, _secret_values(granted))
    return granted


def register_secrets(secrets: Secrets, granted: Mapping[str, str]) -> None:
    """Redact these values from everything the server writes from now on."""
    secrets.add(_secret_values(granted))


def _report_split_variables(granted: Mapping[str, str]) -> None:
    """Warn about variables whose values are not redacted in every stream."""
    for name, value in granted.items():
        if name not in _NOT_SECRET and is_split_by_streams(value):
            _warn_once_of_split(name)


@lru_cache(maxsize=_MAX_REPORTED_NAMES)
def _warn_once_of_split(name: str) -> None:
    logger.warning(
        "The granted %s is redacted as a whole, but not if an agent streams it in pieces: %s.", name, SPLIT_ADVICE
    )


def _secret_values(granted: Mapping[str, str]) -> list[str]:
    return [value for name, value in granted.items() if name not in _NOT_SECRET]


def _validate_variables(answer: object) -> dict[str, str]:
    """Return a source's answer as environment variables. Its values never appear in an error message."""
    if not isinstance(answer, Mapping):
        raise CredentialsError(
            "The credentials source did not return an object of names and strings. Ask its operator to correct it."
        )
    granted: dict[str, str] = {}
    for name, value in cast("Mapping[object, object]", answer).items():
        if not isinstance(name, str) or not _VARIABLE_NAME.fullmatch(name):
            raise CredentialsError(
                "The credentials source returned a name that is not valid for an environment variable. Ask its operator to correct it."
            )
        if not isinstance(value, str) or "\0" in value or not _is_writable(value):
            raise CredentialsError(
                f"The credentials source returned a value for {name} that is not a string. Ask its operator to correct it."
            )
        granted[name] = value
    return granted


def _is_writable(value: str) -> bool:
    """Return True if the value can be passed to a child process. A lone surrogate cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def from_url(url: str, token: str = "", *, timeout: float = TIMEOUT) -> Credentials:
    """Return a source that sends GET to `url` with `tenant`, `owner` and `thread` in the query.

    The response is a JSON object, or 204 for no credentials.
    """
    threads = anyio.CapacityLimiter(_MAX_THREADS)

    async def fetch(subject: CredentialSubject) -> Mapping[str, str]:
        query = {"tenant": subject.actor.tenant, "owner": subject.actor.owner, "thread": subject.thread.id}
        body = await to_thread.run_sync(
            _request_variables, url, query, token, timeout, abandon_on_cancel=True, limiter=threads
        )
        try:
            return cast("Mapping[str, str]", json.loads(body)) if body else {}
        except ValueError as error:
            raise CredentialsError(
                "The credentials source did not return JSON. Ask its operator to correct it: it must return an object of names and strings."
            ) from error

    return fetch


def _request_variables(url: str, query: Mapping[str, str], token: str, timeout: float) -> bytes:
    parts = urlsplit(url)
    merged_query = "&".join(filter(None, (parts.query, urlencode(query, quote_via=quote))))
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        response = send_request(
            "GET",
            parts._replace(query=merged_query).geturl(),
            headers=headers,
            timeout=timeout,
            limit=_MAX_RESPONSE_BYTES + 1,
        )
    except OSError as error:
        raise CredentialsError("The credentials source cannot be reached. Try again in a moment.") from error
    if response.status not in {200, 204}:
        raise CredentialsError(
            f"The credentials source returned status {response.status}. Sign in again, or ask its operator."
        )
    if len(response.body) > _MAX_RESPONSE_BYTES:
        raise CredentialsError(
            "The credentials source returned too large a response. Ask its operator to check its URL."
        )
    return response.body
