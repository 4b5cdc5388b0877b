"""Hooks around a run: a log of what went in and out, errors in your own codes, words changed on the way, and a time limit.

Run it from this directory with a key of your model in the environment: `uvicorn adk_plugins_and_timeouts:app`.
"""

import logging
from collections.abc import AsyncGenerator
from typing import Any

from ag_ui.core import BaseEvent, RunErrorEvent, TextMessageContentEvent
from fastapi import FastAPI
from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.models import BaseLlm
from google.genai import types

from ambient_runner import Settings
from ambient_runner.adk import (
    ConfigContext,
    HandlerContext,
    InputInfo,
    RunnerConfig,
    SSEService,
    register_agui_endpoint,
)

MODEL = "gemini-2.5-flash"
logger = logging.getLogger(__name__)


class Recorder:
    """Counts what a run sends, and gives errors the codes of this company. Made anew for each request."""

    def __init__(self) -> None:
        self._sent = 0

    async def input_record(self, info: InputInfo) -> None:
        logger.info("A run of %s begins", info.session_id)

    def output_record(self, event: BaseEvent) -> None:
        self._sent += 1

    def output_catch_and_change(self, event: BaseEvent) -> BaseEvent:
        if isinstance(event, RunErrorEvent):
            return event.model_copy(update={"code": "ACME-500"})
        return event


class NoShouting:
    """Changes words on their way to the client."""

    async def process(self, event: BaseEvent) -> AsyncGenerator[BaseEvent, None]:
        if isinstance(event, TextMessageContentEvent):
            yield event.model_copy(update={"delta": event.delta.replace("!", ".")})
        else:
            yield event


class Patience:
    """A run has a minute, and each of its events half of one. What is said instead goes the way of any other event."""

    def __init__(self, run: float = 60.0, event: float = 30.0) -> None:
        self._run, self._event = run, event

    def get_timeout(self) -> float:
        return self._run

    def get_event_timeout(self) -> float:
        return self._event

    async def process_timeout_fallback(self) -> AsyncGenerator[Event, None]:
        sorry = types.Content(role="model", parts=[types.Part(text="Sorry, that took too long.")])
        yield Event(author="assistant", content=sorry)


class Summary:
    """Adds to the state the client gets at the end."""

    def process(self, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "keys": len(state)}


def create(model: str | BaseLlm = MODEL, settings: Settings | None = None, patience: Patience | None = None) -> FastAPI:
    agent = LlmAgent(name="assistant", model=model, instruction="Be brief.")
    handlers = HandlerContext(
        in_out_record_handler=Recorder,
        agui_event_handler=NoShouting,
        adk_event_timeout_handler=patience or Patience,
        agui_state_snapshot_handler=Summary,
    )
    service = SSEService(agent, RunnerConfig(), ConfigContext(user_id="local"), handlers, settings=settings)
    app = FastAPI(title="Plugins and timeouts")
    register_agui_endpoint(app, service)
    return app


app = create()
