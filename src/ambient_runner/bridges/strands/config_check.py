"""Names in a configuration that no tool has. A misspelt one would silently do nothing, not even ask a person first. Pure, but for the log.

The client's tools are known only run by run, so a behaviour that could be for one of those is left alone unless its name is clearly a slip
of the pen. Asking before a call is for the agent's own tools only: there any unknown name is a mistake.
"""

from __future__ import annotations

import difflib
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ambient_runner.bridges.strands.config import StrandsAgentConfig

__all__ = ["misspelt", "warn_of_misspelt"]

logger = logging.getLogger(__name__)


def warn_of_misspelt(config: StrandsAgentConfig, own: Collection[str], clients: Collection[str]) -> None:
    """Name in the log what `misspelt` finds."""
    for name, nearest in misspelt(config, own, clients).items():
        lost = (
            "nobody is asked before a call" if config.behavior(name).interrupt_on_call else "its behaviour is not used"
        )
        hint = f"did you mean {nearest!r}?" if nearest else f"the tools are {sorted(own)}"
        logger.warning("tool_behaviors names %r, but there is no such tool, so %s: %s", name, lost, hint)


def misspelt(config: StrandsAgentConfig, own: Collection[str], clients: Collection[str] = ()) -> dict[str, str | None]:
    """The names that are surely wrong, each with the agent's tool that is most like it, if one is."""
    unknown = config.tool_behaviors.keys() - set(own) - set(clients)
    free = sorted(set(own) - config.tool_behaviors.keys())
    found: dict[str, str | None] = {}
    for name in sorted(unknown):
        slip = next((tool for tool in free if _is_slip(name, tool)), None)
        if slip is not None or config.behavior(name).interrupt_on_call:
            found[name] = slip or _nearest(name, own)
    return found


def _nearest(name: str, tools: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, sorted(tools), n=1)), None)


def _is_slip(name: str, tool: str) -> bool:
    """Whether two names differ by no more than case, punctuation, letters out of order, or one letter too many or too few inside.

    Another letter in its place is none: `get_color` and `set_color` are two tools, and so are `show_item` and `show_items`.
    """
    short, long = sorted((_letters(name), _letters(tool)), key=len)
    if len(short) == len(long):
        return sorted(short) == sorted(long)
    return any(long[:at] + long[at + 1 :] == short for at in range(1, len(long) - 1))


def _letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())
