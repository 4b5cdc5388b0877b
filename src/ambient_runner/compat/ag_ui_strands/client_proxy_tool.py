"""The names of `ag_ui_strands.client_proxy_tool`: client tools in a tool registry of your own.

An agent that is served here needs none of this: it has the client's tools during a run, and its registry does not change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from strands import ToolContext
from strands.tools.tools import PythonAgentTool

from ambient_runner.bridges.strands.client_tools import CLIENT_TOOL_INTERRUPT, tool_spec
from ambient_runner.bridges.toolkit.turns import FORWARDED_RESULT
from ambient_runner.protocol.events import Tool

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ag_ui.core import Tool as AguiTool
    from strands.tools.registry import ToolRegistry
    from strands.types.tools import AgentTool

    from ambient_runner.bridges.strands.config import ToolBehavior

__all__ = ["PROXY_RESULT_PLACEHOLDER", "create_proxy_tool", "sync_proxy_tools"]

PROXY_RESULT_PLACEHOLDER = FORWARDED_RESULT
"""Result of a client tool for which the model does not wait."""
_PROXIES: WeakSet[Any] = WeakSet()


def create_proxy_tool(
    ag_ui_tool: AguiTool | Mapping[str, Any], *, continue_after_frontend_call: bool = True
) -> AgentTool:
    """Return a Strands tool that stands for a client's tool. Unless the model continues, a call interrupts the agent."""
    tool = _to_tool(ag_ui_tool)
    spec: Any = tool_spec(tool)

    async def run(use: Any, **state: Any) -> Any:
        result: Any = {"status": "success", "content": [{"text": PROXY_RESULT_PLACEHOLDER}]}
        if not continue_after_frontend_call:
            context = ToolContext(tool_use=use, agent=state["agent"], invocation_state=state)
            result = context.interrupt(CLIENT_TOOL_INTERRUPT, reason={"tool": tool.name, "call": use["toolUseId"]})
        return {**result, "toolUseId": use["toolUseId"]}

    proxy = PythonAgentTool(tool.name, spec, run)
    proxy.mark_dynamic()
    _PROXIES.add(proxy)
    return proxy


def sync_proxy_tools(
    tool_registry: ToolRegistry,
    ag_ui_tools: Sequence[AguiTool | Mapping[str, Any]],
    tracked_names: Collection[str],
    *,
    tool_behaviors: Mapping[str, ToolBehavior] | None = None,
    exempt_names: Collection[str] | None = None,
) -> set[str]:
    """Make the proxies in the registry those of these tools, and return their names. The agent's own tools are not replaced.

    `tracked_names` are the names that the previous call returned; those in `exempt_names` stay.
    """
    tools = {tool.name: tool for tool in map(_to_tool, ag_ui_tools) if tool.name}
    names: set[str] = set()
    for name in set(tracked_names) - tools.keys():
        if tool_registry.registry.get(name) not in _PROXIES:
            continue
        if name in (exempt_names or ()):
            names.add(name)
        else:
            del tool_registry.registry[name]
            tool_registry.dynamic_tools.pop(name, None)
    for name, tool in tools.items():
        known = tool_registry.registry.get(name)
        if known is None or known in _PROXIES:
            behavior = (tool_behaviors or {}).get(name)
            continues = behavior is None or behavior.continue_after_frontend_call
            proxy = create_proxy_tool(_as_mapping(tool), continue_after_frontend_call=continues)
            tool_registry.registry[name] = tool_registry.dynamic_tools[name] = proxy
            names.add(name)
    return names


def _to_tool(tool: AguiTool | Mapping[str, Any]) -> Tool:
    values: Mapping[str, Any] = tool if isinstance(tool, Mapping) else tool.model_dump()
    return Tool(
        name=values.get("name", ""), description=values.get("description") or "", parameters=values.get("parameters")
    )


def _as_mapping(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
