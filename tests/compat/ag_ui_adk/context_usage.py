"""The context of a run, in an instruction and in a tool."""

from ag_ui_adk import CONTEXT_STATE_KEY, ADKAgent
from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools import ToolContext

from tests.bridges.adk.scripted import Scripted, call

seen: list[object] = []
model = Scripted.of([call("my_tool", "c1")], ["Ada, as always."])


def my_tool(tool_context: ToolContext) -> str:
    seen.append([item["value"] for item in tool_context.state.get(CONTEXT_STATE_KEY, [])])
    return "Done"


def dynamic_instructions(ctx: ReadonlyContext) -> str:
    items = ctx.state.get(CONTEXT_STATE_KEY, [])
    return "\n".join(["You are a helpful assistant.", *(f"- {item['description']}: {item['value']}" for item in items)])


agent = ADKAgent(
    adk_agent=LlmAgent(name="assistant", model=model, instruction=dynamic_instructions, tools=[my_tool]),
    app_name="demo_app",
    user_id="demo",
)
