"""Warnings at the start about secret variables that are not redacted."""

from __future__ import annotations

import dataclasses

import pytest
from fastapi import FastAPI

from ambient_runner import add_ambient_endpoints
from ambient_runner.bridges.demo import DemoBridge
from tests.server.demo_server import SETTINGS


def test_a_warning_about_secrets_comes_once_however_many_agents_an_app_adds(caplog: pytest.LogCaptureFixture) -> None:
    weak = dataclasses.replace(SETTINGS, short_secrets=("ONE_TOKEN",), guessable_secrets=("TWO_TOKEN",))
    app = FastAPI()
    for prefix in ("/a", "/b", "/c"):
        add_ambient_endpoints(app, DemoBridge(), prefix=prefix, settings=weak)
    assert [record.args for record in caplog.records] == [("TWO_TOKEN",), (8, "ONE_TOKEN")]
