"""ClientTools: the client's tools in an agent of LangChain's `create_agent`. A module of its own, because it needs `langchain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.types import Command

from ambient_runner.bridges.langgraph.client_tools import client_tools, has_unanswered_client_calls, is_client_tool
from ambient_runner.errors import optional_dependency

with optional_dependency("langchain", install="langchain"):
    from langchain.agents.middleware import AgentMiddleware, hook_config

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["ClientTools"]


class ClientTools(AgentMiddleware[Any, Any, Any]):
    """Middleware that offers the client's tools to the model and leaves their calls to the client.

        create_agent(model, tools, middleware=[ClientTools()])

    List it first. The agent's own calls of the same turn are executed, then the run ends; the next run has the client's results.
    """

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(_offer_client_tools(request))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return await handler(_offer_client_tools(request))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return Command() if _is_for_client(request) else handler(request)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return Command() if _is_for_client(request) else await handler(request)

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return _end_if_waiting(state)

    @hook_config(can_jump_to=["end"])
    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return _end_if_waiting(state)


def _offer_client_tools(request: Any) -> Any:
    offered = client_tools()
    return request.override(tools=[*request.tools, *offered]) if offered else request


def _is_for_client(request: Any) -> bool:
    """Return True if the client executes this call. A tool of the agent with the same name is the agent's."""
    return request.tool is None and is_client_tool(request.tool_call["name"])


def _end_if_waiting(state: Any) -> dict[str, Any] | None:
    """Return the jump to the end if the model's last turn has calls that the client has not answered."""
    return {"jump_to": "end"} if has_unanswered_client_calls(state["messages"]) else None
