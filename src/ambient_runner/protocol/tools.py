"""The tools of one run: whose they are, and (in `schemas.py`) schemas a provider accepts.

Everything here is made for one run and thrown away with it: tools of one request that stay on a shared agent are seen by the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.protocol.schemas import clean_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ambient_runner.protocol.events import Tool

__all__ = ["Toolbox", "clean_schema"]


class Toolbox:
    """Who executes which tool: the client those it declared, the agent its own. Where both have a name, the agent's tool wins."""

    def __init__(self, frontend: Sequence[Tool], native: Collection[str] = ()) -> None:
        self.frontend: dict[str, Tool] = {tool.name: tool for tool in frontend if tool.name not in native}

    def is_frontend(self, name: str) -> bool:
        return name in self.frontend
