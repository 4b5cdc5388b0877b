"""Credentials: requests to the source, valid answers, and that no value is repeated in a message."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import pytest

from ambient_runner.config import SPLIT_ADVICE
from ambient_runner.errors import CredentialsError, Unauthorized
from ambient_runner.ledger.records import ThreadKey
from ambient_runner.projections.redaction import Redactor, Secrets
from ambient_runner.runs.run import Actor
from ambient_runner.services.credentials import (
    Credentials,
    CredentialSubject,
    RequestScope,
    fetch_credentials,
    from_url,
)
from tests.machine_speed import unless_hung

ALICE = RequestScope(actor=Actor(tenant="acme", owner="alice & bob"), thread=ThreadKey("acme", "alice & bob", "t/1"))


class Backend:
    """An HTTP server that answers every GET with `status`, `body` and `headers`, and records the requests."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.requests: list[tuple[str, str | None]] = []
        backend = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                backend.requests.append((self.path, self.headers["Authorization"]))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/credentials"


@contextmanager
def backend(status: int = 200, body: bytes = b"{}", headers: Mapping[str, str] | None = None) -> Generator[Backend]:
    one = Backend(status, body, headers or {})
    thread = threading.Thread(target=one.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield one
    finally:
        one.server.shutdown()
        thread.join()
        one.server.server_close()


def giving(value: object) -> Credentials:
    async def give(asker: CredentialSubject) -> Any:
        return value

    return give


async def refusal(source: Credentials, **options: Any) -> str:
    with pytest.raises(CredentialsError) as caught:
        await fetch_credentials(source, ALICE, Secrets(()), **options)
    return caught.value.message


async def test_without_a_source_nothing_is_granted() -> None:
    assert await fetch_credentials(None, ALICE, Secrets(())) == {}


async def test_granted_credentials_are_secret_but_a_users_name_is_not() -> None:
    secrets = Secrets(())
    answer = {"GITHUB_TOKEN": "ghx-0123456789", "GIT_AUTHOR_NAME": "Alice Example"}
    assert await fetch_credentials(giving(answer), ALICE, secrets) == answer
    assert Redactor(secrets).redact_text("Alice Example has ghx-0123456789") == "Alice Example has [redacted]"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        ["A"],
        {"A": 1},
        {"A": None},
        {"A-B": "quiet"},
        {"": "quiet"},
        {"A=B": "quiet"},
        {"A": "quiet\0"},
        {"A": "quiet\ud800"},
        {1: "quiet"},
    ],
)
async def test_an_invalid_environment_is_refused_without_repeating_it(answer: object) -> None:
    message = await refusal(giving(answer))
    assert "quiet" not in message
    assert "Ask its operator" in message


async def test_a_failing_source_is_a_credentials_error_without_its_text() -> None:
    async def fail(asker: CredentialSubject) -> Mapping[str, str]:
        raise RuntimeError("the token was ghx-0123456789")

    assert await refusal(fail) == str(CredentialsError())


async def test_a_source_may_raise_a_credentials_error_itself() -> None:
    async def deny(asker: CredentialSubject) -> Mapping[str, str]:
        raise Unauthorized

    with pytest.raises(Unauthorized):
        await fetch_credentials(deny, ALICE, Secrets(()))


async def test_a_source_that_never_responds_times_out() -> None:
    async def wait(asker: CredentialSubject) -> Mapping[str, str]:
        await anyio.sleep_forever()
        raise AssertionError

    with unless_hung():
        assert "within 0.05 seconds" in await refusal(wait, timeout=0.05)


async def test_credentials_are_fetched_for_one_actor_and_thread_with_the_servers_token() -> None:
    with backend(body=json.dumps({"GITHUB_TOKEN": "of-alice"}).encode()) as one:
        source = from_url(f"{one.url}?kind=git", "bearer-of-the-server")
        assert await fetch_credentials(source, ALICE, Secrets(())) == {"GITHUB_TOKEN": "of-alice"}
    assert one.requests == [
        ("/credentials?kind=git&tenant=acme&owner=alice%20%26%20bob&thread=t%2F1", "Bearer bearer-of-the-server")
    ]


async def test_no_content_means_nothing_was_granted() -> None:
    with backend(204, b"") as one:
        assert await fetch_credentials(from_url(one.url), ALICE, Secrets(())) == {}
    assert one.requests[0][1] is None


async def test_a_redirect_is_not_followed_so_the_token_goes_nowhere_else() -> None:
    with backend() as elsewhere, backend(302, headers={"Location": elsewhere.url}) as one:
        assert "returned status 302" in await refusal(from_url(one.url, "bearer-of-the-server"))
    assert elsewhere.requests == []


@pytest.mark.parametrize("status", [401, 403, 404, 500])
async def test_a_refusing_response_is_reported_with_its_status(status: int) -> None:
    with backend(status, b"details") as one:
        message = await refusal(from_url(one.url))
    assert f"returned status {status}" in message
    assert "details" not in message


@pytest.mark.parametrize("body", [b"[]", b"{", b'"x"', b'{"A": "\\ud800"}', b"x" * ((1 << 18) + 1)])
async def test_an_answer_that_is_no_object_of_texts_is_refused(body: bytes) -> None:
    with backend(body=body) as one:
        assert "Ask its operator" in await refusal(from_url(one.url))


async def test_an_unreachable_backend_is_reported() -> None:
    with backend() as one:
        url = one.url
    assert "cannot be reached" in await refusal(from_url(url))


def test_a_visit_does_not_show_its_headers() -> None:
    visit = RequestScope(actor=Actor(), thread=ALICE.thread, headers={"x-github-token": "of-alice"})
    assert "of-alice" not in repr(visit)


async def test_a_granted_value_that_a_stream_may_split_is_reported_once_by_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def grant(subject: CredentialSubject) -> Mapping[str, str]:
        return {
            "PHRASE_OF_GRANTS": "zebra lamp onyx quill",
            "QUOTED_GRANT": "9fK2;qLw7;xYz4",
            "WHOLE_GRANT": "9fK2qLw7-xYz41",
        }

    for _ in range(2):
        await fetch_credentials(grant, ALICE, Secrets([]))
    named = [record.args for record in caplog.records if record.name == "ambient_runner.services.credentials"]
    assert named == [("PHRASE_OF_GRANTS", SPLIT_ADVICE), ("QUOTED_GRANT", SPLIT_ADVICE)]
