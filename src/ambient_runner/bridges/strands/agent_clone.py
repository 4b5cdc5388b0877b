"""Copies of the user's Strands agent, one per thread.

The SDK cannot copy an agent. An agent contains its history, lock and interrupts as well as its configuration, so two threads on one agent
would read each other's messages. The constructor's arguments are read back from the agent; hooks and middleware added later are copied.
"""

from __future__ import annotations

import copy
import inspect
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.agent.state import AgentState
from strands.handlers.callback_handler import PrintingCallbackHandler

from ambient_runner.bridges.strands.sdk import (
    constructor_arguments,
    inner_agent_options,
    middleware_handlers,
    registered_callbacks,
    session_manager_of,
    uncopyable_parts,
    user_plugins,
)
from ambient_runner.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from strands.session.session_manager import SessionManager
    from strands.types.tools import AgentTool

__all__ = ["check_template", "clone_agent", "copy_hooks"]

logger = logging.getLogger(__name__)

_NO_OVERRIDES: Mapping[str, Any] = MappingProxyType({})
_THREAD_ARGUMENTS = {"model", "tools", "system_prompt", "session_manager", "messages"}
"""Arguments of an agent that the bridge sets: they keep threads apart."""


def check_template(agent: Agent) -> None:
    """Refuse a template that cannot be copied. Raises: ConfigError."""
    if session_manager_of(agent) is not None:
        raise ConfigError(
            "A session manager belongs to one conversation. Use StrandsAgentConfig(session_manager_provider=…), "
            "or pass a function that returns the agent of a thread."
        )
    for name in uncopyable_parts(agent):
        raise ConfigError(
            f"An agent with a {name} cannot be copied for each thread. Pass a function that returns the agent."
        )


def clone_agent(
    template: Agent,
    *,
    session_manager: SessionManager | None = None,
    instructions: str = "",
    without_tools: Collection[str] = (),
    hooks: Sequence[Any] = (),
    plugins: Sequence[Any] = (),
    overrides: Mapping[str, Any] = _NO_OVERRIDES,
) -> Agent:
    """Return a copy of the template with an empty history. `instructions` are appended to its system prompt.

    `hooks` and `plugins` are added to the template's. `overrides` are arguments of the constructor that replace those of the template.
    Raises: ConfigError when a part of the template cannot be copied, or an argument does not exist.
    """
    check_template(template)
    own_plugins = user_plugins(template)
    left_out = {*without_tools, *(tool.tool_name for plugin in own_plugins for tool in plugin.tools)}
    arguments: dict[str, Any] = _template_arguments(template, instructions, left_out)
    arguments |= {
        "conversation_manager": _copy_manager(template, overrides),
        "session_manager": session_manager,
        "plugins": [*own_plugins, *plugins] or None,
        "hooks": list(hooks) or None,
    }
    agent = Agent(**(arguments | _usable_overrides(overrides)))
    copy_hooks(template, agent)
    _copy_middleware(template, agent)
    return agent


def _template_arguments(template: Agent, instructions: str, left_out: Collection[str]) -> dict[str, Any]:
    """Return the arguments that the template was created with, except those that every copy has for itself."""
    arguments = constructor_arguments(template)
    return arguments | {
        "tools": [_clone_tool(tool) for name, tool in template.tool_registry.registry.items() if name not in left_out],
        "system_prompt": _system_prompt(template, instructions),
        "callback_handler": _callback_handler(template),
        "record_direct_tool_call": template.record_direct_tool_call,
        "load_tools_from_directory": template.load_tools_from_directory,
        "trace_attributes": template.trace_attributes,
        "agent_id": template.agent_id,
        "name": template.name,
        "description": template.description,
        "state": AgentState(template.state.get()),
        "tool_executor": template.tool_executor,
        "retry_strategy": copy.copy(arguments["retry_strategy"]),
    }


def _clone_tool(tool: AgentTool) -> Any:
    """Return the tool itself, or a copy if it is an agent used as a tool: an agent has a history and a lock."""
    if tool.tool_type != "agent":
        return tool
    wrapped: Any = tool
    inner = clone_agent(wrapped.agent)
    first_messages, options = inner_agent_options(tool)
    inner.messages = copy.deepcopy(first_messages)
    return inner.as_tool(name=tool.tool_name, description=wrapped.agent.description, **options)


def _system_prompt(template: Agent, instructions: str) -> Any:
    blocks: list[Any] = list(template.system_prompt_content or [])
    return [*blocks, {"text": instructions}] if instructions else blocks or None


def _callback_handler(template: Agent) -> Any:
    """Return the user's callback handler, but not the default one, which prints every answer to the terminal."""
    handler = template.callback_handler
    return None if isinstance(handler, PrintingCallbackHandler) else handler


def _usable_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments without those that the bridge sets, which are logged. Raises: ConfigError for one that does not exist."""
    if not overrides:
        return {}  # The signature takes a quarter of the time of a copy.
    unknown = sorted(overrides.keys() - inspect.signature(Agent).parameters.keys())
    if unknown:
        raise ConfigError(f"thread_agent_kwargs returned {', '.join(unknown)}, but strands.Agent has no such argument.")
    ignored = sorted(overrides.keys() & _THREAD_ARGUMENTS)
    if ignored:
        logger.warning(
            "Ignored %s of thread_agent_kwargs: set model, tools and system_prompt on the agent, and the session manager "
            "with session_manager_provider.",
            ", ".join(ignored),
        )
    return {name: value for name, value in overrides.items() if name not in _THREAD_ARGUMENTS}


def _copy_manager(template: Agent, overrides: Mapping[str, Any]) -> Any:
    manager: Any = template.conversation_manager
    if template.model.stateful or "conversation_manager" in overrides:
        return None
    try:
        return copy.deepcopy(manager)
    except TypeError as error:
        raise ConfigError(
            f"{type(manager).__name__} cannot be copied for each thread. Return a new one from thread_agent_kwargs, or pass a function "
            "that returns the agent."
        ) from error


def copy_hooks(template: Any, agent: Any) -> None:
    """Copy the callbacks that the new agent, graph or swarm lacks: those the user added."""
    registered = registered_callbacks(agent)
    for kind, entries in registered_callbacks(template).items():
        known = {_callback_identity(entry.callback) for entry in registered.get(kind, ())}
        for entry in entries:
            if _callback_identity(entry.callback) not in known:
                agent.hooks.add_callback(kind, entry.callback, order=entry.order)


def _callback_identity(callback: Any) -> tuple[str, str]:
    return (getattr(callback, "__module__", ""), getattr(callback, "__qualname__", repr(callback)))


def _copy_middleware(template: Agent, agent: Agent) -> None:
    """Copy the handlers after those that the constructor adds, which come first in the list."""
    registered = middleware_handlers(agent)
    for stage, handlers in middleware_handlers(template).items():
        copied = registered.setdefault(stage, [])
        copied += handlers[len(copied) :]
