"""Where a request belongs: tenants, users and threads from the request, a first state, and words turned into the answer of a tool.

The team comes from a header and becomes ADK's app name, so teams share nothing. A waiting question is answered by the next message,
whatever the client knows of tools.
Run it from this directory with a key of your model in the environment: `uvicorn adk_custom_context:app`.
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
    """Ask the user something and wait for the answer."""


def team(content: Any, request: Request) -> str:
    return request.headers.get("X-Team", "everyone")


async def user_id(content: Any, request: Request) -> str:
    user = request.headers.get("X-User-ID")
    if user is None:
        raise HTTPException(401, "Say who you are.")
    return user


def first_state(content: RunAgentInput, request: Request) -> dict[str, Any]:
    """What the client sent, and the language of its user."""
    state: dict[str, Any] = content.state or {}
    return {**state, "language": request.headers.get("Accept-Language", "en")}


def answer_in_words(content: RunAgentInput, pending: dict[str, str]) -> RunAgentInput:
    """The newest message answers the question that waits."""
    asked = [call for call, name in pending.items() if name == "ask_user"]
    last = content.messages[-1] if content.messages else None
    if not asked or last is None or last.role != "user":
        return content
    result = ToolMessage(id=f"{last.id}-answer", tool_call_id=asked[0], content=str(last.content))
    return content.model_copy(update={"messages": [*content.messages[:-1], result]})


def create(model: str | BaseLlm = MODEL, settings: Settings | None = None) -> FastAPI:
    agent = LlmAgent(
        name="assistant",
        model=model,
        instruction="Speak {language}. Ask the user whenever you are not sure.",
        tools=[LongRunningFunctionTool(ask_user)],
    )
    context = ConfigContext(
        app_name=team,
        user_id=user_id,
        session_id=lambda content, request: content.thread_id,
        extract_initial_state=first_state,
        convert_run_agent_input=answer_in_words,
    )
    app = FastAPI(title="Custom context")
    register_agui_endpoint(app, SSEService(agent, RunnerConfig(), context, settings=settings))
    return app


app = create()
