"""Credentials of a run: the agent does not start without them, no other run has them, and they are dropped with the run."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi import FastAPI

from ambient_runner import add_ambient_endpoints
from ambient_runner.services.credentials import CredentialSubject
from ambient_runner.telemetry.tracing import tracing
from tests.machine_speed import unless_hung
from tests.server.demo_server import client_of, error_of, frames, run_body
from tests.server.worker import WorkerBridge
from tests.services.world import announcements, by_header, ending, mcp_file, server, settings_of, talk, tokens_of
from tests.telemetry.world import spans_of


async def test_without_credentials_the_agent_does_not_start_and_the_thread_is_free(tmp_path: Path) -> None:
    answers: list[Mapping[str, str] | Exception] = [
        RuntimeError("it was granted-token"),
        {"GITHUB_TOKEN": "granted-token"},
    ]

    async def give(asker: CredentialSubject) -> Mapping[str, str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    bridge = WorkerBridge(mcp=False)
    async with server(bridge, settings_of(tmp_path), credentials=give) as client:
        failed = await talk(client, "hello", "u1")
        assert bridge.contexts == []
        well = await talk(client, "hello", "u2")
    assert ending(failed) == ("RUN_ERROR", "credentials_error")
    assert "granted-token" not in json.dumps(failed)
    assert announcements(failed) == ["ambient:capabilities", "ambient:setup_error"]
    problem = next(event["value"] for event in failed if event.get("name") == "ambient:setup_error")
    assert problem == {"stage": "credentials", "message": failed[-1]["message"]}
    assert ending(well) == ("RUN_FINISHED", "success")
    assert announcements(well) == ["Auth connected", "Workspace validated"]


async def test_the_log_has_the_cause_of_a_failed_set_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(asker: CredentialSubject) -> Mapping[str, str]:
        raise RuntimeError("the vault is sealed")

    async with server(WorkerBridge(), settings_of(tmp_path), credentials=fail) as client:
        events = await talk(client, "hello", "u1")
    assert "the vault is sealed" in caplog.text
    assert "the vault is sealed" not in json.dumps(events)


async def test_a_run_can_be_stopped_while_it_is_being_set_up(tmp_path: Path) -> None:
    requested = anyio.Event()

    async def hang(asker: CredentialSubject) -> Mapping[str, str]:
        requested.set()
        await anyio.sleep_forever()
        raise NotImplementedError

    bridge = WorkerBridge()
    events: list[dict[str, Any]] = []
    with unless_hung():
        async with server(bridge, settings_of(tmp_path), credentials=hang) as client:

            async def run() -> None:
                events.extend(await talk(client, "hello", "u1"))

            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await requested.wait()
                assert (await client.post("/interrupt", json={"threadId": "t"})).status_code == 200
    assert (ending(events), bridge.contexts) == (("RUN_FINISHED", "cancelled"), [])


async def test_two_users_at_once_have_only_their_own_credentials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S6, S8: in the reference one person's running turn saw the other's token, and every child had the server's own."""
    monkeypatch.setenv("AMBIENT_CREDENTIALS_TOKEN", "token-of-the-server")
    monkeypatch.setenv("PROVIDER_API_KEY", "key-of-the-provider")
    caplog.set_level(logging.DEBUG)

    async def give(asker: CredentialSubject) -> Mapping[str, str]:
        return {"GITHUB_TOKEN": f"token-of-{asker.actor.owner}"}

    bridge = WorkerBridge(meeting=2)
    spoken: dict[str, str] = {}
    with unless_hung(), spans_of() as spans:
        options = {"credentials": give, "authorize": by_header, "middleware": [tracing(spans.provider, content=True)]}
        async with server(bridge, settings_of(tmp_path), **options) as client:

            async def run(owner: str) -> None:
                headers = {"x-owner": owner}
                response = await client.post("/", json=run_body("meet", thread="shared"), headers=headers)
                history = await client.get("/message_snapshot/shared", headers=headers)
                spoken[owner] = response.text + history.text
                assert ending([event for _, event in frames(response)]) == ("RUN_FINISHED", "success")

            async with anyio.create_task_group() as group:
                group.start_soon(run, "alice")
                group.start_soon(run, "bob")
        traces = str(spans.all)
    had = {owner: env for owner, _, env in bridge.children}
    assert {owner: env["GITHUB_TOKEN"] for owner, env in had.items()} == {
        "alice": "token-of-alice",
        "bob": "token-of-bob",
    }
    assert not {"AMBIENT_CREDENTIALS_TOKEN", "PROVIDER_API_KEY"} & {name for env in had.values() for name in env}
    assert len({cwd for _, cwd, _ in bridge.children}) == 2
    everything = "".join(spoken.values()) + caplog.text + traces
    assert "[redacted]" in traces
    secrets = ("token-of-alice", "token-of-bob", "token-of-the-server", "key-of-the-provider")
    assert [secret for secret in secrets if secret in everything] == []
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))
    assert [secret for secret in secrets if secret.encode() in stored] == []
    written = [path for path in (tmp_path / "workspaces").rglob("*") if path.is_file()]
    assert [path for path in written if any(secret.encode() in path.read_bytes() for secret in secrets)] == []


async def test_credentials_are_dropped_with_the_run(tmp_path: Path) -> None:
    bridge = WorkerBridge(mcp=False)
    async with server(bridge, settings_of(tmp_path), credentials=tokens_of(GITHUB_TOKEN="granted-token")) as client:
        await talk(client, "hello", "u1")
    assert [run.environment for run in bridge.runs] == [{}]
    assert "granted-token" not in repr(bridge.runs[0])


async def test_credentials_are_dropped_with_a_run_that_is_stopped(tmp_path: Path) -> None:
    bridge = WorkerBridge(mcp=False)
    with unless_hung():
        async with server(bridge, settings_of(tmp_path), credentials=tokens_of(GITHUB_TOKEN="granted-token")) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(talk, client, "wait", "u1")
                await bridge.waiting.wait()
                assert bridge.runs[0].environment["GITHUB_TOKEN"] == "granted-token"
                await client.post("/interrupt", json={"threadId": "t"})
    assert bridge.runs[0].environment == {}


async def test_each_run_has_its_own_token_and_all_of_them_are_redacted(tmp_path: Path) -> None:
    """S7: in the reference only tokens known at the start of the process were taken out, and not from snapshots."""
    tokens = iter(["first-token-value", "second-token-value"])

    async def give(asker: CredentialSubject) -> Mapping[str, str]:
        return {"GITHUB_TOKEN": next(tokens)}

    bridge = WorkerBridge(mcp=False)
    async with server(bridge, settings_of(tmp_path), credentials=give) as client:
        first = await client.post("/", json=run_body("hello", message="u1"))
        second = await client.post("/", json=run_body("refresh", message="u2"))
        history = await client.get("/message_snapshot/t")
    assert [child[2]["GITHUB_TOKEN"] for child in bridge.children] == ["first-token-value", "second-token-value"]
    spoken = first.text + second.text + history.text
    assert "[redacted]" in history.text
    assert [word for word in ("first", "second", "refreshed") if f"{word}-token-value" in spoken] == []
    assert announcements([event for _, event in frames(second)]) == []


async def test_mcp_servers_get_the_credentials_and_an_invalid_one_is_left_out(tmp_path: Path) -> None:
    """C8: in the reference one mistake in the configuration cost every server."""
    servers: dict[str, object] = {
        "git": {"command": "git-mcp", "env": {"TOKEN": "${GITHUB_TOKEN}"}},
        "bad": {"command": 7},
        "jira": {"url": "https://jira.example", "headers": {"Authorization": "Bearer ${JIRA_TOKEN}"}},
    }
    bridge = WorkerBridge(file_system=False)
    settings = settings_of(tmp_path, mcp_config=mcp_file(tmp_path, servers))
    async with server(bridge, settings, credentials=tokens_of(GITHUB_TOKEN="granted-token")) as client:
        events = await talk(client, "hello", "u1")
    assert bridge.contexts[0].mcp_servers == {
        "git": {"type": "stdio", "command": "git-mcp", "args": [], "env": {"TOKEN": "granted-token"}}
    }
    assert announcements(events)[-1] == (
        "MCP servers initialised: git. The MCP server 'bad' needs a `command`. It is left out. "
        "The MCP server 'jira' needs JIRA_TOKEN, which was not granted to this run. It is left out."
    )
    assert ending(events) == ("RUN_FINISHED", "success")


GRANTED = "granted-token-value"


def stored_bytes(tmp_path: Path) -> bytes:
    return b"".join(path.read_bytes() for path in tmp_path.glob("store.db*"))


async def test_what_a_run_is_granted_is_redacted_from_its_own_input(tmp_path: Path) -> None:
    """Credentials were fetched after RUN_STARTED was written: they stayed in the message, the state and `forwardedProps`."""
    more: dict[str, Any] = {"state": {"key": GRANTED, GRANTED: 1}, "forwardedProps": {"token": [GRANTED]}}
    bridge = WorkerBridge(mcp=False)
    async with server(bridge, settings_of(tmp_path), credentials=tokens_of(GITHUB_TOKEN=GRANTED)) as client:
        events = await talk(client, f"my token is {GRANTED}", "u1", **more)
        history = await client.get("/message_snapshot/t")
    assert events[0]["input"]["messages"][0]["content"] == "my token is [redacted]"
    assert GRANTED not in json.dumps(events) + history.text
    assert GRANTED.encode() not in stored_bytes(tmp_path)
    assert bridge.seen[0][0].content == f"my token is {GRANTED}"


async def test_what_was_granted_is_redacted_from_patches_and_feedback_of_the_same_person(tmp_path: Path) -> None:
    bridge, ann, bob = WorkerBridge(mcp=False), {"x-owner": "ann"}, {"x-owner": "bob"}

    async def give(asker: CredentialSubject) -> Mapping[str, str]:
        return {"GITHUB_TOKEN": GRANTED} if asker.actor.owner == "ann" else {}

    patch = [{"op": "add", "path": "/note", "value": f"it is {GRANTED}"}]
    feedback = {"type": "META", "metaType": "thumbs_up", "threadId": "t", "payload": {"comment": f"I saw {GRANTED}"}}
    async with server(bridge, settings_of(tmp_path), credentials=give, authorize=by_header) as client:
        for person in (ann, bob):
            await talk(client, "hello", "u1", headers=person)
        answers = [
            [
                (await client.patch("/state/t", json=patch, headers=person)).text,
                (await client.post("/feedback", json=feedback, headers=person)).text,
                (await client.get("/threads/t/events?until=idle", headers=person)).text,
            ]
            for person in (ann, bob)
        ]
    assert [GRANTED in answer for answer in answers[0]] == [False, False, False]
    assert [GRANTED in answer for answer in answers[1]] == [True, True, True]


async def test_a_rotated_token_is_still_redacted_from_the_first_entries_of_the_next_run(tmp_path: Path) -> None:
    tokens = iter(["first-token-value", "second-token-value"])

    async def give(asker: CredentialSubject) -> Mapping[str, str]:
        return {"GITHUB_TOKEN": next(tokens)}

    async with server(WorkerBridge(mcp=False), settings_of(tmp_path), credentials=give) as client:
        await talk(client, "hello", "u1")
        second = await talk(client, "is it first-token-value or second-token-value?", "u2", thread="t2")
    assert second[0]["input"]["messages"][0]["content"] == "is it [redacted] or [redacted]?"
    assert b"first-token-value" not in stored_bytes(tmp_path)


async def test_credentials_are_fetched_for_admitted_runs_only(tmp_path: Path) -> None:
    fetched: list[str] = []

    async def give(asker: CredentialSubject) -> Mapping[str, str]:
        fetched.append(asker.thread.id)
        return {"GITHUB_TOKEN": GRANTED}

    bridge, key = WorkerBridge(mcp=False), {"Idempotency-Key": "k1"}
    refusals: list[int] = []
    with unless_hung():
        async with server(bridge, settings_of(tmp_path), credentials=give) as client:
            first = await client.post("/", json=run_body("hello"), headers=key)
            again = await client.post("/", json=run_body("hello"), headers=key)
            refusals.append((await client.post("/", json={**run_body("x"), "messages": []})).status_code)
            async with anyio.create_task_group() as group:
                group.start_soon(talk, client, "wait", "u2")
                await bridge.waiting.wait()
                refusals.append((await client.post("/", json=run_body("hello", message="u3"))).status_code)
                bridge.go_on.set()
    assert (first.status_code, again.text) == (200, first.text)
    assert refusals == [422, 409]
    assert fetched == ["t", "t"]


async def test_a_server_that_shuts_down_starts_no_run_that_waits_for_its_credentials(tmp_path: Path) -> None:
    requested = anyio.Event()

    async def hang(asker: CredentialSubject) -> Mapping[str, str]:
        requested.set()
        await anyio.sleep_forever()
        raise NotImplementedError

    app = FastAPI()
    runtime = add_ambient_endpoints(app, WorkerBridge(), settings=settings_of(tmp_path), credentials=hang)
    answers: list[tuple[int, str]] = []
    with unless_hung():
        async with client_of(app) as client, anyio.create_task_group() as group:

            async def run() -> None:
                answers.append(error_of(await client.post("/", json=run_body("hello"))))

            group.start_soon(run)
            await requested.wait()
            await runtime.drain()
    assert answers == [(503, "draining")]
