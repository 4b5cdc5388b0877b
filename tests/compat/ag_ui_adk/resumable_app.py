"""Option 3 of the README: an ADK App that waits for a tool of the client and resumes."""

from ag_ui_adk import ADKAgent, AGUIToolset, add_adk_fastapi_endpoint
from fastapi import FastAPI
from google.adk.agents import Agent
from google.adk.apps import App, ResumabilityConfig

from tests.bridges.adk.scripted import Scripted, call

model = Scripted.of([call("generate_task_steps", "c1", steps=["a", "b"])], ["Both steps are done."])
my_agent = Agent(name="assistant", model=model, instruction="You are a helpful assistant.", tools=[AGUIToolset()])
adk_app = App(name="my_app", root_agent=my_agent, resumability_config=ResumabilityConfig(is_resumable=True))
agent = ADKAgent.from_app(adk_app, user_id="user123", session_timeout_seconds=3600, use_in_memory_services=True)
app = FastAPI()
add_adk_fastapi_endpoint(app, agent, path="/chat")
