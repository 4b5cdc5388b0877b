"""Threads after the run: list them, read messages and state, patch the state, erase. By the routes, and by functions of your own.

Run it from this directory with a key of your model in the environment: `uvicorn adk_history_api:app`.
"""

from typing import Any

from fastapi import FastAPI, Request
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.tools import ToolContext

from ambient_runner import Settings
from ambient_runner.adk import (
    ConfigContext,
    RunnerConfig,
    SSEService,
    get_agui_message_snapshot,
    get_agui_thread_list,
    register_agui_endpoint,
)

MODEL = "gemini-2.5-flash"


def remember(fact: str, tool_context: ToolContext) -> dict[str, str]:
    """Remember a fact for this conversation."""
    tool_context.state["facts"] = [*tool_context.state.get("facts", []), fact]
    return {"remembered": fact}


def user_id(content: Any, request: Request) -> str:
    return request.headers.get("X-User-ID", "anonymous")


def create(model: str | BaseLlm = MODEL, settings: Settings | None = None) -> FastAPI:
    agent = LlmAgent(name="assistant", model=model, instruction="Remember what matters.", tools=[remember])
    service = SSEService(agent, RunnerConfig(), ConfigContext(user_id=user_id), settings=settings)
    app = FastAPI(title="History API")
    # GET /thread/list, GET /message_snapshot/{id}, GET /state_snapshot/{id}, PATCH /state/{id}, DELETE /thread/{id}
    register_agui_endpoint(app, service)

    @app.get("/titles")
    async def titles(request: Request) -> dict[str, str]:
        """The first words of each of your threads: what a sidebar shows."""
        found: dict[str, str] = {}
        for thread in await get_agui_thread_list(service, request):
            snapshot = await get_agui_message_snapshot(service, request, thread["threadId"])
            said = [message.content for message in snapshot.messages if message.role == "user"]
            found[thread["threadId"]] = str(said[0])[:40] if said else ""
        return found

    return app


app = create()
