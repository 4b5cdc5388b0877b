"""Subagents with tools of the client: each gets those that its toolset names."""

from ag_ui_adk import ADKAgent, AGUIToolset, create_adk_app
from google.adk.agents import LlmAgent

from tests.bridges.adk.scripted import Scripted, call

root_model = Scripted.of([call("transfer_to_agent", "t1", agent_name="HelloAgent")])
hello_model = Scripted.of([call("sayHello", "c1")], ["Sam was greeted."])
hello_agent = LlmAgent(
    name="HelloAgent",
    model=hello_model,
    description="An agent that greets users",
    tools=[AGUIToolset(tool_filter=["sayHello"])],
)
goodbye_agent = LlmAgent(
    name="GoodbyeAgent",
    model=Scripted.of(),
    description="An agent that says goodbye",
    tools=[AGUIToolset(tool_filter=lambda tool, readonly_context=None: tool.name.endswith("Goodbye"))],
)
root = LlmAgent(name="QaAgent", model=root_model, sub_agents=[hello_agent, goodbye_agent])
app = create_adk_app(ADKAgent(adk_agent=root, app_name="demo_app", user_id="demo"), path="/qa")
