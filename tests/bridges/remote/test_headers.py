"""Headers: sent as they were given, for all runs or for one, and never seen again."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

import httpx
import msgspec
import pytest

from ambient_runner.bridges.base import PlatformContext
from ambient_runner.bridges.remote import RemoteBridge
from ambient_runner.bridges.remote.config import secret_values
from ambient_runner.errors import ConfigError
from ambient_runner.protocol.agui_models import input_to_agui
from ambient_runner.protocol.events import RunAgentInput, RunError, RunFinished
from ambient_runner.runs.run import Actor, Run
from tests.bridges.remote.world import OUR_HEAD, SSE_HEAD, framed, fronting, status
from tests.world import KEY, events_of, request, said, user

TOKEN = "tok-4f9d1c77aa02"
SECRET = {"Authorization": f"Bearer {TOKEN}", "X-Team": "blue-whales"}


def sent(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in ("authorization", "x-team")}


async def test_the_headers_of_the_agent_go_with_every_request() -> None:
    async with fronting(framed(head=OUR_HEAD), status("204 No Content"), headers=SECRET) as thread:
        await thread.run(user("u1"))
        await thread.runner.erase_thread(KEY)
        assert [sent(request.headers) for request in thread.upstream.requests] == [
            {"authorization": f"Bearer {TOKEN}", "x-team": "blue-whales"}
        ] * 2


async def test_headers_can_be_made_for_each_run() -> None:
    async def passed_on(run: Run) -> dict[str, str]:
        return {"Authorization": run.headers["authorization"], "X-Team": run.thread.id}

    async with fronting(framed(), headers=passed_on) as thread:
        for name in ("one", "two"):
            await thread.run(user(name), headers={"authorization": f"Bearer of {name}"})
        assert [sent(request.headers) for request in thread.upstream.requests] == [
            {"authorization": "Bearer of one", "x-team": "t"},
            {"authorization": "Bearer of two", "x-team": "t"},
        ]


SETS_A_COOKIE = SSE_HEAD.replace(b"\r\n\r\n", b"\r\nSet-Cookie: session=of-ann; Path=/\r\n\r\n")


async def cookies_sent(client: httpx.AsyncClient | None = None, **headers: str) -> list[str | None]:
    """What goes with the runs of two users when the other server sets a cookie each time."""
    async with fronting(framed(head=SETS_A_COOKIE), headers=headers, client=client) as thread:
        for owner in ("ann", "bob"):
            start = dataclasses.replace(request(user("u1")), actor=Actor(owner=owner))
            await events_of(thread.runner, await thread.runner.start(start))
        return [request.headers.get("cookie") for request in thread.upstream.requests]


async def test_a_cookie_that_one_user_got_is_not_sent_with_another_run() -> None:
    assert await cookies_sent() == [None, None]
    assert await cookies_sent(Cookie="of=the-operator") == ["of=the-operator"] * 2


async def test_a_provided_client_keeps_its_cookies_and_accepts_none() -> None:
    async with httpx.AsyncClient(cookies={"of": "the-operator"}, trust_env=False) as client:
        assert await cookies_sent(client) == ["of=the-operator"] * 2


async def test_headers_made_for_a_run_need_one() -> None:
    adapter = RemoteBridge("http://127.0.0.1:9/", headers=lambda run: {}).create_adapter(PlatformContext())
    with pytest.raises(ConfigError):
        await anext(adapter.run(input_to_agui(RunAgentInput(thread_id="t", run_id="r", messages=[user("u1")]))))


async def test_a_function_that_fails_ends_the_run_without_a_request() -> None:
    def fails(run: Run) -> dict[str, str]:
        raise RuntimeError(f"no vault, was {TOKEN}")

    async with fronting(framed(), headers=fails) as thread:
        last = (await thread.run(user("u1")))[-1]
        assert thread.upstream.requests == []
    assert isinstance(last, RunError)
    assert (last.code, TOKEN in last.message) == ("agent_error", False)


async def test_a_credential_that_comes_back_is_not_stored_logged_or_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = status("401 Unauthorized", f'{{"error":{{"code":"{TOKEN}","message":"{TOKEN}"}}}}'.encode())
    async with fronting(framed(*said("m1", f"you sent {TOKEN[:8]}", TOKEN[8:])), echo, headers=SECRET) as thread:
        told = await thread.run(user("u1"))
        refused = await thread.run(user("u2"))
        batches = await thread.runner.ledger.read_batches(KEY, 0)
        stored = b"".join(line for batch in batches for line in batch.lines)
    assert (type(told[-1]), type(refused[-1])) == (RunFinished, RunError)
    shown = msgspec.json.encode([told, refused]) + stored
    assert TOKEN.encode() not in shown
    assert TOKEN not in caplog.text
    assert b"blue-whales" not in stored


@pytest.mark.parametrize(
    "headers",
    [
        {"Bad Name": TOKEN},
        {"": TOKEN},
        {"X-Broken": f"{TOKEN}\r\nX-Injected: 1"},
        {"X-Broken": f"{TOKEN}\x00"},
        {"X-Broken": f"{TOKEN}é"},
        {"X-Broken": f" {TOKEN}"},
        {"Host": TOKEN},
        {"Content-Length": TOKEN},
        {"accept": TOKEN},
    ],
)
async def test_a_header_that_cannot_be_sent_is_refused_without_its_value(
    headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError) as refused:
        RemoteBridge("http://127.0.0.1:1/", headers=headers)
    assert TOKEN not in refused.value.message
    async with fronting(framed(), headers=lambda run: headers) as thread:
        last = (await thread.run(user("u1")))[-1]
        assert thread.upstream.requests == []
    assert isinstance(last, RunError)
    assert TOKEN not in last.message + caplog.text


def test_only_credentials_are_secrets() -> None:
    headers: dict[str, Any] = {
        "Authorization": "Basic dXNlcjpwYXNz",
        "X-Api-Key": "key-12345678",
        "Cookie": "a=b; c=d",
        "X-Team": "blue-whales",
        "Accept-Language": "en",
    }
    assert secret_values(headers) == ["Basic dXNlcjpwYXNz", "dXNlcjpwYXNz", "key-12345678", "a=b; c=d", "c=d"]
