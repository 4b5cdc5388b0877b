"""Add your own lock: here, each user can have one run at a time across all threads.

A lock handler can refuse or delay a request. It is called before the server's own lock, which still allows only one run per thread.
Only the request that acquired the lock releases it.
Set the API key of your model in the environment, then run it from this directory: `uvicorn adk_custom_lock:app`.
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


class OneRunPerUser:
    """Allows one active run per user. Works in one process; with several, keep the set in Redis or a database."""

    def __init__(self) -> None:
        self._active_users: set[str] = set()

    async def lock(self, info: InputInfo) -> bool:
        if info.user_id in self._active_users:
            return False
        self._active_users.add(info.user_id)
        return True

    async def unlock(self, info: InputInfo) -> None:
        self._active_users.discard(info.user_id)

    def get_locked_message(self, info: InputInfo) -> RunErrorEvent:
        return RunErrorEvent(message="You already have an active run.", code="ONE_AT_A_TIME")


def extract_user_id(content: Any, request: Request) -> str:
    return request.headers.get("X-User-ID", "anonymous")


def create(model: str | BaseLlm = MODEL, settings: Settings | None = None) -> FastAPI:
    agent = LlmAgent(name="assistant", model=model, instruction="Be brief.")
    context = ConfigContext(
        user_id=extract_user_id,
        session_lock_config=SessionLockConfig(lock_timeout=300, lock_retry_times=2, lock_retry_interval=1.0),
    )
    handlers = HandlerContext(session_lock_handler=OneRunPerUser)
    app = FastAPI(title="Custom lock")
    register_agui_endpoint(app, SSEService(agent, RunnerConfig(), context, handlers, settings=settings))
    return app


app = create()
