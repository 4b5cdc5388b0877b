"""A Strands agent of its own for every thread, made after the one the user gave.

The SDK has no copy: an agent is its history, its lock and its interrupts as much as its configuration, and two threads on one agent read
each other's messages. What was given to the constructor is read back from the agent; hooks and middleware added later come along.
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

__all__ = ["check_template", "clone", "session_manager_of"]

_BUILT_IN = {"strands:model", "strands:agent-delegation"}


def session_manager_of(agent: Agent) -> SessionManager | None:
    """The agent's session manager, if it has one."""
    return cast("Any", agent)._session_manager


def check_template(agent: Agent) -> None:
    """Refuse a template that cannot be had twice. Raises: ConfigError."""
    inner: Any = agent
    if inner._session_manager is not None:
        raise ConfigError(
            "A session manager belongs to one conversation. Give StrandsAgentConfig(session_manager_provider=…), "
            "or a function that makes an agent for a thread."
        )
    for what, found in (
        ("context_manager", inner._context_manager_instance),
        ("memory_manager", inner.memory_manager),
        ("background_tasks", inner._background_tasks),
    ):
        if found is not None:
            raise ConfigError(
                f"An agent with a {what} cannot be copied for each thread. Give a function that makes the agent."
            )


def clone(template: Agent, *, session_manager: SessionManager | None = None, instructions: str = "") -> Agent:
    """An agent like the template, with an empty history. `instructions` are added to its system prompt.

    Raises: ConfigError when the template holds something that cannot be had twice.
    """
    check_template(template)
    inner: Any = template  # What the SDK keeps of its constructor's arguments has no public names.
    plugins = _plugins(inner)
    vended = {tool.tool_name for plugin in plugins for tool in plugin.tools}
    made = Agent(
        model=inner._model_router or template.model,
        aux_model=inner._aux_model,
        tools=[_own(tool) for name, tool in template.tool_registry.registry.items() if name not in vended],
        system_prompt=_prompt(template, instructions),
        structured_output_model=inner._default_structured_output_model,
        structured_output_prompt=inner._structured_output_prompt,
        callback_handler=_callback_handler(template),
        conversation_manager=None if template.model.stateful else _copied(template.conversation_manager),
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
    _bring_hooks(inner, made)
    _bring_middleware(inner, made)
    return made


def _plugins(inner: Any) -> list[Any]:
    """The plugins the user gave, without those the constructor adds itself."""
    found = inner._plugin_registry._plugins
    return [plugin for name, plugin in found.items() if name not in _BUILT_IN and plugin is not inner._model_router]


def _own(tool: AgentTool) -> Any:
    """The tool itself; of an agent that is used as a tool, another one: it holds a conversation and a lock."""
    if tool.tool_type != "agent":
        return tool
    wrapped: Any = tool
    inner = clone(wrapped.agent)
    inner.messages = copy.deepcopy(wrapped._initial_messages)
    return inner.as_tool(
        name=tool.tool_name,
        description=wrapped.agent.description,
        preserve_context=wrapped._preserve_context,
        delegate=wrapped.delegate,
    )


def _prompt(template: Agent, instructions: str) -> Any:
    blocks: list[Any] = list(template.system_prompt_content or [])
    return [*blocks, {"text": instructions}] if instructions else blocks or None


def _callback_handler(template: Agent) -> Any:
    """The user's own; not the default one, which prints every answer to the server's terminal."""
    handler = template.callback_handler
    return None if isinstance(handler, PrintingCallbackHandler) else handler


def _copied(manager: Any) -> Any:
    try:
        return copy.deepcopy(manager)
    except TypeError as error:
        raise ConfigError(
            f"{type(manager).__name__} cannot be copied for each thread. Give a function that makes the agent."
        ) from error


def _bring_hooks(inner: Any, made: Agent) -> None:
    """Callbacks the template has and the new agent has not: those the user added."""
    theirs = cast("Any", made.hooks)._registered_callbacks
    for kind, entries in inner.hooks._registered_callbacks.items():
        known = {_identity(entry.callback) for entry in theirs.get(kind, ())}
        for entry in entries:
            if _identity(entry.callback) not in known:
                made.hooks.add_callback(kind, entry.callback, order=entry.order)


def _identity(callback: Any) -> tuple[str, str]:
    return (getattr(callback, "__module__", ""), getattr(callback, "__qualname__", repr(callback)))


def _bring_middleware(inner: Any, made: Agent) -> None:
    """Handlers beyond those the constructor adds: they come first in the list."""
    theirs = cast("Any", made)._middleware_registry._handlers
    for stage, handlers in inner._middleware_registry._handlers.items():
        mine = theirs.setdefault(stage, [])
        mine += handlers[len(mine) :]
