"""Subagents of a run: agents of ADK branches, such as parallel agents and tasks, each with a lane of its own. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event

__all__ = ["SubagentLanes", "is_in_branch"]


class SubagentLanes:
    """Lanes of one run, one per branch. The main branch, None, has no lane."""

    def __init__(self, composer: Composer, new_id: Callable[[str], str]) -> None:
        self._composer = composer
        self._new_id = new_id
        self._lanes: dict[str, str] = {}

    def find_lane(self, branch: str | None) -> str | None:
        return self._lanes.get(branch) if branch else None

    def enter_branch(self, branch: str | None, author: str) -> list[Event]:
        """Return the events that open the branch's lane. An event on the main branch ends all lanes."""
        if branch is None:
            return self._end_lanes() if self._lanes else []
        if branch in self._lanes:
            return []
        ancestor = max((known for known in self._lanes if is_in_branch(branch, known)), key=len, default=None)
        lane = self._lanes[branch] = self._new_id("subagent")
        _, _, cause = branch.rpartition("@")
        return self._composer.start_subagent(
            lane,
            author,
            parent=self._lanes[ancestor] if ancestor else None,
            parent_tool_call_id=cause if "@" in branch and not cause.isdigit() else None,
        )

    def _end_lanes(self) -> list[Event]:
        ended, self._lanes = self._lanes, {}
        return [event for lane in ended.values() for event in self._composer.end_subagent(lane)]


def is_in_branch(branch: str | None, ancestor: str | None) -> bool:
    """Return True if a branch is `ancestor` or below it. None is the main branch."""
    return ancestor is None or branch == ancestor or (branch or "").startswith((f"{ancestor}.", f"{ancestor}/"))
