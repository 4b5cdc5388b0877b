"""Names of the agent's tools: how the SDK compares them, and those of one run, by the configured `template_tools_provider`.

The tools stay registered: the others are not offered to the model, and a call of one is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.strands.errors import ToolSelectionFailed
from ambient_runner.bridges.toolkit.callbacks import call_hook, try_hook

if TYPE_CHECKING:
    from collections.abc import Collection

    from ag_ui.core import RunAgentInput

    from ambient_runner.bridges.strands.config import StrandsAgentConfig

__all__ = ["TemplateToolsSelectionError", "normalize_tool_name", "select_tools", "selected_names"]

logger = logging.getLogger(__name__)


class TemplateToolsSelectionError(ValueError):
    """A `template_tools_provider` must return tools or their names in a list, set or other iterable, or None."""


def normalize_tool_name(name: str) -> str:
    """Return the form in which the SDK compares names: an agent cannot have two tools whose names differ only in `-` and `_`."""
    return name.replace("-", "_")


async def select_tools(
    config: StrandsAgentConfig, run_input: RunAgentInput, own_tools: Collection[str]
) -> frozenset[str] | None:
    """Return the tools that the model may call; None for all. Raises: ToolSelectionFailed, because none may be offered by mistake."""
    provider = config.template_tools_provider
    if provider is None:
        return None

    async def select() -> frozenset[str] | None:
        return selected_names(await call_hook(provider, run_input), own_tools)

    selected, hook_errors = await try_hook("template_tools_provider", select)
    if hook_errors:
        raise ToolSelectionFailed
    return selected


def selected_names(selection: Any, own_tools: Collection[str]) -> frozenset[str] | None:
    """Return the names of the selected tools; None for all. An unknown name is logged. Raises: TemplateToolsSelectionError."""
    if selection is None:
        return None
    if isinstance(selection, str | Mapping) or not isinstance(selection, Iterable):
        kind = type(cast("object", selection)).__name__
        raise TemplateToolsSelectionError(
            f"A template_tools_provider must return a list of tools or names, not a {kind}."
        )
    names = {_tool_name(item) for item in cast("Iterable[Any]", selection)}
    unknown = sorted(names - set(own_tools))
    if unknown:
        logger.warning("A template_tools_provider selected tools that the agent does not have: %s", ", ".join(unknown))
    return frozenset(names & set(own_tools))


def _tool_name(item: Any) -> str:
    """Return the name of a tool, or a name as it is. Raises: TemplateToolsSelectionError."""
    name = item if isinstance(item, str) else getattr(item, "tool_name", None) or getattr(item, "__name__", None)
    if not isinstance(name, str):
        raise TemplateToolsSelectionError(
            f"A template_tools_provider returned a {type(item).__name__}. Return tools or their names."
        )
    return name
