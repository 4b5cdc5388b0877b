"""ClientToolset: marks the agents of a tree that may call the client's tools, and which of them.

It is empty for ADK. The tools of a run are known only with its input, so `instrumentation.py` adds them to each model request.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from google.adk.agents import LlmAgent
from google.adk.tools.base_toolset import BaseToolset

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import ToolPredicate
    from google.adk.workflow import BaseNode

    from ambient_runner.bridges.adk.client_tools import ClientTool

__all__ = ["ClientToolset", "client_toolsets"]


class ClientToolset(BaseToolset):
    """The client's tools as a toolset of an agent. `tool_filter` chooses by name or with a function; the prefix is put before the names."""

    def __init__(
        self, *, tool_filter: ToolPredicate | list[str] | None = None, tool_name_prefix: str | None = None
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        return []

    def select_tools(self, tools: Iterable[ClientTool], context: ReadonlyContext) -> list[ClientTool]:
        """Return the tools of a run that this toolset offers, under their prefixed names."""
        return [self._with_prefix(tool) for tool in tools if self._is_offered(tool, context)]

    def _is_offered(self, tool: ClientTool, context: ReadonlyContext) -> bool:
        chosen: Any = self.tool_filter
        if chosen is None:
            return True
        return tool.name in chosen if isinstance(chosen, list) else bool(chosen(tool, context))

    def _with_prefix(self, tool: ClientTool) -> ClientTool:
        if not self.tool_name_prefix:
            return tool
        renamed = copy.copy(tool)
        renamed.name = f"{self.tool_name_prefix}_{tool.name}"
        return renamed


def client_toolsets(nodes: Iterable[BaseNode]) -> dict[str, Sequence[ClientToolset]]:
    """Return the client toolsets of the agents that have one, by agent name."""
    toolsets = {node.name: _toolsets_of(node) for node in nodes if isinstance(node, LlmAgent)}
    return {name: found for name, found in toolsets.items() if found}


def _toolsets_of(agent: Any) -> list[ClientToolset]:
    return [tool for tool in agent.tools if isinstance(tool, ClientToolset)]
