"""A Strands agent to chat with. It has no tools of its own: what the page offers, such as `change_background`, the page executes.

Needs `pip install 'ambient-runner[strands]'` and a model: without one given, Strands takes its default on Amazon Bedrock.
Run it from this directory with `uvicorn strands_agentic_chat:create --factory`, and post a tool along:

    {"messages": [{"id": "1", "role": "user", "content": "Make it teal"}], "tools": [{"name": "change_background", "description":
     "Change the background colour of the page", "parameters": {"type": "object", "properties": {"background": {"type": "string"}}}}]}

The run ends with the call. Post the tool's result as a `tool` message, and the agent goes on.
"""

from fastapi import FastAPI
from strands import Agent
from strands.models import Model

from ambient_runner import Settings
from ambient_runner.strands import StrandsAgent, create_strands_app

PROMPT = (
    "You are a helpful assistant. When the user wants another background, call change_background and say what you did."
)


def create(model: Model | None = None, settings: Settings | None = None) -> FastAPI:
    """The app, with any Strands model."""
    agent = Agent(model=model, system_prompt=PROMPT)
    return create_strands_app(StrandsAgent(agent, name="agentic_chat"), settings=settings)
