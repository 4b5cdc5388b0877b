"""Credentials: fetched for whoever asks, for one run or one request, and kept nowhere.

A source is any async function. What it gives goes to child processes through `Run.environment`, never into this process's own environment,
a file, an event or a log: its values are secrets from the moment they arrive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import quote, urlencode, urlsplit

import anyio
from anyio import to_thread

from ambient_runner.errors import CredentialsError
from ambient_runner.runs.isolate import foreign
from ambient_runner.services.bounded_http import send

if TYPE_CHECKING:
    from ambient_runner.ledger.base import ThreadKey
    from ambient_runner.projections.redaction import Secrets
    from ambient_runner.runs.run import Actor

__all__ = ["Asker", "Credentials", "Visit", "from_url", "grant", "learn"]

TIMEOUT = 10.0
_MAX_ANSWER = 1 << 18
_AT_ONCE = 32
"""Threads that wait for a source. They are its own: one that is slow holds up nothing else."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_PUBLIC = frozenset(
    {"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GH_HOST", "GITLAB_HOST"}
)
"""Who someone is and where, not what proves it: to take these out of every text would only puzzle."""


class Asker(Protocol):
    """For whom credentials are wanted. A `Run` is one; a request outside of runs is a `Visit`."""

    @property
    def actor(self) -> Actor: ...
    @property
    def thread(self) -> ThreadKey: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


Credentials = Callable[[Asker], Awaitable[Mapping[str, str]]]
"""Gives the environment variables that child processes of this asker may have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """A request for a thread that is no run: adding a repository, asking for the state of MCP servers."""

    actor: Actor
    thread: ThreadKey
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


async def grant(
    source: Credentials | None, asker: Asker, secrets: Secrets, *, timeout: float = TIMEOUT
) -> dict[str, str]:
    """What `asker` is granted; `secrets` has learned the values before anyone else sees them. Raises: CredentialsError."""
    if source is None:
        return {}
    late = f"The credentials did not arrive within {timeout:g} seconds. Try again."
    with (
        foreign(lambda error: CredentialsError(late if isinstance(error, TimeoutError) else None)),
        anyio.fail_after(timeout),
    ):
        given = await source(asker)
    granted = _checked(given)
    learn(secrets, granted)
    return granted


def learn(secrets: Secrets, granted: Mapping[str, str]) -> None:
    """From now on these values are taken out of everything the server writes."""
    secrets.learn([value for name, value in granted.items() if name not in _PUBLIC])


def _checked(given: object) -> dict[str, str]:
    """Someone else's answer as environment variables. Its values are never repeated in a message."""
    if not isinstance(given, Mapping):
        raise CredentialsError("The source of credentials must give an object of names and texts. Ask its operator.")
    granted: dict[str, str] = {}
    for name, value in cast("Mapping[object, object]", given).items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise CredentialsError(
                "The source of credentials gave a name that is no name for an environment variable. Ask its operator."
            )
        if not isinstance(value, str) or "\0" in value or not _is_writable(value):
            raise CredentialsError(
                f"The source of credentials gave a value for {name} that is not a text. Ask its operator."
            )
        granted[name] = value
    return granted


def _is_writable(value: str) -> bool:
    """Whether it can be given to a child: half a character cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def from_url(url: str, token: str = "", *, timeout: float = TIMEOUT) -> Credentials:
    """A source that asks `url` with `tenant`, `owner` and `thread` in the query. The answer is a JSON object, or 204 for nothing."""
    threads = anyio.CapacityLimiter(_AT_ONCE)

    async def fetch(asker: Asker) -> Mapping[str, str]:
        whom = {"tenant": asker.actor.tenant, "owner": asker.actor.owner, "thread": asker.thread.id}
        body = await to_thread.run_sync(_get, url, whom, token, timeout, abandon_on_cancel=True, limiter=threads)
        try:
            return cast("Mapping[str, str]", json.loads(body)) if body else {}
        except ValueError as error:
            raise CredentialsError(
                "The source of credentials did not answer with JSON. Ask its operator: it has to give an object of names and texts."
            ) from error

    return fetch


def _get(url: str, whom: Mapping[str, str], token: str, timeout: float) -> bytes:
    parts = urlsplit(url)
    query = "&".join(filter(None, (parts.query, urlencode(whom, quote_via=quote))))
    headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        answer = send(
            "GET", parts._replace(query=query).geturl(), headers=headers, timeout=timeout, limit=_MAX_ANSWER + 1
        )
    except OSError as error:
        raise CredentialsError("The source of credentials cannot be reached. Try again in a moment.") from error
    if answer.status not in {200, 204}:
        raise CredentialsError(
            f"The source of credentials answered {answer.status}. Sign in again, or ask its operator."
        )
    if len(answer.body) > _MAX_ANSWER:
        raise CredentialsError(
            "The source of credentials answered with more than can be right. Ask its operator to check its URL."
        )
    return answer.body
