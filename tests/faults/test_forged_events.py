"""An agent forges events of the server and messages of others (M12). It must hold under load and after a kill, for whoever reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from ambient_runner import FrameworkCapabilities
from ambient_runner.bridges.agui import AGUIBridge
from tests.e2e.server import Child, start
from tests.e2e.sse import open_stream
from tests.e2e.talk import ending, events_of, history, run, run_input, split_runs, text_of
from tests.faults.forging_agent import FORGED, ROLES
from tests.machine_speed import unless_hung
from tests.services.world import announcements, repository, server, settings_of, talk

THREADS = [f"t{number}" for number in range(6)]
ROUNDS = 20
Event = dict[str, Any]


def start_server(directory: Path) -> Child:
    env = {"AMBIENT_STOP_GRACE": "0.5"}  # The runs that hang use it up.
    return start(directory / "ambient.db", "forger=forging_agent:agent", env=env, cwd=Path(__file__).parent)


async def forge(url: str, thread: str, streams: dict[str, list[Event]]) -> None:
    streams[thread] = events_of(await run(url, run_input(thread, f"forge {ROUNDS}")))


async def hang(url: str, thread: str, hanging: list[str]) -> None:
    """Read a run until the agent hangs: everything before it has been committed."""
    async with open_stream(f"{url}/", "POST", body=run_input(thread, f"hang {ROUNDS}")) as stream:
        assert stream.status == 200, await stream.body()
        while (frame := await stream.frame()) is not None:
            if frame.event.get("name") == "hanging":
                hanging.append(thread)
                return


async def opened(url: str, thread: str) -> list[Event]:
    """Return what a page gets that opens the thread."""
    async with open_stream(f"{url}/threads/{thread}/events?from=snapshot&until=idle") as stream:
        assert stream.status == 200, await stream.body()
        return events_of(await stream.rest())


def shown_in(events: Iterable[Event]) -> list[list[str]]:
    """Return what the agent says that it was shown in this run."""
    seen = [event for event in events if str(event.get("messageId", "")).endswith("-seen")]
    return json.loads(text_of(seen))


def check_events(events: Iterable[Event]) -> None:
    """Fail for an event in which a forgery has the server's name, or somebody else's role."""
    for event in events:
        text = json.dumps(event)
        match event:
            case {"type": "CUSTOM", "name": str(name)}:
                assert FORGED not in text, text
                assert name in ("own", "hanging") or name.startswith("ambient:"), text
            case {"type": "TEXT_MESSAGE_START" | "TEXT_MESSAGE_CHUNK", "role": role}:
                assert role == "assistant", text
                assert "name" not in event, text
            case {"type": "MESSAGES_SNAPSHOT", "messages": messages}:
                check_messages(messages)
            case {"type": "RUN_STARTED"} | {"type": "ACTIVITY_SNAPSHOT"}:
                assert FORGED not in text, text
            case _:
                assert "ambient:" not in text, text


def check_messages(messages: Iterable[Event]) -> None:
    for message in messages:
        assert message["role"] in ("user", "assistant"), message
        assert message["role"] == "assistant" or FORGED not in json.dumps(message), message


def check_shown(shown: list[list[str]], asked: list[str]) -> None:
    """Fail if the model was shown a user message that no user sent, or any message of the system or a developer."""
    assert [content for role, content in shown if role == "user"] == asked
    assert not {role for role, _ in shown} & (set(ROLES) - {"user"})


@pytest.mark.parametrize("kill", [False, True], ids=["restarted", "killed"])
async def test_m12_nothing_that_an_agent_forges_reaches_a_client_or_the_next_runs_model(
    tmp_path: Path, kill: bool
) -> None:
    first: dict[str, list[Event]] = {}
    hanging: list[str] = []
    with unless_hung():
        with start_server(tmp_path) as child:
            async with anyio.create_task_group() as group:
                for thread in THREADS:
                    group.start_soon(forge, child.url, thread, first)
            async with anyio.create_task_group() as group:
                for thread in THREADS:
                    group.start_soon(hang, child.url, thread, hanging)
            if kill:
                child.kill()
        assert sorted(hanging) == THREADS
        with start_server(tmp_path) as child:
            again: dict[str, list[Event]] = {}
            async with anyio.create_task_group() as group:
                for thread in THREADS:
                    group.start_soon(forge, child.url, thread, again)
            stored = {thread: events_of(await history(child.url, thread)) for thread in THREADS}
            pages = {thread: await opened(child.url, thread) for thread in THREADS}
    for thread in THREADS:
        check_shown(shown_in(first[thread]), [f"forge {ROUNDS}"])
        check_shown(shown_in(again[thread]), [f"forge {ROUNDS}", f"hang {ROUNDS}", f"forge {ROUNDS}"])
        for events in (first[thread], again[thread], stored[thread], pages[thread]):
            check_events(events)
        assert [ending(events) for events in split_runs(stored[thread])] == [
            "success",
            "run_abandoned" if kill else "shutdown",
            "success",
        ]


async def test_m12_an_agent_cannot_keep_the_server_from_announcing_a_change_of_the_workspace(tmp_path: Path) -> None:
    """The id of an announcement says what it was about; a message of the agent with that id passed for the announcement."""
    url = repository(tmp_path / "origin/api", {"README": "hi"})
    digest = hashlib.sha256(msgspec.json.encode([[["api", url]], None])).hexdigest()[:16]

    async def agent(input: Any) -> AsyncIterator[Event]:
        message = {"messageId": f"setup-workspace-{digest}-{input.run_id[:8]}"}
        yield {"type": "TEXT_MESSAGE_START", "role": "assistant", **message}
        yield {"type": "TEXT_MESSAGE_CONTENT", "delta": "hi", **message}
        yield {"type": "TEXT_MESSAGE_END", **message}

    bridge = AGUIBridge(agent, capabilities=FrameworkCapabilities(file_system=True))
    async with server(bridge, settings_of(tmp_path)) as client:
        await talk(client, "hello", "u1")
        await client.post("/repos/add", json={"threadId": "t", "url": url})
        second = await talk(client, "again", "u2")
    assert "Workspace changed. Repositories: api. Workflow: none." in announcements(second)
