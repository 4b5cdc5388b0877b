"""Subagents of a run: a call of `Task` or `Agent` starts one, and what is done on behalf of the call is its work. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.claude.translate import ToolCallRecord
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event

__all__ = ["Subagents"]

_DELEGATING_TOOLS = frozenset({"Task", "Agent"})


class Subagents:
    """Subagents of one run. `calls` are the tool calls of the session, by the model's ids."""

    def __init__(self, composer: Composer, calls: Mapping[str, ToolCallRecord]) -> None:
        self._composer = composer
        self._calls = calls

    def subagent_of(self, parent: str | None) -> str | None:
        """Return the id of the subagent that works on behalf of a call, if the call delegates; None for Claude itself."""
        if parent is None:
            return None
        call = self._calls.get(parent)
        return (
            self._subagent_started_by(parent) if call is None or _is_delegating(call) else self.subagent_of(call.parent)
        )

    def start(self, parent: str | None) -> list[Event]:
        """Return the start of the subagent that works on behalf of a call, unless it has started."""
        if parent is None:
            return []
        call = self._calls.get(parent)
        if call is not None and not _is_delegating(call):
            return []
        arguments: Mapping[str, Any] = call.input if call else {}
        caller = call.parent if call else None
        return [
            *self.start(caller),
            *self._composer.start_subagent(
                self._subagent_started_by(parent),
                str(arguments.get("subagent_type") or "agent"),
                description=_text_or_none(arguments.get("description")),
                parent=self.subagent_of(caller),
                parent_tool_call_id=call.client_id if call else parent,
            ),
        ]

    def end(self, call_id: str, *, error: str | None) -> list[Event]:
        """Return the end of the subagent that a call started, if there is one."""
        return self._composer.end_subagent(self._subagent_started_by(call_id), error=error)

    def _subagent_started_by(self, call_id: str) -> str:
        """Return the id of the subagent that a call starts."""
        return f"subagent-{self._calls[call_id].client_id if call_id in self._calls else call_id}"


def _is_delegating(call: ToolCallRecord) -> bool:
    return call.name in _DELEGATING_TOOLS


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
