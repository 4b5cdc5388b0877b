"""Use hooks to log runs, change error codes, rewrite text, add to the state, and limit the time of a run.

Set the API key of your model in the environment, then run it from this directory: `uvicorn adk_plugins_and_timeouts:app`.
"""

import logging
from collections.abc import AsyncGenerator
from typing import Any

from ag_ui.core import BaseEvent, RunErrorEvent, RunFinishedEvent, TextMessageContentEvent
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


class RunRecorder:
    """Logs the start and the end of a run and replaces error codes. A new instance is created for each run."""

    def __init__(self) -> None:
        self._event_count = 0

    async def input_record(self, info: InputInfo) -> None:
        logger.info("Run on thread %s started", info.session_id)

    def output_record(self, event: BaseEvent) -> None:
        self._event_count += 1
        if isinstance(event, (RunFinishedEvent, RunErrorEvent)):
            logger.info("Run ended with %s after %d events", event.type, self._event_count)

    def output_catch_and_change(self, event: BaseEvent) -> BaseEvent:
        if isinstance(event, RunErrorEvent):
            return event.model_copy(update={"code": "ACME-500"})
        return event


class ExclamationMarkFilter:
    """Replaces exclamation marks in the text that clients receive."""

    async def process(self, event: BaseEvent) -> AsyncGenerator[BaseEvent, None]:
        if isinstance(event, TextMessageContentEvent):
            yield event.model_copy(update={"delta": event.delta.replace("!", ".")})
        else:
            yield event


class TimeoutHandler:
    """Limits the time of a run, and of the wait for each event, in seconds. After a timeout, a fallback message ends the run."""

    def __init__(self, run_timeout: float = 60.0, event_timeout: float = 30.0) -> None:
        self._run_timeout = run_timeout
        self._event_timeout = event_timeout

    def get_timeout(self) -> float:
        return self._run_timeout

    def get_event_timeout(self) -> float:
        return self._event_timeout

    async def process_timeout_fallback(self) -> AsyncGenerator[Event, None]:
        content = types.Content(role="model", parts=[types.Part(text="Sorry, that took too long.")])
        yield Event(author="assistant", content=content)


class StateKeyCounter:
    """Adds the number of keys to the final state snapshot."""

    def process(self, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "key_count": len(state)}


def create(
    model: str | BaseLlm = MODEL, settings: Settings | None = None, timeouts: TimeoutHandler | None = None
) -> FastAPI:
    agent = LlmAgent(name="assistant", model=model, instruction="Be brief.")
    handlers = HandlerContext(
        in_out_record_handler=RunRecorder,
        agui_event_handler=ExclamationMarkFilter,
        adk_event_timeout_handler=timeouts or TimeoutHandler,
        agui_state_snapshot_handler=StateKeyCounter,
    )
    service = SSEService(agent, RunnerConfig(), ConfigContext(user_id="local"), handlers, settings=settings)
    app = FastAPI(title="Plugins and timeouts")
    register_agui_endpoint(app, service)
    return app


app = create()
