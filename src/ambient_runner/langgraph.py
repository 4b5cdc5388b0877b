"""LangGraph graphs: the bridge, and helpers that a graph's nodes use to read the current run.

    add_ambient_endpoints(app, LangGraphBridge(graph))

`docs/agents/langgraph.md` explains each name.
"""

from __future__ import annotations

from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.bridges.langgraph.client_tools import (
    back_to_model,
    backend_tools,
    client_tools,
    is_client_tool,
    route_tools,
)
from ambient_runner.bridges.langgraph.config import LangGraphConfig, PredictStateMapping
from ambient_runner.bridges.langgraph.request import platform, request_context

__all__ = [
    "LangGraphBridge",
    "LangGraphConfig",
    "PredictStateMapping",
    "back_to_model",
    "backend_tools",
    "client_tools",
    "is_client_tool",
    "platform",
    "request_context",
    "route_tools",
]
