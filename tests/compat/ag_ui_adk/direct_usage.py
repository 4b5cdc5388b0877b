"""Option 1 of the README: an agent that is run without a server."""

from ag_ui_adk import ADKAgent, AGUIToolset
from google.adk.agents import Agent

from tests.bridges.adk.scripted import Scripted

my_agent = Agent(
    name="assistant",
    model=Scripted.of(["Hello, ", "how can I help?"]),
    instruction="You are a helpful assistant.",
    tools=[AGUIToolset()],
)
agent = ADKAgent(adk_agent=my_agent, app_name="my_app", user_id="user123")
