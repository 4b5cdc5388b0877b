"""Secrets outside of events: names and bytes of files, repositories, ids, and what clients send that they should not know."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Request
from prometheus_client import REGISTRY

from ambient_runner import Actor
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.server.app import create_app
from ambient_runner.services.file_search import MAX_SEARCHED_BYTES
from tests.server.demo_server import SETTINGS, client_of, error_of, frames, run_body
from tests.server.worker import WorkerBridge
from tests.services.world import BYTES, repository, server, settings_of, talk, tokens_of

SECRET = "hunter2-hunter2"
GRANTED = "granted-token-value"
WITH_SECRET = dataclasses.replace(SETTINGS, secrets=(SECRET,))


def counted(place: str) -> float:
    return REGISTRY.get_sample_value("ambient_client_secrets_total", {"source": place}) or 0.0


async def test_names_of_files_are_replaced_in_lists_and_files_that_hold_a_secret_are_withheld(tmp_path: Path) -> None:
    bridge = WorkerBridge(mcp=False)
    settings = settings_of(tmp_path, default_thread="t", secrets=(SECRET,))
    async with server(bridge, settings, credentials=tokens_of(GITHUB_TOKEN=GRANTED)) as client:
        await talk(client, "hello", "u1")
        artifacts = Path(bridge.contexts[0].cwd_path)
        (artifacts / f"for-{SECRET}.txt").write_text("x")
        (artifacts / "env.txt").write_bytes(b"\xff\x00" + b"x" * 70_000 + SECRET.encode() + b"\n")
        (artifacts / "token.txt").write_text(GRANTED)
        (artifacts / "edge.txt").write_text("x" * ((1 << 16) - 4) + SECRET)
        (artifacts / "report.txt").write_text("all is well")
        (artifacts / "large.bin").write_bytes(b"x" * MAX_SEARCHED_BYTES + SECRET.encode())
        listed = await client.get("/artifacts")
        withheld = [
            error_of(await client.get(f"/artifacts/{name}"))
            for name in ("env.txt", "token.txt", "edge.txt", f"for-{SECRET}.txt")
        ]
        sent = await client.get("/artifacts/report.txt")
        large = await client.get("/artifacts/large.bin")
    assert [file["path"] for file in listed.json()["files"]] == [
        "edge.txt",
        "env.txt",
        "for-[redacted].txt",
        "large.bin",
        "report.txt",
        "token.txt",
    ]
    assert withheld == [(403, "file_withheld")] * 4
    assert (sent.text, len(large.content)) == ("all is well", MAX_SEARCHED_BYTES + len(SECRET))


async def test_an_upload_that_holds_a_secret_is_stored_counted_and_logged_and_answered_as_any_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = counted("upload")
    settings = settings_of(tmp_path, default_thread="t", secrets=(SECRET,))
    async with server(WorkerBridge(mcp=False), settings) as client:
        right = await client.post("/files?name=a.txt", content=SECRET.encode(), headers=BYTES)
        wrong = await client.post("/files?name=a.txt", content=b"hunter3-hunter3", headers=BYTES)
        named = await client.post(f"/files?name={SECRET}", content=b"x", headers=BYTES)
    bodies = [{**answer.json(), "modified": 0} for answer in (right, wrong)]
    assert (right.status_code, bodies[0]) == (wrong.status_code, bodies[1])
    assert named.json()["path"] == SECRET
    assert counted("upload") - before == 2
    assert (caplog.text.count("upload of thread t"), SECRET in caplog.text) == (2, False)


async def test_urls_and_branches_of_repositories_are_redacted(tmp_path: Path) -> None:
    url = repository(tmp_path / "origin" / SECRET, {})
    settings = settings_of(tmp_path, default_thread="t", secrets=(SECRET,))
    async with server(WorkerBridge(mcp=False), settings) as client:
        added = await client.post("/repos/add", json={"url": url, "name": "api"})
        status = await client.get("/repos/status")
    assert (added.status_code, SECRET in status.text) == (200, False)
    assert status.json()["repos"][0]["url"] == url.replace(SECRET, "[redacted]")


@pytest.mark.parametrize("member", ["threadId", "runId", "parentRunId"])
async def test_an_id_that_holds_a_secret_is_refused_as_any_malformed_one(
    member: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = counted("id")
    async with client_of(create_app(WITH_SECRET, {"demo": DemoBridge()})) as client:
        answers = [
            await client.post("/", json={**run_body("say hi"), member: value}) for value in (f"x-{SECRET}", "x-\x07")
        ]
        fine = await client.post("/", json={**run_body("say hi"), member: "x-hunter3-hunter3"})
        threads = await client.get("/thread/list")
    assert (answers[0].status_code, answers[0].text) == (answers[1].status_code, answers[1].text)
    assert (answers[0].status_code, fine.status_code, len(threads.json()["threads"])) == (422, 200, 1)
    assert (counted("id") - before, SECRET in caplog.text) == (1, False)


async def test_no_workspace_is_made_for_a_thread_id_that_holds_a_secret(tmp_path: Path) -> None:
    async with server(WorkerBridge(mcp=False), settings_of(tmp_path, secrets=(SECRET,))) as client:
        refused = await client.post(f"/files?name=a&threadId={SECRET}", content=b"x", headers=BYTES)
    assert error_of(refused) == (422, "invalid_input")
    assert [path for path in tmp_path.rglob("*") if SECRET in str(path)] == []


async def test_the_error_for_an_unknown_role_does_not_repeat_it() -> None:
    async with client_of(create_app(WITH_SECRET, {"demo": DemoBridge()})) as client:
        answers = [
            await client.post("/", json={**run_body("x"), "messages": [{"id": "1", "role": role, "content": "hi"}]})
            for role in (SECRET, "hunter3-hunter3")
        ]
    assert (answers[0].status_code, answers[0].text) == (answers[1].status_code, answers[1].text)
    assert SECRET not in answers[0].text


async def test_a_server_secret_in_a_clients_own_input_is_counted_and_logged_and_its_own_token_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    settings = settings_of(tmp_path, secrets=(SECRET,))
    feedback: dict[str, Any] = {"type": "META", "metaType": "thumbs_up", "threadId": "t", "payload": {}}
    patch = [{"op": "add", "path": "/note", "value": SECRET}]
    before = [counted(place) for place in ("input", "state", "feedback")]
    async with server(WorkerBridge(mcp=False), settings, credentials=tokens_of(GITHUB_TOKEN=GRANTED)) as client:
        await talk(client, f"my token is {GRANTED}", "u1")
        assert [counted(place) for place in ("input", "state", "feedback")] == before
        events = await talk(client, f"is it {SECRET}?", "u2")
        await client.patch("/state/t", json=patch)
        await client.post("/feedback", json={**feedback, "payload": {"comment": SECRET}})
    after = [counted(place) for place in ("input", "state", "feedback")]
    assert [new - old for new, old in zip(after, before, strict=True)] == [1, 1, 1]
    assert (caplog.text.count("input of thread t"), SECRET in caplog.text + json.dumps(events)) == (1, False)


async def test_the_metrics_about_secrets_are_for_operators_only(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, secrets=(SECRET,), operators=("olga", "acme/otto"))

    def authorize(request: Request) -> Actor:
        tenant, _, owner = request.headers["x-owner"].rpartition("/")
        return Actor(tenant=tenant or "default", owner=owner)

    async def names(client: httpx.AsyncClient, owner: str) -> bool:
        text = (await client.get("/metrics", headers={"x-owner": owner})).text
        assert "ambient_runs_total" in text
        found = {name in text for name in ("ambient_redactions_total", "ambient_client_secrets_total")}
        assert len(found) == 1
        return found.pop()

    async with server(WorkerBridge(mcp=False), settings, authorize=authorize) as client:
        answer = await client.post("/", json=run_body(f"is it {SECRET}?"), headers={"x-owner": "ann"})
        assert frames(answer)[-1][1]["type"] == "RUN_FINISHED"
        shown = {owner: await names(client, owner) for owner in ("ann", "olga", "acme/otto", "acme/olga")}
    assert shown == {"ann": False, "olga": True, "acme/otto": True, "acme/olga": False}
    async with server(WorkerBridge(mcp=False), settings_of(tmp_path)) as client:
        assert "ambient_redactions" in (await client.get("/metrics")).text
