"""Private names of the Strands SDK that the bridge reads: constructor arguments of an agent, its hooks, plugins and middleware.

The SDK can neither copy an agent nor show which hooks and middleware it has.
"""

from __future__ import annotations

import importlib
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from strands import Agent

from ambient_runner.bridges.toolkit.sdk import Sdk

if TYPE_CHECKING:
    from strands.session.session_manager import SessionManager
    from strands.types.tools import AgentTool

SDK = Sdk(package="strands-agents", lowest="1.59.0", newest="1.62.0")

with SDK.private_names():
    from strands.types._snapshot import Snapshot  # pyright: ignore[reportPrivateUsage]  the type of `take_snapshot`, exported nowhere

    try:
        from strands.middleware import ExecuteToolStage, InvokeModelStage, ToolResultEvent, TypedEvent
    except ModuleNotFoundError:  # private before 1.62
        if not TYPE_CHECKING:
            from strands._middleware import ExecuteToolStage, InvokeModelStage
            from strands.types._events import ToolResultEvent, TypedEvent

__all__ = [
    "SDK",
    "ExecuteToolStage",
    "InvokeModelStage",
    "Snapshot",
    "ToolResultEvent",
    "TypedEvent",
    "add_middleware",
    "agent_stream_stage",
    "cancel_after_tools",
    "clear_cancel_signal",
    "constructor_arguments",
    "initial_messages_of",
    "inner_agent_options",
    "middleware_handlers",
    "plugins_of",
    "registered_callbacks",
    "session_manager_of",
    "uncopyable_parts",
    "user_plugins",
]

_ARGUMENTS = {
    "aux_model": "_aux_model",
    "baggage_attributes": "baggage_attributes",
    "structured_output_model": "_default_structured_output_model",
    "structured_output_prompt": "_structured_output_prompt",
    "retry_strategy": "_retry_strategy",
    "sandbox": "_sandbox",
    "storage": "_storage",
}
"""Constructor arguments and the private attributes that keep them. Older versions lack some of both."""
_UNCOPYABLE = {
    "context_manager": "_context_manager_instance",
    "memory_manager": "memory_manager",
    "background_tasks": "_background_tasks",
}
_BUILT_IN_PLUGINS = {"strands:model", "strands:agent-delegation"}
_PARAMETERS = inspect.signature(Agent).parameters


def session_manager_of(agent: Agent) -> SessionManager | None:
    """Return the agent's session manager; None if it has none."""
    with SDK.private_names():
        return cast("Any", agent)._session_manager


def cancel_after_tools(agent: Agent) -> None:
    """Cancel the agent before its next model call. Before 1.62, tool calls that have not started are cancelled too."""
    if "after_current_tools" in inspect.signature(agent.cancel).parameters:
        agent.cancel(after_current_tools=True)
    else:
        agent.cancel()


def clear_cancel_signal(agent: Agent) -> None:
    """Clear the signal of an earlier `cancel`, which would end the next run at once."""
    with SDK.private_names():
        cast("Any", agent)._cancel_signal.clear()


def uncopyable_parts(agent: Agent) -> list[str]:
    """Return the names of the agent's constructor arguments that belong to one conversation and cannot be copied."""
    with SDK.private_names():
        return [name for name, value in _read_arguments(agent, _UNCOPYABLE).items() if value is not None]


def constructor_arguments(agent: Agent) -> dict[str, Any]:
    """Return the arguments the agent was created with, those that the SDK keeps under private names."""
    inner: Any = agent
    with SDK.private_names():
        arguments = _read_arguments(agent, _ARGUMENTS)
        if "interventions" in _PARAMETERS:
            arguments["interventions"] = list(inner._intervention_registry._handlers)
    return arguments | {"model": _model_router(agent) or agent.model}


def user_plugins(agent: Agent) -> list[Any]:
    """Return the plugins of the user, without those the constructor adds."""
    router = _model_router(agent)
    return [plugin for plugin in plugins_of(agent) if plugin.name not in _BUILT_IN_PLUGINS and plugin is not router]


def plugins_of(template: Any) -> list[Any]:
    """Return the plugins of an agent, graph or swarm."""
    with SDK.private_names():
        return list(template._plugin_registry._plugins.values())


def initial_messages_of(node: Any) -> Any:
    """Return the first messages of an agent: of one that is used as a tool, or of a node of a graph or swarm."""
    with SDK.private_names():
        return node._initial_messages


def inner_agent_options(tool: AgentTool) -> tuple[Any, dict[str, Any]]:
    """Return the first messages of an agent that is used as a tool, and the options of its `as_tool`."""
    wrapped: Any = tool
    with SDK.private_names():
        options: dict[str, Any] = {"preserve_context": wrapped._preserve_context}
        if "delegate" in inspect.signature(Agent.as_tool).parameters:
            options["delegate"] = wrapped.delegate
    return initial_messages_of(tool), options


def registered_callbacks(agent: Any) -> dict[Any, list[Any]]:
    """Return the hooks of an agent, graph or swarm by kind of event. The lists are its own."""
    with SDK.private_names():
        return agent.hooks._registered_callbacks


def middleware_handlers(agent: Agent) -> dict[Any, list[Any]]:
    """Return the registered middleware by stage. The lists are the agent's own."""
    with SDK.private_names():
        return cast("Any", agent)._middleware_registry._handlers


def add_middleware(agent: Agent, stage: Any, handler: Any) -> None:
    """Add middleware of a stage to the agent. The method is public since 1.62."""
    with SDK.private_names():
        registry: Any = agent if hasattr(agent, "add_middleware") else cast("Any", agent)._middleware_registry
    registry.add_middleware(stage, handler)


def agent_stream_stage() -> Any:
    """Return the middleware stage around an agent's stream, which the SDK does not export; None if this version lacks it."""
    for module in ("strands.middleware._agent_stream", "strands._middleware.stages"):
        with suppress(ImportError, AttributeError):
            return importlib.import_module(module).AgentStreamStage
    return None


def _model_router(agent: Agent) -> Any:
    with SDK.private_names():
        return cast("Any", agent)._model_router


def _read_arguments(agent: Agent, names: dict[str, str]) -> dict[str, Any]:
    return {argument: getattr(agent, name) for argument, name in names.items() if argument in _PARAMETERS}
