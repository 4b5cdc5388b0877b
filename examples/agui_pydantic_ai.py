"""A pydantic-ai agent, through its own AG-UI adapter.

Needs `pip install 'pydantic-ai-slim[ag-ui,openai]'` and an OpenAI key, or the extra and the key of another model of pydantic-ai.
Run it from this directory with `uvicorn agui_pydantic_ai:create --factory`. Without an app, the agent alone will do:
`ambient serve helper=module:agent`, where `agent` is a `pydantic_ai.Agent`.
"""

from fastapi import FastAPI
from pydantic_ai import Agent
from pydantic_ai.models import Model

from ambient_runner import Settings, add_ambient_endpoints
from ambient_runner.bridges.pydantic_ai import PydanticAIBridge


def weather(city: str) -> str:
    """The weather in a city."""
    return f"It is sunny in {city}."


def create(model: Model | str = "openai:gpt-5", settings: Settings | None = None) -> FastAPI:
    """The app, with any model of pydantic-ai."""
    agent = Agent(model, instructions="Be brief.", tools=[weather])
    app = FastAPI()
    add_ambient_endpoints(app, bridge=PydanticAIBridge(agent), settings=settings)
    return app
