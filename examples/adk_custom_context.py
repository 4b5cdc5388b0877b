"""Derive team, user, thread and initial state from the request, and turn a text message into a tool result.

The team comes from a header and becomes ADK's app name, so teams share no data. The next user message answers a pending `ask_user` call,
so clients without tool support can answer it.
Set the API key of your model in the environment, then run it from this directory: `uvicorn adk_custom_context:app`.
"""

from typing import Any

from ag_ui.core import RunAgentInput, ToolMessage
from fastapi import FastAPI, HTTPException, Request
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.tools.long_running_tool import LongRunningFunctionTool

from ambient_runner import Settings
from ambient_runner.adk import ConfigContext, RunnerConfig, SSEService, register_agui_endpoint

MODEL = "gemini-2.5-flash"


def ask_user(question: str) -> None:
    """Ask the user a question and wait for the answer."""


def extract_team(content: Any, request: Request) -> str:
    return request.headers.get("X-Team", "everyone")


async def extract_user_id(content: Any, request: Request) -> str:
    user = request.headers.get("X-User-ID")
    if user is None:
        raise HTTPException(401, "The X-User-ID header is missing.")
    return user


def build_initial_state(content: RunAgentInput, request: Request) -> dict[str, Any]:
    """Return the client's state with the language of the user added."""
    state: dict[str, Any] = content.state or {}
    return {**state, "language": request.headers.get("Accept-Language", "en")}


def answer_pending_call(content: RunAgentInput, pending: dict[str, str]) -> RunAgentInput:
    """Return the input with its last user message as the result of the pending `ask_user` call, if there is one."""
    call_ids = [call_id for call_id, tool_name in pending.items() if tool_name == "ask_user"]
    last = content.messages[-1] if content.messages else None
    if not call_ids or last is None or last.role != "user":
        return content
    result = ToolMessage(id=f"{last.id}-answer", tool_call_id=call_ids[0], content=str(last.content))
    return content.model_copy(update={"messages": [*content.messages[:-1], result]})


def create(model: str | BaseLlm = MODEL, settings: Settings | None = None) -> FastAPI:
    agent = LlmAgent(
        name="assistant",
        model=model,
        instruction="Answer in {language}. Call ask_user if you are not sure.",
        tools=[LongRunningFunctionTool(ask_user)],
    )
    context = ConfigContext(
        app_name=extract_team,
        user_id=extract_user_id,
        session_id=lambda content, request: content.thread_id,
        extract_initial_state=build_initial_state,
        convert_run_agent_input=answer_pending_call,
    )
    app = FastAPI(title="Custom context")
    register_agui_endpoint(app, SSEService(agent, RunnerConfig(), context, settings=settings))
    return app


app = create()
