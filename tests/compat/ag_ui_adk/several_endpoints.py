"""Several agents in one app, each at its own path."""

from ag_ui_adk import ADKAgent, add_adk_fastapi_endpoint
from fastapi import FastAPI
from google.adk.agents import Agent

from tests.bridges.adk.scripted import Scripted

app = FastAPI()
for name in ("general", "technical", "creative"):
    agent = Agent(name=name, model=Scripted.of([f"The {name} answer."]))
    wrapper = ADKAgent(adk_agent=agent, app_name="demo_app", user_id="demo")
    add_adk_fastapi_endpoint(app, wrapper, path=f"/agents/{name}")
