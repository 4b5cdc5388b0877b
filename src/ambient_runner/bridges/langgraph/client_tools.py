"""The client's tools in a graph: offered to its model, executed by the client. Nodes read them from the request (`request.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig  # noqa: TC002  LangGraph reads it from the signature
from langgraph.graph import END  # pyright: ignore[reportMissingTypeStubs]

from ambient_runner.bridges.langgraph.request import OfferedTools, read_request
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.tool_schemas import clean_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ambient_runner.protocol.events import Tool

__all__ = [
    "TOOLS_ATTRIBUTE",
    "back_to_model",
    "backend_tools",
    "client_tools",
    "has_unanswered_client_calls",
    "is_client_tool",
    "route_tools",
    "tool_specs",
]

TOOLS_ATTRIBUTE = "ambient_tools"
"""Attribute of a node function that holds its tools by name."""


def tool_specs(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Return the client's tools in the form that `bind_tools` accepts."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": clean_schema(tool.parameters),
            },
        }
        for tool in tools
    ]


def client_tools() -> list[dict[str, Any]]:
    """Return the client's tools of this run, for `model.bind_tools([*mine, *client_tools()])`."""
    tools: Any = read_request().get("tools") or ()
    if isinstance(tools, OfferedTools):
        tools.is_offered = True
    return list(tools)


def is_client_tool(name: str) -> bool:
    """Return True if the client executes this tool."""
    return any(tool["function"]["name"] == name for tool in read_request().get("tools") or ())


def has_unanswered_client_calls(messages: list[Any]) -> bool:
    """Return True if the newest message of the model calls tools of the client that have no result after it."""
    index = _last_model_message_index(messages)
    answered = {message.tool_call_id for message in messages[index + 1 :] if isinstance(message, ToolMessage)}
    calls = messages[index].tool_calls if index >= 0 else ()
    return any(call["id"] not in answered and is_client_tool(call["name"]) for call in calls)


def route_tools(tools: str = "tools", *, end: str = END, key: str = "messages") -> Callable[[Any], str]:
    """Return a conditional edge after the model's node: to the node `tools` if the model called a tool of the graph, otherwise to `end`.

    Calls of the client's tools end the run: the client executes them and sends the results with the next one.
    """

    def choose_node(state: Any) -> str:
        return tools if any(not is_client_tool(call["name"]) for call in _last_tool_calls(state, key)) else end

    return choose_node


def back_to_model(model: str = "agent", *, end: str = END, key: str = "messages") -> Callable[[Any], str]:
    """Return a conditional edge after the tools' node: back to the node `model`, unless the same message also called the client's tools."""

    def choose_node(state: Any) -> str:
        return end if any(is_client_tool(call["name"]) for call in _last_tool_calls(state, key)) else model

    return choose_node


def backend_tools(node: Any, *, key: str = "messages") -> Any:
    """Wrap a `ToolNode` so that it skips calls of the client's tools. A tool of the node is never one of them."""
    own_tools: Mapping[str, Any] = dict(node.tools_by_name)

    async def run_backend_tools(state: Any, config: RunnableConfig) -> Any:
        messages = list(_state_messages(state, key))
        index = _last_model_message_index(messages)
        own_calls = [
            call for call in messages[index].tool_calls if call["name"] in own_tools or not is_client_tool(call["name"])
        ]
        own = messages[index].model_copy(update={"tool_calls": own_calls})
        shown = [*messages[:index], own, *messages[index + 1 :]]
        return await node.ainvoke({**as_object(state), key: shown}, config)

    setattr(run_backend_tools, TOOLS_ATTRIBUTE, own_tools)
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
