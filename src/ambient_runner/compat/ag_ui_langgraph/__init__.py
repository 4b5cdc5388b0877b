"""The names of the package `ag_ui_langgraph`, on the LangGraph bridge of this package.

    from ambient_runner.compat.ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint

`docs/how-to/migrate.md` lists what differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.compat.ag_ui_langgraph.a2ui_tool import (
    A2UI_OPERATIONS_KEY,
    BASIC_CATALOG_ID,
    A2UIGuidelines,
    A2UIToolParams,
    get_a2ui_tools,
)
from ambient_runner.compat.ag_ui_langgraph.agent import (
    SUBAGENT_VISIBILITY_ATTRIBUTED,
    SUBAGENT_VISIBILITY_HIDDEN,
    SUBAGENT_VISIBILITY_INLINE,
    LangGraphAgent,
)
from ambient_runner.compat.ag_ui_langgraph.endpoint import add_langgraph_fastapi_endpoint
from ambient_runner.compat.ag_ui_langgraph.types import (
    CustomEventNames,
    LangGraphEventTypes,
    PredictStateTool,
    SchemaKeys,
    State,
)
from ambient_runner.compat.ag_ui_langgraph.utils import json_safe_stringify, make_json_safe

if TYPE_CHECKING:
    from ambient_runner.compat.ag_ui_langgraph.middlewares.state_streaming import StateItem, StateStreamingMiddleware

__all__ = [
    "A2UI_OPERATIONS_KEY",
    "BASIC_CATALOG_ID",
    "SUBAGENT_VISIBILITY_ATTRIBUTED",
    "SUBAGENT_VISIBILITY_HIDDEN",
    "SUBAGENT_VISIBILITY_INLINE",
    "A2UIGuidelines",
    "A2UIToolParams",
    "CustomEventNames",
    "LangGraphAgent",
    "LangGraphEventTypes",
    "PredictStateTool",
    "SchemaKeys",
    "State",
    "StateItem",
    "StateStreamingMiddleware",
    "add_langgraph_fastapi_endpoint",
    "get_a2ui_tools",
    "json_safe_stringify",
    "make_json_safe",
]


def __getattr__(name: str) -> Any:
    """Import the middleware when it is used: it needs `langchain`."""
    if name not in {"StateItem", "StateStreamingMiddleware"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ambient_runner.compat.ag_ui_langgraph.middlewares import state_streaming

    return getattr(state_streaming, name)
