"""Subagents of a run: agents of ADK branches, such as parallel agents and tasks. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event

__all__ = ["Subagents", "is_in_branch"]


class Subagents:
    """Subagents of one run, one per branch. The main branch, None, is the agent itself."""

    def __init__(self, composer: Composer, new_id: Callable[[str], str]) -> None:
        self._composer = composer
        self._new_id = new_id
        self._subagents_by_branch: dict[str, str] = {}

    def subagent_of(self, branch: str | None) -> str | None:
        return self._subagents_by_branch.get(branch) if branch else None

    def enter_branch(self, branch: str | None, author: str) -> list[Event]:
        """Return the events that start the branch's subagent. An event on the main branch ends all subagents."""
        if branch is None:
            return self._end_all() if self._subagents_by_branch else []
        if branch in self._subagents_by_branch:
            return []
        ancestors = [known for known in self._subagents_by_branch if is_in_branch(branch, known)]
        parent = self._subagents_by_branch[max(ancestors, key=len)] if ancestors else None
        subagent_id = self._subagents_by_branch[branch] = self._new_id("subagent")
        _, _, cause = branch.rpartition("@")
        return self._composer.start_subagent(
            subagent_id,
            author,
            parent=parent,
            parent_tool_call_id=cause if "@" in branch and not cause.isdigit() else None,
        )

    def _end_all(self) -> list[Event]:
        ended, self._subagents_by_branch = self._subagents_by_branch, {}
        return [event for subagent_id in ended.values() for event in self._composer.end_subagent(subagent_id)]


def is_in_branch(branch: str | None, ancestor: str | None) -> bool:
    """Return True if a branch is `ancestor` or below it. None is the main branch."""
    return ancestor is None or branch == ancestor or (branch or "").startswith((f"{ancestor}.", f"{ancestor}/"))
