"""The endpoint, the history and the state of one agent, on the sessions of one service."""

from typing import Any

from adk_agui_middleware import (
    SSEService,
    register_agui_endpoint,
    register_agui_history_endpoint,
    register_state_endpoint,
)
from adk_agui_middleware.data_model.config import HistoryConfig, PathConfig, RunnerConfig, StateConfig
from adk_agui_middleware.data_model.context import ConfigContext
from adk_agui_middleware.service.history_service import HistoryService
from adk_agui_middleware.service.state_service import StateService
from fastapi import FastAPI, Request
from google.adk.agents import LlmAgent
from google.adk.sessions import InMemorySessionService, Session
from google.adk.tools import ToolContext

from tests.bridges.adk.scripted import Scripted, call


def set_title(title: str, tool_context: ToolContext) -> dict[str, str]:
    """Set the title of the thread."""
    tool_context.state["threadTitle"] = title
    return {"status": "done"}


async def user_of_run(_: object, request: Request) -> str:
    return request.headers.get("X-User-Id", "guest")


async def user_of_request(request: Request) -> str:
    return request.headers.get("X-User-Id", "guest")


async def session_of_request(request: Request) -> str:
    return str(request.path_params.get("thread_id"))


async def format_threads(sessions: list[Session]) -> list[dict[str, Any]]:
    return [{"threadId": session.id, "threadTitle": session.state.get("threadTitle")} for session in sessions]


model = Scripted.of([call("set_title", "c1", title="Trip")], ["It has a title."])
agent = LlmAgent(name="titles", model=model, tools=[set_title])
sessions = InMemorySessionService()
app = FastAPI(title="History and state")
register_agui_endpoint(
    app=app,
    sse_service=SSEService(
        agent=agent,
        config_context=ConfigContext(app_name="demo-app", user_id=user_of_run),
        runner_config=RunnerConfig(session_service=sessions),
    ),
    path_config=PathConfig(agui_main_path="/agui"),
)
register_agui_history_endpoint(
    app=app,
    history_service=HistoryService(
        HistoryConfig(
            app_name="demo-app",
            user_id=user_of_request,
            session_id=session_of_request,
            get_thread_list=format_threads,
            session_service=sessions,
        )
    ),
)
register_state_endpoint(
    app=app,
    state_service=StateService(
        StateConfig(
            app_name="demo-app", user_id=user_of_request, session_id=session_of_request, session_service=sessions
        )
    ),
)
