"""Markers in every field of every event: those that reach a client of the audience `safe`, by every way to read a thread.

The events are made from the grammar (`marked_events.py`), so that a new event or field is tested as soon as it exists. The table of
`docs/how-to/audience.md` says which markers may arrive.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI, Request
from typer.testing import CliRunner

from ambient_runner import Actor, Settings, add_ambient_endpoints
from ambient_runner.bridges.agui import AGUIBridge
from ambient_runner.cli.main import app as cli
from ambient_runner.config import AudienceName
from ambient_runner.protocol.events import (
    EVENT_TYPES,
    Event,
    Interrupt,
    RunError,
    RunFinished,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
)
from tests.audience_table import Retention, documented_retention
from tests.server.marked_events import MARKER, UNKNOWN, Marked, marked, marked_run


class MarkingAgent:
    """Sends every event in its first run, asks in its second, and fails in its third."""

    async def run(self, input: Any) -> AsyncIterator[Any]:
        if input.run_id == "r1":
            for event in (*marked_run(), *UNKNOWN):
                yield event
        elif input.run_id == "r2":
            for event in (
                *_call("asked", "transfer", "<CALL.argument>"),
                *_call("shown", "show_chart", "<FRONTEND.argument>"),
            ):
                yield event
            yield _interrupted_run()
        else:
            yield marked(RunError)


def _call(call_id: str, name: str, argument: str) -> list[Event]:
    return [
        ToolCallStart(tool_call_id=call_id, tool_call_name=name),
        ToolCallArgs(tool_call_id=call_id, delta=f'{{"to": "{argument}"}}'),
        ToolCallEnd(tool_call_id=call_id),
    ]


def _interrupted_run() -> RunFinished:
    """A run that asks three times: with a marker in every field, with arguments in metadata, and with arguments in the texts only."""
    every = Marked(RunFinished).members(Interrupt, ".outcome.interrupts")
    action = {"name": "transfer", "args": {"to": "<CALL.argument>"}, "description": "<CALL.argument>?"}
    quoted = {"reason": "tool_call", "message": "To <CALL.argument>?", "toolCallId": "asked"}
    interrupts = [
        {**every, "id": "i1", "toolCallId": "asked"},
        {"id": "i2", "reason": "tool_call", "metadata": {"action_requests": [action]}},
        {"id": "i3", **quoted, "responseSchema": {"description": "<CALL.argument>", "default": "<CALL.argument>"}},
    ]
    return marked(RunFinished, outcome={"type": "interrupt", "interrupts": interrupts})


def run_body(number: int, **more: Any) -> dict[str, Any]:
    return {
        "threadId": "t",
        "runId": f"r{number}",
        "protocolVersion": "1.0",
        "messages": [
            {"id": f"u{number}", "role": "user", "content": "<INPUT.content>", "metadata": {"mine": "<INPUT.metadata>"}}
        ],
        "tools": [{"name": "show_chart", "description": "<INPUT.tool>", "parameters": {"<INPUT.parameter>": {}}}],
        "context": [{"description": "<INPUT.context>", "value": "<INPUT.context>"}],
        "forwardedProps": {"<INPUT.prop>": "<INPUT.prop>"},
        **more,
    }


RUNS = (
    run_body(1, state={"mine": "<INPUT.state>"}),
    run_body(2),
    run_body(
        3,
        resume=[
            {"interruptId": each, "status": "resolved", "payload": {"text": "<INPUT.answer>"}}
            for each in ("i1", "i2", "i3")
        ],
    ),
)


def anybody(request: Request) -> Actor:
    return Actor()


@asynccontextmanager
async def serving(audience: AudienceName, store: Path) -> AsyncGenerator[httpx.AsyncClient, None]:
    app = FastAPI()
    settings = Settings(store=f"sqlite:///{store}", audience=audience)
    add_ambient_endpoints(app, AGUIBridge(MarkingAgent()), settings=settings, authorize=anybody)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


async def post_runs(client: httpx.AsyncClient, **params: str) -> str:
    with anyio.fail_after(60):
        answers = [await client.post("/", json=run, params=params) for run in RUNS]
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    return "".join(answer.text for answer in answers)


def markers_in(text: str) -> set[tuple[str, str]]:
    """The markers as (event type, path). JSON inside JSON has backslashes between them at most."""
    return set(MARKER.findall(text))


def is_allowed(tag: str, path: str) -> bool:
    """Return True if the page lets this marker pass."""
    row = documented_retention().get(tag, Retention(set(), set(), set()))
    member, _, rest = path.partition(".")
    # A summary has the keys of the first level.
    return (tag, path) in ALLOWED or member in row.kept or (member in row.changed and rest == "key")


ALLOWED = {
    # What a client wrote itself, and the arguments of a tool that it executes.
    ("INPUT", "content"),
    ("INPUT", "metadata"),
    ("INPUT", "state"),
    ("FRONTEND", "argument"),
    # Names, in events that become others before they are stored.
    ("TOOL_CALL_CHUNK", "toolCallName"),
    ("ACTIVITY_DELTA", "activityType"),
    # Texts and names in messages that the agent restates.
    ("MESSAGES_SNAPSHOT", "messages.activity.activityType"),
    ("MESSAGES_SNAPSHOT", "messages.assistant.content"),
    ("MESSAGES_SNAPSHOT", "messages.assistant.name"),
    ("MESSAGES_SNAPSHOT", "messages.assistant.toolCalls.function.name"),
    ("MESSAGES_SNAPSHOT", "messages.assistant.toolCalls.id"),
    # References to summaries of reasoning.
    *((tag, "metadata.summaryRef") for tag in ("REASONING_START", "REASONING_END")),
    *((f"REASONING_MESSAGE_{phase}", "metadata.summaryRef") for phase in ("START", "CONTENT", "END", "CHUNK")),
    ("MESSAGES_SNAPSHOT", "messages.reasoning.metadata.summaryRef"),
}


def forbidden_in(text: str) -> set[tuple[str, str]]:
    return {marker for marker in markers_in(text) if not is_allowed(*marker)}


def test_every_event_is_sent() -> None:
    sent = {type(event) for event in marked_run()} | {RunError}
    assert sent == set(EVENT_TYPES)


async def test_the_audience_open_gets_a_marker_of_every_event(tmp_path: Path) -> None:
    """The markers do leave the agent: otherwise nothing below could fail."""
    async with serving("open", tmp_path / "s.db") as client:
        found = markers_in(await post_runs(client))
    never_stored = {"RUN_STARTED", "RAW"}
    assert {tag for tag, _ in found} >= {str(kind.__struct_config__.tag) for kind in EVENT_TYPES} - never_stored
    assert {("CALL", "argument"), ("UNKNOWN", "body"), ("UNKNOWN", "thought"), ("CUSTOM", "predicted")} <= found
    assert len({marker for marker in found if not is_allowed(*marker)}) > 100


PARAMS: list[dict[str, str]] = [
    {},
    {"strict": "1"},
    {"event_lines": "1"},
    *({"protocol": version} for version in ("0.0.59", "0.0.55", "0.0.42", "0.0.30")),
]


@pytest.mark.parametrize("params", PARAMS, ids=str)
async def test_no_stream_of_the_audience_safe_has_a_marker_that_the_page_does_not_allow(
    params: dict[str, str], tmp_path: Path
) -> None:
    async with serving("safe", tmp_path / "s.db") as client:
        live = await post_runs(client, **params)
        replayed = (await client.get("/threads/t/events", params={"until": "idle", **params})).text
        ndjson = await client.get(
            "/threads/t/events", params={"until": "idle", **params}, headers={"accept": "application/x-ndjson"}
        )
    for text in (live, replayed, ndjson.text):
        assert forbidden_in(text) == set()
        assert ("TEXT_MESSAGE_CONTENT", "delta") in markers_in(text)


async def test_no_resumed_stream_has_one_wherever_it_begins(tmp_path: Path) -> None:
    async with serving("safe", tmp_path / "s.db") as client:
        cursors = re.findall(r"^id: (.*)$", await post_runs(client), re.MULTILINE)
        for cursor in cursors:
            resumed = await client.get("/threads/t/events", params={"until": "idle"}, headers={"last-event-id": cursor})
            assert (resumed.status_code, forbidden_in(resumed.text)) == (200, set()), cursor
    assert len(cursors) > 40


@pytest.mark.parametrize(
    "path",
    ["/message_snapshot/t", "/state_snapshot/t", "/thread/list", "/tools", "/capabilities"],
)
async def test_no_other_route_has_one(path: str, tmp_path: Path) -> None:
    async with serving("safe", tmp_path / "s.db") as client:
        await post_runs(client)
        answer = await client.get(path)
    assert (answer.status_code, forbidden_in(answer.text)) == (200, set())


async def test_the_export_has_none(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    async with serving("safe", store) as client:
        await post_runs(client)
    command = ["threads", "export", "t", "--audience", "safe", "--store", f"sqlite:///{store}"]
    done = await anyio.to_thread.run_sync(lambda: CliRunner().invoke(cli, command))
    assert (done.exit_code, forbidden_in(done.stdout)) == (0, set())
    assert ("TEXT_MESSAGE_CONTENT", "delta") in markers_in(done.stdout)
