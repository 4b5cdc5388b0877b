"""A tool of the agent whose result the page renders."""

from ag_ui_strands import StrandsAgent, add_ping, add_strands_fastapi_endpoint
from fastapi import FastAPI
from strands import Agent, tool

from tests.bridges.strands.scripted import ScriptedModel, call, calls, says, text


@tool
def get_weather(location: str) -> dict[str, object]:
    """The weather of a place."""
    return {"temperature": 20, "conditions": "sunny", "location": location}


model = ScriptedModel(calls(text("I look."), call("c1", "get_weather", '{"location": "Rome"}')), says("Sunny."))
agent = Agent(model=model, tools=[get_weather], callback_handler=None)
app = FastAPI()
add_strands_fastapi_endpoint(app, StrandsAgent(agent, name="backend_tool_rendering"), "/", tags=["agents"])
add_ping(app, "/ping")
