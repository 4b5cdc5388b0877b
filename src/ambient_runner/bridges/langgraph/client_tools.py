"""Helpers for nodes: the client's tools, its context and the platform's settings of the current run.

They are passed in the run's `configurable`, so they also reach subgraphs, and a graph on a LangGraph server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig  # noqa: TC002  LangGraph reads it from the signature
from langgraph.config import get_config
from langgraph.graph import END  # pyright: ignore[reportMissingTypeStubs]

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "REQUEST_KEY",
    "TOOL_NAMES_ATTRIBUTE",
    "back_to_model",
    "backend_tools",
    "frontend_tools",
    "is_frontend",
    "platform",
    "request_context",
    "route_tools",
]

REQUEST_KEY = "ag_ui"
"""Key in `configurable` of `{"tools": […], "context": […], "platform": {…}}`."""
TOOL_NAMES_ATTRIBUTE = "ambient_tools"
"""Attribute of a node function that lists the names of its tools."""


def _read_request() -> Mapping[str, Any]:
    try:
        return get_config().get("configurable", {}).get(REQUEST_KEY) or {}
    except RuntimeError:
        return {}  # Outside of a run there is no request: a graph can still be tested on its own.


def frontend_tools() -> list[dict[str, Any]]:
    """Return the client's tools of this run, for `model.bind_tools([*mine, *frontend_tools()])`."""
    return list(_read_request().get("tools") or ())


def is_frontend(name: str) -> bool:
    """Return True if the client executes this tool."""
    return any(tool["function"]["name"] == name for tool in frontend_tools())


def request_context() -> list[dict[str, str]]:
    """Return the context entries of the client, each with `description` and `value`."""
    return list(_read_request().get("context") or ())


def platform() -> dict[str, Any]:
    """Return the platform's settings that have a value: `model`, `max_tokens`, `temperature`, `system_prompt_append`, `workspace_path`,
    `cwd_path`.
    """
    return dict(_read_request().get("platform") or {})


def route_tools(tools: str = "tools", *, end: str = END, key: str = "messages") -> Callable[[Any], str]:
    """Return a conditional edge after the model's node: to the node `tools` if the model called a tool of the graph, otherwise to `end`.

    Calls of the client's tools end the run: the client executes them and sends the results with the next one.
    """

    def choose_node(state: Any) -> str:
        return tools if any(not is_frontend(call["name"]) for call in _last_tool_calls(state, key)) else end

    return choose_node


def back_to_model(model: str = "agent", *, end: str = END, key: str = "messages") -> Callable[[Any], str]:
    """Return a conditional edge after the tools' node: back to the node `model`, unless the same message also called the client's tools."""

    def choose_node(state: Any) -> str:
        return end if any(is_frontend(call["name"]) for call in _last_tool_calls(state, key)) else model

    return choose_node


def backend_tools(node: Any, *, key: str = "messages") -> Any:
    """Wrap a `ToolNode` so that it skips calls of the client's tools."""

    async def run_backend_tools(state: Any, config: RunnableConfig) -> Any:
        messages = list(_state_messages(state, key))
        index = _last_model_message_index(messages)
        own_calls = [call for call in messages[index].tool_calls if not is_frontend(call["name"])]
        own = messages[index].model_copy(update={"tool_calls": own_calls})
        shown = [*messages[:index], own, *messages[index + 1 :]]
        rest = cast("dict[str, Any]", state) if isinstance(state, dict) else {}
        return await node.ainvoke({**rest, key: shown}, config)

    setattr(run_backend_tools, TOOL_NAMES_ATTRIBUTE, tuple(node.tools_by_name))
    return run_backend_tools


def _state_messages(state: Any, key: str) -> list[Any]:
    messages: Any = cast("Mapping[str, Any]", state)[key] if isinstance(state, dict) else getattr(state, key)
    return list(messages)


def _last_model_message_index(messages: list[Any]) -> int:
    return max((index for index, message in enumerate(messages) if isinstance(message, AIMessage)), default=-1)


def _last_tool_calls(state: Any, key: str) -> list[Any]:
    messages = _state_messages(state, key)
    index = _last_model_message_index(messages)
    return list(messages[index].tool_calls) if index >= 0 else []
