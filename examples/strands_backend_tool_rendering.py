"""A Strands agent with backend tools. Clients get each tool call, its streamed arguments, and a result that they can render.

Run it from this directory with `uvicorn strands_backend_tool_rendering:create --factory`, and ask for the weather in Lisbon.
"""

from typing import Any

from fastapi import FastAPI
from strands import Agent, tool  # pyright: ignore[reportUnknownVariableType]  the SDK's own types
from strands.models import Model

from ambient_runner import Settings
from ambient_runner.strands import StrandsAgent, create_strands_app

SKIES = ("sunny", "cloudy", "rainy", "windy")


@tool
def get_weather(city: str) -> dict[str, Any]:
    """Return the current weather in a city.

    Args:
        city: The name of the city.
    """
    seed = sum(city.lower().encode())
    report = {"city": city, "sky": SKIES[seed % len(SKIES)], "celsius": 5 + seed % 30}
    return {"status": "success", "content": [{"json": report}]}


@tool
def render_chart(title: str, values: dict[str, float]) -> dict[str, Any]:
    """Show a bar chart.

    Args:
        title: The title of the chart.
        values: The height of each bar by its label.
    """
    return {"status": "success", "content": [{"json": {"kind": "bar", "title": title, "values": values}}]}


def create(model: Model | None = None, settings: Settings | None = None) -> FastAPI:
    """Create the app with any Strands model."""
    agent = Agent(
        model=model, tools=[get_weather, render_chart], system_prompt="Use your tools, then answer in one sentence."
    )
    return create_strands_app(StrandsAgent(agent, name="backend_tool_rendering"), settings=settings)
