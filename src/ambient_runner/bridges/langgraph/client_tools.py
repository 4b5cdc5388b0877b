"""What a graph may ask about the run it is part of, from inside a node: the client's tools, its context, the platform's words.

They travel in the run's `configurable`, so they also reach subgraphs, and a graph on a LangGraph server.
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
    "KEY",
    "TOOLS",
    "answer_backend",
    "backend_tools",
    "frontend_tools",
    "is_frontend",
    "platform",
    "request_context",
    "route_tools",
]

KEY = "ag_ui"
"""Where in `configurable` it stands: `{"tools": […], "context": […], "platform": {…}}`."""
TOOLS = "ambient_tools"
"""The attribute of a node that says which tools are in it."""


def _given() -> Mapping[str, Any]:
    try:
        return get_config().get("configurable", {}).get(KEY) or {}
    except RuntimeError:
        return {}  # Outside of a run there is nothing to know: a graph can still be tried alone.


def frontend_tools() -> list[dict[str, Any]]:
    """The client's tools of this run, for `model.bind_tools([*mine, *frontend_tools()])`."""
    return list(_given().get("tools") or ())


def is_frontend(name: str) -> bool:
    """Whether the client carries this tool out."""
    return any(tool["function"]["name"] == name for tool in frontend_tools())


def request_context() -> list[dict[str, str]]:
    """What the client says about the situation: `description` and `value` of each."""
    return list(_given().get("context") or ())


def platform() -> dict[str, Any]:
    """What the platform asks for, where it says something: `model`, `max_tokens`, `temperature`,
    `system_prompt_append`, `workspace_path`, `cwd_path`.
    """
    return dict(_given().get("platform") or {})


def route_tools(tools: str = "tools", *, end: str = END, key: str = "messages") -> Callable[[Any], str]:
    """A condition after the model's node: to the node `tools` when there is a call of the graph's own tools, else to the end.

    Calls of the client's tools end the run: the client carries them out and answers in the next one.
    """

    def route(state: Any) -> str:
        return tools if any(not is_frontend(call["name"]) for call in _calls(state, key)) else end

    return route


def answer_backend(model: str = "agent", *, end: str = END, key: str = "messages") -> Callable[[Any], str]:
    """A condition after the node of tools: back to the node `model`, unless the same turn also called the client's tools."""

    def route(state: Any) -> str:
        return end if any(is_frontend(call["name"]) for call in _calls(state, key)) else model

    return route


def backend_tools(node: Any, *, key: str = "messages") -> Any:
    """A `ToolNode` that leaves the client's calls alone."""

    async def run(state: Any, config: RunnableConfig) -> Any:
        messages = list(_messages(state, key))
        at = _last_model_message(messages)
        mine = [call for call in messages[at].tool_calls if not is_frontend(call["name"])]
        shown = [*messages[:at], messages[at].model_copy(update={"tool_calls": mine}), *messages[at + 1 :]]
        rest = cast("dict[str, Any]", state) if isinstance(state, dict) else {}
        return await node.ainvoke({**rest, key: shown}, config)

    setattr(run, TOOLS, tuple(node.tools_by_name))
    return run


def _messages(state: Any, key: str) -> list[Any]:
    found: Any = cast("Mapping[str, Any]", state)[key] if isinstance(state, dict) else getattr(state, key)
    return list(found)


def _last_model_message(messages: list[Any]) -> int:
    return max((at for at, message in enumerate(messages) if isinstance(message, AIMessage)), default=-1)


def _calls(state: Any, key: str) -> list[Any]:
    messages = _messages(state, key)
    at = _last_model_message(messages)
    return list(messages[at].tool_calls) if at >= 0 else []
