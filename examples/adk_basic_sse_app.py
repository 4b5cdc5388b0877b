"""A Google ADK agent behind one endpoint: text, a tool, state, and threads that survive a restart.

Run it from this directory with a key of your model in the environment: `uvicorn adk_basic_sse_app:app`.
"""

from typing import Any

from fastapi import FastAPI, Request
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm

from ambient_runner import Settings
from ambient_runner.adk import ConfigContext, RunnerConfig, SSEService, register_agui_endpoint

MODEL = "gemini-2.5-flash"


def weather(city: str) -> dict[str, str]:
    """The weather in a city."""
    return {"city": city, "sky": "clear"}


async def user_id(content: Any, request: Request) -> str:
    """Who asks. Look into a session or a token here: what this gives decides whose threads are seen."""
    return request.headers.get("X-User-ID", "anonymous")


def create(model: str | BaseLlm = MODEL, settings: Settings | None = None) -> FastAPI:
    agent = LlmAgent(name="assistant", model=model, instruction="Be brief and kind.", tools=[weather])
    service = SSEService(agent, RunnerConfig(), ConfigContext(user_id=user_id), settings=settings)
    app = FastAPI(title="Basic SSE app")
    register_agui_endpoint(app, service)
    return app


app = create()
