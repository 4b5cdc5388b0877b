"""A lock of your own before ours: here one request per user at a time, whatever the thread.

It can refuse or delay a request. Two runs of one thread are never let in together, whatever it says, and only the request that was let
in gives it back.
Run it from this directory with a key of your model in the environment: `uvicorn adk_custom_lock:app`.
"""

from typing import Any

from ag_ui.core import RunErrorEvent
from fastapi import FastAPI, Request
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm

from ambient_runner import Settings
from ambient_runner.adk import (
    ConfigContext,
    HandlerContext,
    InputInfo,
    RunnerConfig,
    SessionLockConfig,
    SSEService,
    register_agui_endpoint,
)

MODEL = "gemini-2.5-flash"


class OnePerUser:
    """Kept in memory; in several processes, keep it in Redis or your database."""

    def __init__(self) -> None:
        self._busy: set[str] = set()

    async def lock(self, info: InputInfo) -> bool:
        if info.user_id in self._busy:
            return False
        self._busy.add(info.user_id)
        return True

    async def unlock(self, info: InputInfo) -> None:
        self._busy.discard(info.user_id)

    def get_locked_message(self, info: InputInfo) -> RunErrorEvent:
        return RunErrorEvent(message="You already have a conversation going on.", code="ONE_AT_A_TIME")


def user_id(content: Any, request: Request) -> str:
    return request.headers.get("X-User-ID", "anonymous")


def create(model: str | BaseLlm = MODEL, settings: Settings | None = None) -> FastAPI:
    agent = LlmAgent(name="assistant", model=model, instruction="Be brief.")
    context = ConfigContext(
        user_id=user_id,
        session_lock_config=SessionLockConfig(lock_timeout=300, lock_retry_times=2, lock_retry_interval=1.0),
    )
    handlers = HandlerContext(session_lock_handler=OnePerUser)
    app = FastAPI(title="Custom lock")
    register_agui_endpoint(app, SSEService(agent, RunnerConfig(), context, handlers, settings=settings))
    return app


app = create()
