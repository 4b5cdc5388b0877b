"""Secrets of the environment in an app: those that are redacted, and the warnings about those that are not."""

from __future__ import annotations

import dataclasses

import pytest
from fastapi import FastAPI

from ambient_runner import add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from tests.server.demo_server import SETTINGS, client_of, run_body


def test_a_warning_about_secrets_comes_once_however_many_agents_an_app_adds(caplog: pytest.LogCaptureFixture) -> None:
    weak = dataclasses.replace(SETTINGS, short_secrets=("ONE_TOKEN",), guessable_secrets=("TWO_TOKEN",))
    app = FastAPI()
    for prefix in ("/a", "/b", "/c"):
        add_ambient_endpoints(app, DemoBridge(), prefix=prefix, settings=weak)
    assert [record.args for record in caplog.records] == [("TWO_TOKEN",), (8, "ONE_TOKEN")]


async def test_settings_that_were_built_in_code_redact_the_secrets_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_API_KEY", "Zq7vR2mK9xLpT4wYbN8cHd3J")
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), settings=SETTINGS)
    async with client_of(app) as client:
        answer = await client.post("/", json=run_body("say Zq7vR2mK9xLpT4wYbN8cHd3J"))
        stored = await client.get("/message_snapshot/t")
    assert ("Zq7v" in answer.text, "Zq7v" in stored.text) == (False, False)
    assert [message["content"] for message in stored.json()["messages"]] == ["say [redacted]", "[redacted]"]
