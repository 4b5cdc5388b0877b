"""State that the client predicts from the arguments of a tool, and its confirmation."""

from ag_ui_adk import ADKAgent, PredictStateMapping, add_adk_fastapi_endpoint
from fastapi import FastAPI
from google.adk.agents import LlmAgent
from google.adk.tools import ToolContext

from tests.bridges.adk.scripted import Scripted, call

model = Scripted.of([call("write_document", "c1", document="Once upon a time")], ["Here is your story."], ["Kept."])


def write_document(tool_context: ToolContext, document: str) -> dict[str, str]:
    tool_context.state["document"] = document
    return {"status": "success"}


agent = ADKAgent(
    adk_agent=LlmAgent(name="writer", model=model, tools=[write_document]),
    app_name="demo_app",
    user_id="demo",
    predict_state=[PredictStateMapping(state_key="document", tool="write_document", tool_argument="document")],
)
app = FastAPI()
add_adk_fastapi_endpoint(app, agent, path="/write")
