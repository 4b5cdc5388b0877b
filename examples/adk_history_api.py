"""List threads, read their messages and state, patch the state and delete threads, over HTTP and in your own routes.

Set the API key of your model in the environment, then run it from this directory: `uvicorn adk_history_api:app`.
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


def save_fact(fact: str, tool_context: ToolContext) -> dict[str, str]:
    """Save a fact in the state of this conversation."""
    tool_context.state["facts"] = [*tool_context.state.get("facts", []), fact]
    return {"saved": fact}


def extract_user_id(content: Any, request: Request) -> str:
    return request.headers.get("X-User-ID", "anonymous")


def create(model: str | BaseLlm = MODEL, settings: Settings | None = None) -> FastAPI:
    agent = LlmAgent(name="assistant", model=model, instruction="Save important facts.", tools=[save_fact])
    service = SSEService(agent, RunnerConfig(), ConfigContext(user_id=extract_user_id), settings=settings)
    app = FastAPI(title="History API")
    # GET /thread/list, GET /message_snapshot/{id}, GET /state_snapshot/{id}, PATCH /state/{id}, DELETE /thread/{id}
    register_agui_endpoint(app, service)

    @app.get("/titles")
    async def list_titles(request: Request) -> dict[str, str]:
        """Return a title for each thread of the user: the beginning of its first message."""
        titles: dict[str, str] = {}
        for thread in await get_agui_thread_list(service, request):
            snapshot = await get_agui_message_snapshot(service, request, thread["threadId"])
            prompts = [message.content for message in snapshot.messages if message.role == "user"]
            titles[thread["threadId"]] = str(prompts[0])[:40] if prompts else ""
        return titles

    return app


app = create()
