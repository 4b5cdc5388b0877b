"""A tool that asks a person, and one that runs only after approval."""

from ag_ui_strands import StrandsAgent, StrandsAgentConfig, ToolBehavior, create_strands_app
from strands import Agent, ToolContext, tool

from tests.bridges.strands.scripted import ScriptedModel, call, calls, says


@tool(context=True)
def book(city: str, tool_context: ToolContext) -> str:
    """Book a trip after asking."""
    answer = tool_context.interrupt("confirm_booking", reason={"city": city})
    return f"booked {city}" if answer["response"]["approved"] else "not booked"


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


model = ScriptedModel(
    calls(call("c1", "book", '{"city": "Rome"}')), calls(call("c2", "pay", '{"amount": 9}')), says("Have a good trip.")
)
agent = Agent(model=model, tools=[book, pay], callback_handler=None)
config = StrandsAgentConfig(tool_behaviors={"pay": ToolBehavior(interrupt_on_call=True)})
app = create_strands_app(StrandsAgent(agent, "human_in_the_loop", config=config), cors_enabled=False)
