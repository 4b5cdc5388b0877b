"""A pydantic-ai agent, through its own AG-UI adapter: any object or function that gives AG-UI events is an agent here.

Needs `pip install 'pydantic-ai-slim[ag-ui]'` and a model of pydantic-ai, such as "openai:gpt-5" with its key.
Run it from this directory with `uvicorn agui_pydantic_ai:create --factory`. Without an app, the agent alone will do:
`ambient serve helper=module:agent`, where `agent` is a `pydantic_ai.Agent`.
"""

from collections.abc import AsyncIterator

from ag_ui.core import BaseEvent, RunAgentInput
from fastapi import FastAPI
from pydantic_ai import Agent
from pydantic_ai.models import Model
from pydantic_ai.ui.ag_ui import AGUIAdapter

from ambient_runner import Settings, add_ambient_endpoints
from ambient_runner.bridges.agui import AGUIBridge


def weather(city: str) -> str:
    """The weather in a city."""
    return f"It is sunny in {city}."


def create(model: Model | str = "openai:gpt-5", settings: Settings | None = None) -> FastAPI:
    """The app, with any model of pydantic-ai."""
    agent = Agent(model, instructions="Be brief.", tools=[weather])

    async def run(input: RunAgentInput) -> AsyncIterator[BaseEvent]:  # noqa: A002  the contract's name
        async for event in AGUIAdapter(agent=agent, run_input=input).run_stream():
            yield event

    app = FastAPI()
    add_ambient_endpoints(app, bridge=AGUIBridge(run), settings=settings)
    return app
