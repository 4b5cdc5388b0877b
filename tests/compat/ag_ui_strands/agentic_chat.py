"""Chat with a tool of the page. The agent has a stub of it, so that the model knows it."""

from ag_ui_strands import StrandsAgent, create_strands_app
from strands import Agent, tool

from tests.bridges.strands.scripted import ScriptedModel, call, calls, says


@tool
def change_background(background: str) -> None:
    """Change the background color of the page. The page does it."""


model = ScriptedModel(calls(call("c1", "change_background", '{"background": "teal"}')), says("It is teal now."))
agent = Agent(model=model, tools=[change_background], system_prompt="You are helpful.", callback_handler=None)
app = create_strands_app(StrandsAgent(agent=agent, name="agentic_chat", description="Chats"), "/", cors_enabled=False)
