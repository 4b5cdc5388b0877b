"""The memory of an adapter leaves by no route, and an adapter gets of a request only what the settings allow."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

from ambient_runner import (
    CredentialSubject,
    FrameworkCapabilities,
    PlatformBridge,
    PlatformContext,
    add_ambient_endpoints,
    create_app,
    current_run,
)
from ambient_runner.bridges.base import remember
from ambient_runner.cli.main import app as cli
from ambient_runner.protocol.events import Event
from ambient_runner.runs.framing import SNAPSHOT_MARKER
from tests.server.demo_server import SETTINGS, client_of, error_of, frames, run_body
from tests.world import said

PRIVATE = "for nobody else"


class NotesBridge(PlatformBridge):
    """Its agent says `parts`, each in a message of its own, and remembers something around every event."""

    def __init__(self, *parts: str) -> None:
        self.parts = parts or ("one", "two")
        self.headers: list[dict[str, str]] = []

    def capabilities(self) -> FrameworkCapabilities:
        return FrameworkCapabilities()

    def create_adapter(self, ctx: PlatformContext) -> Any:
        return self

    async def run(self, input: Any) -> AsyncIterator[Event]:
        run = current_run()
        self.headers.append(dict(run.headers))
        for n, part in enumerate(self.parts):
            for event in said(f"m{n}-{run.key}", *part):
                yield remember({PRIVATE: part})
                yield event
            yield SNAPSHOT_MARKER
        yield remember({PRIVATE: "last"})


READERS: Sequence[tuple[str, dict[str, str], dict[str, str]]] = [
    ("sse", {}, {}),
    ("strict", {"strict": "1"}, {}),
    ("event lines", {"event_lines": "1"}, {}),
    ("older", {"protocol": "0.0.59"}, {}),
    ("oldest", {"protocol": "0.0.30"}, {}),
    ("ndjson", {}, {"accept": "application/x-ndjson"}),
    ("older ndjson", {"protocol": "0.0.59"}, {"accept": "application/x-ndjson"}),
]


@pytest.mark.parametrize(
    ("query", "headers"), [reader[1:] for reader in READERS], ids=[reader[0] for reader in READERS]
)
async def test_no_reader_gets_what_the_adapter_remembers(query: dict[str, str], headers: dict[str, str]) -> None:
    async with client_of(create_app(SETTINGS, {"notes": NotesBridge()})) as client:
        body = run_body("hi")
        if "protocol" in query:
            body["protocolVersion"] = query["protocol"]
        live = await client.post("/", json=body, params=query, headers=headers)
        late = await client.get("/threads/t/events", params={"until": "idle", **query}, headers=headers)
    for answer in (live, late):
        assert answer.status_code == 200
        assert "RUN_FINISHED" in answer.text
        assert '"delta":"w"' in answer.text
        assert PRIVATE not in answer.text
        assert "ambient:memory" not in answer.text


async def test_a_reader_can_resume_at_every_cursor_and_misses_nothing() -> None:
    async with client_of(create_app(SETTINGS, {"notes": NotesBridge()})) as client:
        live = frames(await client.post("/", json=run_body("hi")))
        ids = [cursor for cursor, _ in live]
        for at, cursor in enumerate(ids):
            assert cursor is not None
            resumed = await client.get("/threads/t/events", params={"until": "idle", "after": cursor})
            assert [frame for frame in frames(resumed) if frame[0]] == live[at + 1 :]
            assert PRIVATE not in resumed.text
    numbers = [int(str(cursor).rpartition(".")[2]) for cursor in ids]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] - numbers[0] + 1 > len(numbers)


async def test_neither_snapshot_shows_it() -> None:
    async with client_of(create_app(SETTINGS, {"notes": NotesBridge()})) as client:
        await client.post("/", json=run_body("hi"))
        answers = [await client.get(f"/{which}_snapshot/t") for which in ("message", "state")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert not any(PRIVATE in answer.text for answer in answers)


def test_an_export_and_a_tail_leave_it_out(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/a.db"

    async def talk() -> None:
        app = create_app(dataclasses.replace(SETTINGS, store=store), {"notes": NotesBridge()})
        async with client_of(app) as client:
            await client.post("/", json=run_body("hi"))

    anyio.run(talk)
    for command in (["export", "t"], ["tail", "t", "--until-idle"], ["show", "t"]):
        done = CliRunner().invoke(cli, ["threads", *command, "--store", store])
        assert done.exit_code == 0, done.output
        assert "assistant: two" in done.output or '"delta":"w"' in done.output
        assert PRIVATE not in done.output


def snapshots_of(response: httpx.Response) -> list[Any]:
    return [event["messages"] for _, event in frames(response) if event["type"] == "MESSAGES_SNAPSHOT"]


async def test_snapshots_in_the_middle_show_the_messages_so_far_and_the_last_one_is_the_threads() -> None:
    async with client_of(create_app(SETTINGS, {"notes": NotesBridge("ab", "cd", "e")})) as client:
        await client.post("/", json=run_body("hi"))
        live = await client.post("/", json=run_body("more", message="u2"))
        late = await client.get("/threads/t/events", params={"until": "idle"})
        stored = (await client.get("/message_snapshot/t")).json()["messages"]
    found = snapshots_of(live)
    texts = [[message["content"] for message in messages] for messages in found]
    before = ["hi", "ab", "cd", "e", "more"]
    assert texts == [[*before, *said_] for said_ in (["ab"], ["ab", "cd"], ["ab", "cd", "e"], ["ab", "cd", "e"])]
    assert found[-1] == stored
    assert snapshots_of(late)[-4:] == found
    assert frames(late)[-len(frames(live)) :] == frames(live)


async def test_agents_see_no_header_that_the_settings_do_not_name() -> None:
    sent = {"X-Tenant": "acme", "Authorization": "Bearer secret-token", "Cookie": "a=b"}
    seen: list[dict[str, str]] = []
    for names in ((), ("X-Tenant", "x-missing")):
        bridge = NotesBridge()
        settings = dataclasses.replace(SETTINGS, pass_headers=names)
        async with client_of(create_app(settings, {"notes": bridge})) as client:
            await client.post("/", json=run_body("hi"), headers=sent)
        seen += bridge.headers
    assert seen == [{}, {"x-tenant": "acme"}]


async def test_a_header_that_came_twice_is_the_same_to_a_run_and_outside_of_one() -> None:
    class Connected(NotesBridge):
        def capabilities(self) -> FrameworkCapabilities:
            return FrameworkCapabilities(mcp=True)

    seen_headers: list[dict[str, str]] = []

    async def credentials(asker: CredentialSubject) -> dict[str, str]:
        seen_headers.append(dict(asker.headers))
        return {}

    app, twice = FastAPI(), [("x-team", "red"), ("x-team", "blue")]
    settings = dataclasses.replace(SETTINGS, pass_headers=("X-Team",))
    add_ambient_endpoints(app, Connected(), settings=settings, credentials=credentials)
    async with client_of(app) as client:
        answers = [
            await client.post("/", json=run_body("hi"), headers=twice),
            await client.get("/mcp/status?threadId=t", headers=twice),
        ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert seen_headers == [{"x-team": "red, blue"}] * 2


@pytest.mark.parametrize(
    "messages", [[], [{"id": "a", "role": "assistant", "content": "hello"}]], ids=["none", "theirs"]
)
async def test_a_request_with_nothing_to_answer_is_refused_unless_the_bridge_has_a_prompt(messages: list[Any]) -> None:
    body = {**run_body("hi"), "messages": messages}
    silent, prompted = NotesBridge(), NotesBridge()
    prompted.default_prompt = "Hello"
    async with client_of(create_app(SETTINGS, {"silent": silent, "prompted": prompted})) as client:
        assert error_of(await client.post("/agents/silent", json=body)) == (422, "invalid_input")
        answer = frames(await client.post("/agents/prompted", json=body))
        stored = (await client.get("/message_snapshot/t")).json()["messages"]
    (begun,) = [event for _, event in answer if event["type"] == "RUN_STARTED"]
    assert [message["content"] for message in begun["input"]["messages"]][-1] == "Hello"
    assert [message["content"] for message in stored if message["role"] == "user"] == ["Hello"]
