"""The names of `ag_ui_strands.template_tools`: a selection of tools in a tool registry of your own.

An agent that is served here needs none of this: `StrandsAgentConfig(template_tools_provider=…)` selects the tools of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ambient_runner.bridges.strands.tool_names import TemplateToolsSelectionError, selected_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from strands.tools.registry import ToolRegistry

__all__ = ["EXEMPT_EVERY_TEMPLATE_TOOL", "TemplateToolsSelectionError", "sync_template_tools"]

EXEMPT_EVERY_TEMPLATE_TOOL: Final = object()
"""Value of `exempt_names` with which every tool stays registered."""


def sync_template_tools(
    tool_registry: ToolRegistry,
    template_tools: Sequence[Any],
    selection: Iterable[Any] | None,
    *,
    exempt_names: Collection[str] | object | None = None,
) -> set[str]:
    """Register the selected ones of these tools and remove the others; return the names that are registered.

    None selects all. Tools in `exempt_names` are not removed. Raises: TemplateToolsSelectionError.
    """
    tools = {tool.tool_name: tool for tool in template_tools}
    selected = selected_names(selection, tools)
    keeps_all = selected is None or exempt_names is EXEMPT_EVERY_TEMPLATE_TOOL
    exempt: Any = () if keeps_all or exempt_names is None else exempt_names
    kept = (
        set(tools) if keeps_all else {*(selected or ()), *(name for name in exempt if name in tool_registry.registry)}
    )
    for name, tool in tools.items():
        if name in kept:
            tool_registry.registry.setdefault(name, tool)
        elif tool_registry.registry.get(name) is tool:
            del tool_registry.registry[name]
    return kept & tool_registry.registry.keys()
