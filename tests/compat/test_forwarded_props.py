"""The endpoints whose documents promise an agent the whole input pass on all of `forwardedProps`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from google.adk.agents import LlmAgent
from langgraph.graph import START, MessagesState, StateGraph

from ambient_runner.adk import ConfigContext, SSEService, register_agui_endpoint
from ambient_runner.compat.ag_ui_adk import ADKAgent, add_adk_fastapi_endpoint
from ambient_runner.compat.ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from ambient_runner.compat.ag_ui_strands import add_strands_fastapi_endpoint as add_compat_strands
from ambient_runner.config import Settings
from ambient_runner.strands import add_strands_fastapi_endpoint
from tests.bridges.adk.scripted import Scripted
from tests.server.demo_server import SETTINGS, client_of, run_body

Serve = Callable[[Settings, list[Any]], FastAPI]


class StrandsLike:
    """An agent with nothing but a `run`."""

    name = "helper"

    def __init__(self, seen: list[Any]) -> None:
        self._seen = seen

    async def run(self, input: Any) -> Any:
        self._seen.append(input.forwarded_props)
        for event in ():
            yield event


def serve_strands(settings: Settings, seen: list[Any]) -> FastAPI:
    app = FastAPI()
    add_strands_fastapi_endpoint(app, StrandsLike(seen), settings=settings)
    return app


def serve_compat_strands(settings: Settings, seen: list[Any]) -> FastAPI:
    app = FastAPI()
    add_compat_strands(app, StrandsLike(seen), "/", settings=settings)
    return app


def serve_compat_langgraph(settings: Settings, seen: list[Any]) -> FastAPI:
    class OwnAgent(LangGraphAgent):
        async def run(self, input: Any) -> Any:
            seen.append(input.forwarded_props)
            async for event in super().run(input):
                yield event

    graph = StateGraph(MessagesState).add_node("node", lambda state: {}).add_edge(START, "node").compile()
    app = FastAPI()
    add_langgraph_fastapi_endpoint(app, OwnAgent(name="helper", graph=graph), settings=settings)
    return app


def serve_compat_adk(settings: Settings, seen: list[Any]) -> FastAPI:
    class OwnAgent(ADKAgent):
        async def run(self, input: Any) -> Any:
            seen.append(input.forwarded_props)
            async for event in super().run(input):
                yield event

    app = FastAPI()
    root = LlmAgent(name="root", model=Scripted.of(["one"]))
    add_adk_fastapi_endpoint(app, OwnAgent(root, app_name="demo", user_id="ada"), settings=settings)
    return app


def serve_adk(settings: Settings, seen: list[Any]) -> FastAPI:
    def convert(run_input: Any, pending: Any) -> Any:
        seen.append(run_input.forwarded_props)
        return run_input

    app = FastAPI()
    config = ConfigContext(user_id="ada", convert_run_agent_input=convert)
    root = LlmAgent(name="root", model=Scripted.of(["one"]))
    register_agui_endpoint(app, SSEService(root, config_context=config, settings=settings))
    return app


ENDPOINTS = [serve_strands, serve_compat_strands, serve_compat_langgraph, serve_compat_adk, serve_adk]


@pytest.mark.parametrize("serve", ENDPOINTS, ids=lambda serve: serve.__name__)
async def test_all_forwarded_props_reach_the_agent_unless_the_setting_lists_some(serve: Serve) -> None:
    seen: list[Any] = []
    props = {"tenant": "a", "theme": {"dark": True}}
    for settings in (SETTINGS, dataclasses.replace(SETTINGS, forwarded_props=("theme",))):
        async with client_of(serve(settings, seen)) as client:
            assert (await client.post("/", json=run_body("hi", forwardedProps=props))).status_code == 200
    assert seen == [props, {"theme": {"dark": True}}]
