"""The tools of one run: whose they are, when a turn has to wait for the client, and (in `schemas.py`) schemas a provider accepts.

Everything here is made for one run and thrown away with it: tools of one request that stay on a shared agent are seen by the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.protocol.schemas import clean_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ambient_runner.protocol.events import Tool

__all__ = ["Toolbox", "TurnGate", "clean_schema"]


class Toolbox:
    """Who executes which tool: the client those it declared, the agent its own. Where both have a name, the agent's tool wins."""

    def __init__(self, frontend: Sequence[Tool], native: Collection[str] = ()) -> None:
        self.frontend: dict[str, Tool] = {tool.name: tool for tool in frontend if tool.name not in native}

    def is_frontend(self, name: str) -> bool:
        return name in self.frontend


class TurnGate:
    """When to stop a run and leave the rest to the client: after a frontend call, once the turn's own tools have answered."""

    def __init__(self, tools: Toolbox) -> None:
        self._tools = tools
        self._frontend: dict[str, None] = {}
        self._backend: set[str] = set()
        self._answered: set[str] = set()

    def call(self, tool_call_id: str, name: str, *, halts: bool = True) -> None:
        """The model calls a tool. With `halts=False` a frontend call does not stop the run."""
        if not self._tools.is_frontend(name):
            self._backend.add(tool_call_id)
        elif halts:
            self._frontend[tool_call_id] = None

    def result(self, tool_call_id: str) -> None:
        """A call has its result, whoever gave it."""
        self._answered.add(tool_call_id)

    def new_turn(self) -> None:
        """The model is asked again."""
        self._frontend.clear()
        self._backend.clear()
        self._answered.clear()

    @property
    def halted(self) -> bool:
        """Whether the client has to act before the model may be asked again, and nothing else is going on."""
        return bool(self.waiting) and self._backend <= self._answered

    @property
    def waiting(self) -> list[str]:
        """The frontend calls of this turn without a result, in their order."""
        return [call for call in self._frontend if call not in self._answered]
