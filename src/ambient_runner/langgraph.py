"""LangGraph graphs: the bridge, and what a graph may ask from inside about the run it is part of.

    add_ambient_endpoints(app, LangGraphBridge(graph))

`docs/agents/langgraph.md` says what each name means.
"""

from __future__ import annotations

from ambient_runner.bridges.langgraph.bridge import LangGraphBridge
from ambient_runner.bridges.langgraph.client_tools import (
    answer_backend,
    backend_tools,
    frontend_tools,
    is_frontend,
    platform,
    request_context,
    route_tools,
)
from ambient_runner.bridges.langgraph.config import LangGraphConfig, PredictStateMapping

__all__ = [
    "LangGraphBridge",
    "LangGraphConfig",
    "PredictStateMapping",
    "answer_backend",
    "backend_tools",
    "frontend_tools",
    "is_frontend",
    "platform",
    "request_context",
    "route_tools",
]
