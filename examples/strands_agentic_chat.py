"""A Strands chat agent with client tools: the web page declares tools such as `change_background` and executes them.

Needs `pip install 'ambient-runner[strands]'` and a model. By default, Strands uses a model on Amazon Bedrock.
Run it from this directory with `uvicorn strands_agentic_chat:create --factory`, and send a tool with the message:

    {"messages": [{"id": "1", "role": "user", "content": "Make it teal"}], "tools": [{"name": "change_background", "description":
     "Change the background color of the page", "parameters": {"type": "object", "properties": {"background": {"type": "string"}}}}]}

The run ends with the tool call pending. Send its result as a `tool` message, and the agent continues.
"""

from fastapi import FastAPI
from strands import Agent
from strands.models import Model

from ambient_runner import Settings
from ambient_runner.strands import StrandsAgent, create_strands_app

PROMPT = "You are a helpful assistant. To change the background, call change_background and say what you did."


def create(model: Model | None = None, settings: Settings | None = None) -> FastAPI:
    """Create the app with any Strands model."""
    agent = Agent(model=model, system_prompt=PROMPT)
    return create_strands_app(StrandsAgent(agent, name="agentic_chat"), settings=settings)
