"""Option 2 of the README: an app with one endpoint, and headers in the state."""

from ag_ui_adk import ADKAgent, add_adk_fastapi_endpoint
from fastapi import FastAPI
from google.adk.agents import Agent
from google.adk.tools import ToolContext

from tests.bridges.adk.scripted import Scripted, call

seen: list[object] = []


def read_headers(tool_context: ToolContext) -> str:
    seen.append(tool_context.state.get("headers"))
    return "done"


my_agent = Agent(
    name="assistant",
    model=Scripted.of([call("read_headers", "c1")], ["Welcome."]),
    instruction="You are a helpful assistant.",
    tools=[read_headers],
)
app = FastAPI()
add_adk_fastapi_endpoint(
    app,
    ADKAgent(adk_agent=my_agent, app_name="my_app", user_id="user123"),
    path="/chat",
    extract_headers=["x-user-id", "x-tenant-id"],
)
