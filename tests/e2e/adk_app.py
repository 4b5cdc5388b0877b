"""A server of ADK agents on the real SDK with scripted models, for tests that talk to it over sockets. Run by uvicorn.

The agents of `tests/bridges/adk/test_cuts.py` by name, and `root` of `test_replicas.py`, which also tells what it has heard. `held.py`
holds its runs.
"""

from __future__ import annotations

import json
import os
from typing import Any

from fastapi import FastAPI
from google.adk.agents import LlmAgent
from google.adk.sessions import DatabaseSessionService

from ambient_runner import add_ambient_endpoints
from ambient_runner.bridges.adk.bridge import ADKBridge
from ambient_runner.bridges.adk.config import RunnerConfig
from tests.bridges.adk.scripted import HANG, Scripted, piece, seen, text
from tests.bridges.adk.test_cuts import CASES, models, one
from tests.bridges.adk.test_replicas import answer, made
from tests.e2e.held import add_doors, holding


def listening(llm_request: Any) -> list[Any]:
    """As `answer`, but it tells what it has heard when it is asked to."""
    last = llm_request.contents[-1].parts[-1]
    return [json.dumps(seen(llm_request)[:-1])] if last.text == "tell" else answer(llm_request)


def root() -> LlmAgent:
    agent, _ = made()
    agent.model = Scripted.of(listening, loop=True)
    return agent


database = os.environ.get("ADK_DATABASE")
config = RunnerConfig(session_service=DatabaseSessionService(f"sqlite+aiosqlite:///{database}") if database else None)
cases = {name: make() for name, make in CASES.items()} | {"hanging": one(piece(text("A ")), HANG)}
app = FastAPI()
service = add_ambient_endpoints(
    app,
    agents={"root": ADKBridge(root(), runner_config=config)} | {name: ADKBridge(one) for name, one in cases.items()},
    middleware=[holding],
)
add_doors(
    app,
    service,
    sdk="google/adk",
    playing=lambda: sum(model.playing for one in cases.values() for model in models(one)),
)
