"""Check of the tool names in a configuration: a misspelt one would have no effect, and skip an approval. Pure, except for the log.

The client's tools are known only per run, so an unknown name may belong to one of them and is reported only if it is clearly a typo.
Approval applies to the agent's own tools only, so there any unknown name is reported.
"""

from __future__ import annotations

import difflib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ambient_runner.bridges.strands.config import StrandsAgentConfig

__all__ = ["unknown_tool_names", "warn_unknown_tool_names"]

logger = logging.getLogger(__name__)


def warn_unknown_tool_names(
    agent: str, config: StrandsAgentConfig, own_tools: Collection[str], client_tools: Collection[str]
) -> None:
    """Log the names that `unknown_tool_names` finds in the configuration of this agent."""
    for name, nearest in unknown_tool_names(config, own_tools, client_tools).items():
        effect = (
            "no approval is requested before a call"
            if config.behavior(name).interrupt_on_call
            else "this behavior has no effect"
        )
        hint = f"did you mean {nearest!r}?" if nearest else f"the tools are {sorted(own_tools)}"
        logger.warning(
            "tool_behaviors of agent %s has an entry for %r, but the agent has no such tool, so %s: %s",
            agent,
            name,
            effect,
            hint,
        )


def unknown_tool_names(
    config: StrandsAgentConfig, own_tools: Collection[str], client_tools: Collection[str] = ()
) -> dict[str, str | None]:
    """Return the names that are certainly wrong, each with the most similar tool of the agent, if there is one."""
    unknown = config.tool_behaviors.keys() - set(own_tools) - set(client_tools)
    unconfigured = sorted(set(own_tools) - config.tool_behaviors.keys())
    found: dict[str, str | None] = {}
    for name in sorted(unknown):
        intended = next((tool for tool in unconfigured if _is_typo(name, tool)), None)
        if intended is not None or config.behavior(name).interrupt_on_call:
            found[name] = intended or _closest_tool(name, own_tools)
    return found


def _closest_tool(name: str, tools: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, sorted(tools), n=1)), None)


def _is_typo(name: str, tool: str) -> bool:
    """Return True if two names differ only in case, punctuation, the order of letters, or one inner letter added or missing.

    A replaced letter is no typo: `get_color` and `set_color` are two tools, and so are `show_item` and `show_items`.
    """
    short, long = sorted((_normalize_name(name), _normalize_name(tool)), key=len)
    if len(short) == len(long):
        return sorted(short) == sorted(long)
    return any(long[:i] + long[i + 1 :] == short for i in range(1, len(long) - 1))


def _normalize_name(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
