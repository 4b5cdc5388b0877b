"""The client's tools for the agents that declare them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.adk.client_tools import ClientTool
from ambient_runner.bridges.adk.client_toolset import ClientToolset
from ambient_runner.bridges.toolkit.callbacks import required_parameters
from ambient_runner.protocol.events import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import ag_ui.core
    from google.adk.agents.readonly_context import ReadonlyContext

__all__ = ["FrontendTool", "FrontendToolset"]


class FrontendTool(ClientTool):
    """A tool of the client. `agui_queue` has no effect: the call is an event of the agent."""

    def __init__(self, agui_tool: ag_ui.core.Tool, agui_queue: Any = None) -> None:
        super().__init__(Tool(name=agui_tool.name, description=agui_tool.description, parameters=agui_tool.parameters))


class FrontendToolset(ClientToolset):
    """Offers the tools of the client to an agent, without changing the agent.

    `tool_filter` chooses them by their names, with or without the prefix, or with a function of the tool. The prefix is put before the
    names as it is.
    """

    def __init__(
        self, tool_filter: Callable[..., bool] | list[str] | None = None, tool_name_prefix: str | None = None
    ) -> None:
        super().__init__(tool_filter=cast("Any", tool_filter), tool_name_prefix=tool_name_prefix)

    def select_tools(self, tools: Iterable[ClientTool], context: ReadonlyContext) -> list[ClientTool]:
        renamed = [(tool.name, _rename(tool, f"{self.tool_name_prefix or ''}{tool.name}")) for tool in tools]
        return [tool for name, tool in renamed if self._chooses_tool(name, tool, context)]

    def _chooses_tool(self, name: str, tool: ClientTool, context: ReadonlyContext) -> bool:
        chosen: Any = self.tool_filter
        if not chosen:
            return True
        if isinstance(chosen, list):
            return name in chosen or tool.name in chosen
        takes_context = len(required_parameters(chosen)) > 1
        return bool(chosen(tool, context) if takes_context else chosen(tool))


def _rename(tool: ClientTool, name: str) -> ClientTool:
    renamed = copy.copy(tool)
    renamed.name = name
    return renamed
