"""Serve a Google ADK agent with one tool. Threads and state are stored and survive a restart.

Set the API key of your model in the environment, then run it from this directory: `uvicorn adk_basic_sse_app:app`.
"""

from typing import Any

from fastapi import FastAPI, Request
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm

from ambient_runner import Settings
from ambient_runner.adk import ConfigContext, RunnerConfig, SSEService, register_agui_endpoint

MODEL = "gemini-2.5-flash"


def get_weather(city: str) -> dict[str, str]:
    """Return the current weather in a city."""
    return {"city": city, "sky": "clear"}


async def extract_user_id(content: Any, request: Request) -> str:
    """Return the user of the request, who owns its threads. In production, verify a session or a token here."""
    return request.headers.get("X-User-ID", "anonymous")


def create(model: str | BaseLlm = MODEL, settings: Settings | None = None) -> FastAPI:
    agent = LlmAgent(name="assistant", model=model, instruction="Be brief and kind.", tools=[get_weather])
    service = SSEService(agent, RunnerConfig(), ConfigContext(user_id=extract_user_id), settings=settings)
    app = FastAPI(title="Basic SSE app")
    register_agui_endpoint(app, service)
    return app


app = create()
