"""Serve a pydantic-ai agent through its own AG-UI adapter.

Needs `pip install 'pydantic-ai-slim[ag-ui,openai]'` and an OpenAI API key, or the extra and the key of another provider.
Run it from this directory: `uvicorn agui_pydantic_ai:create --factory`. Without an app, serve the agent itself:
`ambient serve helper=module:agent`, where `agent` is a `pydantic_ai.Agent`.
"""

from fastapi import FastAPI
from pydantic_ai import Agent
from pydantic_ai.models import Model

from ambient_runner import Settings, add_ambient_endpoints
from ambient_runner.bridges.pydantic_ai import PydanticAIBridge


def get_weather(city: str) -> str:
    """Return the current weather in a city."""
    return f"It is sunny in {city}."


def create(model: Model | str = "openai:gpt-5", settings: Settings | None = None) -> FastAPI:
    """Create the app with any model that pydantic-ai supports."""
    agent = Agent(model, instructions="Be brief.", tools=[get_weather])
    app = FastAPI()
    add_ambient_endpoints(app, bridge=PydanticAIBridge(agent), settings=settings)
    return app
