"""A server of all the dojo's agents, `FRAMEWORK-FEATURE` by name, on the real SDKs with scripted models. Run by uvicorn."""

from __future__ import annotations

from fastapi import FastAPI

from ambient_runner import add_ambient_endpoints
from tests.dojo.agents import adk, claude, langgraph, pydantic_ai, strands

FRAMEWORKS = {
    "langgraph": langgraph.create_agents,
    "strands": strands.create_agents,
    "adk": adk.create_agents,
    "claude": claude.create_agents,
    "pydantic_ai": pydantic_ai.create_agents,
}

app = FastAPI()
add_ambient_endpoints(
    app,
    agents={
        f"{framework}-{feature}": bridge
        for framework, create_agents in FRAMEWORKS.items()
        for feature, bridge in create_agents().items()
    },
    custom_tools=claude.CUSTOM_TOOLS,
)
