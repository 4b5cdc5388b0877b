from __future__ import annotations

import pytest
from fastapi import FastAPI

from ambient_runner import add_ambient_endpoints, create_app
from ambient_runner.bridges.demo import DemoBridge
from ambient_runner.errors import ConfigError
from tests.server.demo_server import SETTINGS, client_of, run_body


def test_a_server_needs_an_agent() -> None:
    with pytest.raises(ConfigError):
        add_ambient_endpoints(FastAPI(), settings=SETTINGS)
    with pytest.raises(ConfigError):
        add_ambient_endpoints(FastAPI(), agents={}, settings=SETTINGS)
    with pytest.raises(ConfigError):
        create_app(SETTINGS, {})


def test_only_one_agent_can_be_called_default() -> None:
    with pytest.raises(ConfigError):
        add_ambient_endpoints(FastAPI(), DemoBridge(), agents={"default": DemoBridge()}, settings=SETTINGS)


def test_a_refused_configuration_adds_no_routes() -> None:
    app = FastAPI()
    before = len(app.routes)
    with pytest.raises(ConfigError):
        add_ambient_endpoints(app, agents={"not a name": DemoBridge()}, settings=SETTINGS)
    with pytest.raises(ConfigError):
        add_ambient_endpoints(app, settings=SETTINGS)
    assert len(app.routes) == before


async def test_a_bridge_and_named_agents_live_side_by_side_under_a_prefix() -> None:
    app = FastAPI()
    add_ambient_endpoints(app, DemoBridge(), agents={"other": DemoBridge()}, prefix="/ai", settings=SETTINGS)
    async with client_of(app) as client:
        answers = [
            await client.post(path, json=run_body("say hi", thread=path))
            for path in ("/ai/", "/ai/agents/default", "/ai/agents/other", "/")
        ]
        capabilities = (await client.get("/ai/capabilities")).json()
    assert [answer.status_code for answer in answers] == [200, 200, 200, 404]
    assert list(capabilities["agents"]) == ["default", "other"]
