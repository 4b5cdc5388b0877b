"""LangGraph graphs: the bridge, and helpers that a graph's nodes use to read the current run.

    add_ambient_endpoints(app, LangGraphBridge(graph))

`docs/agents/langgraph.md` explains each name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from ambient_runner.bridges.langgraph.tools_middleware import ClientTools

__all__ = [
    "ClientTools",
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


def __getattr__(name: str) -> Any:
    """Import ClientTools when it is used: of all names here only it needs `langchain`."""
    if name != "ClientTools":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ambient_runner.bridges.langgraph.tools_middleware import ClientTools

    return ClientTools
