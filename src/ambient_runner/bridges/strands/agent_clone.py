"""Copies of the user's Strands agent, one per thread.

The SDK cannot copy an agent. An agent contains its history, lock and interrupts as well as its configuration, so two threads on one agent
would read each other's messages. The constructor's arguments are read back from the agent; hooks and middleware added later are copied.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

from strands import Agent
from strands.agent.state import AgentState
from strands.handlers.callback_handler import PrintingCallbackHandler

from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from strands.session.session_manager import SessionManager
    from strands.types.tools import AgentTool

__all__ = ["check_template", "clone_agent", "session_manager_of"]

_BUILT_IN_PLUGINS = {"strands:model", "strands:agent-delegation"}


def session_manager_of(agent: Agent) -> SessionManager | None:
    """Return the agent's session manager; None if it has none."""
    return cast("Any", agent)._session_manager


def check_template(agent: Agent) -> None:
    """Refuse a template that cannot be copied. Raises: ConfigError."""
    inner: Any = agent
    if inner._session_manager is not None:
        raise ConfigError(
            "A session manager belongs to one conversation. Use StrandsAgentConfig(session_manager_provider=…), "
            "or pass a function that returns the agent of a thread."
        )
    for name, value in (
        ("context_manager", inner._context_manager_instance),
        ("memory_manager", inner.memory_manager),
        ("background_tasks", inner._background_tasks),
    ):
        if value is not None:
            raise ConfigError(
                f"An agent with a {name} cannot be copied for each thread. Pass a function that returns the agent."
            )


def clone_agent(template: Agent, *, session_manager: SessionManager | None = None, instructions: str = "") -> Agent:
    """Return a copy of the template with an empty history. `instructions` are appended to its system prompt.

    Raises: ConfigError when a part of the template cannot be copied.
    """
    check_template(template)
    inner: Any = template  # the SDK keeps its constructor's arguments under private names
    plugins = _user_plugins(inner)
    plugin_tools = {tool.tool_name for plugin in plugins for tool in plugin.tools}
    agent = Agent(
        model=inner._model_router or template.model,
        aux_model=inner._aux_model,
        tools=[_clone_tool(tool) for name, tool in template.tool_registry.registry.items() if name not in plugin_tools],
        system_prompt=_system_prompt(template, instructions),
        structured_output_model=inner._default_structured_output_model,
        structured_output_prompt=inner._structured_output_prompt,
        callback_handler=_callback_handler(template),
        conversation_manager=None if template.model.stateful else _copy_manager(template.conversation_manager),
        record_direct_tool_call=template.record_direct_tool_call,
        load_tools_from_directory=template.load_tools_from_directory,
        trace_attributes=template.trace_attributes,
        baggage_attributes=template.baggage_attributes,
        agent_id=template.agent_id,
        name=template.name,
        description=template.description,
        state=AgentState(template.state.get()),
        plugins=plugins or None,
        interventions=list(inner._intervention_registry._handlers),
        session_manager=session_manager,
        tool_executor=template.tool_executor,
        retry_strategy=copy.copy(inner._retry_strategy),
        sandbox=inner._sandbox,
        storage=inner._storage,
    )
    _copy_hooks(inner, agent)
    _copy_middleware(inner, agent)
    return agent


def _user_plugins(inner: Any) -> list[Any]:
    """Return the plugins of the user, without those the constructor adds."""
    plugins = inner._plugin_registry._plugins
    return [
        plugin
        for name, plugin in plugins.items()
        if name not in _BUILT_IN_PLUGINS and plugin is not inner._model_router
    ]


def _clone_tool(tool: AgentTool) -> Any:
    """Return the tool itself, or a copy if it is an agent used as a tool: an agent has a history and a lock."""
    if tool.tool_type != "agent":
        return tool
    wrapped: Any = tool
    inner = clone_agent(wrapped.agent)
    inner.messages = copy.deepcopy(wrapped._initial_messages)
    return inner.as_tool(
        name=tool.tool_name,
        description=wrapped.agent.description,
        preserve_context=wrapped._preserve_context,
        delegate=wrapped.delegate,
    )


def _system_prompt(template: Agent, instructions: str) -> Any:
    blocks: list[Any] = list(template.system_prompt_content or [])
    return [*blocks, {"text": instructions}] if instructions else blocks or None


def _callback_handler(template: Agent) -> Any:
    """Return the user's callback handler, but not the default one, which prints every answer to the terminal."""
    handler = template.callback_handler
    return None if isinstance(handler, PrintingCallbackHandler) else handler


def _copy_manager(manager: Any) -> Any:
    try:
        return copy.deepcopy(manager)
    except TypeError as error:
        raise ConfigError(
            f"{type(manager).__name__} cannot be copied for each thread. Pass a function that returns the agent."
        ) from error


def _copy_hooks(inner: Any, agent: Agent) -> None:
    """Copy the callbacks that the new agent lacks: those the user added."""
    registered = cast("Any", agent.hooks)._registered_callbacks
    for kind, entries in inner.hooks._registered_callbacks.items():
        known = {_callback_identity(entry.callback) for entry in registered.get(kind, ())}
        for entry in entries:
            if _callback_identity(entry.callback) not in known:
                agent.hooks.add_callback(kind, entry.callback, order=entry.order)


def _callback_identity(callback: Any) -> tuple[str, str]:
    return (getattr(callback, "__module__", ""), getattr(callback, "__qualname__", repr(callback)))


def _copy_middleware(inner: Any, agent: Agent) -> None:
    """Copy the handlers after those that the constructor adds, which come first in the list."""
    registered = cast("Any", agent)._middleware_registry._handlers
    for stage, handlers in inner._middleware_registry._handlers.items():
        copied = registered.setdefault(stage, [])
        copied += handlers[len(copied) :]
