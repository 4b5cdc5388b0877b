"""Subagents of a turn. What an agent does on behalf of one of its calls, or in a child session, is the work of a subagent. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.messages import as_text, head_and_tail
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.protocol.ids import client_safe_id, original_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.acp.tool_records import TurnState
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event

__all__ = ["SubagentRecord", "Subagents"]

_MAX_TEXT_BYTES = 1 << 10
_MAX_LEVELS = 16
_FAILED_REASONS = frozenset({"error", "refusal"})


@dataclass(kw_only=True, slots=True)
class SubagentRecord:
    """A subagent of the turn."""

    id: str
    name: str
    description: str | None
    parent: str | None
    """The key of the subagent that started it; None for the agent itself."""
    parent_call: str | None = None
    """The id, for clients, of the call that started it."""
    is_finished: bool = False
    restart_count: int = 0


class Subagents:
    """Subagents of one run. A key is the id of the call that a subagent works for, or of its session."""

    def __init__(self, composer: Composer, turn: TurnState) -> None:
        self._composer = composer
        self._turn = turn

    def key_of(self, update: Mapping[str, Any], session_id: str | None) -> str | None:
        """Return the key of the subagent that an update is from; None for the agent itself."""
        if session_id is not None:
            return session_id
        meta = update.get("_meta")
        return _parent_call_id(as_object(meta)) if meta else None

    def id_of(self, key: str | None) -> str | None:
        """Return the id of a subagent for clients."""
        return None if key is None else self._find(key).id

    def start(self, key: str | None) -> list[Event]:
        """Return the start of the subagent in this run, unless it has started, and of those above it."""
        events: list[Event] = []
        for name in reversed(self._with_parents(key)):
            record = self._find(name)
            if record.is_finished:
                _restart(record)
            events += self._composer.start_subagent(
                record.id,
                record.name,
                description=record.description,
                parent=self.id_of(record.parent),
                parent_tool_call_id=record.parent_call,
            )
        return events

    def end(self, key: str, *, error: str | None = None) -> list[Event]:
        """Return the end of a subagent, if there is one that works."""
        record = self._turn.subagents.get(key)
        if record is None or record.is_finished:
            return []
        record.is_finished = True
        return self._composer.end_subagent(record.id, error=error)

    def apply_update(self, update: Mapping[str, Any], parent: str | None) -> list[Event]:
        """Return the events of a `subagent_update`: a child session has begun, or its state has changed."""
        key = as_text(update.get("sessionId"))
        record = self._find(key, parent)
        record.name = _bounded(update.get("title")) or record.name
        record.description = _bounded(update.get("description")) or record.description
        state = as_object(update.get("state"))
        if state.get("state") != "idle":
            return self.start(key)
        failed = as_text(state.get("stopReason")) in _FAILED_REASONS
        return [*self.start(key), *self.end(key, error="The subagent failed." if failed else None)]

    def _with_parents(self, key: str | None) -> list[str]:
        """Return the key and those of the subagents above it. An agent may report a circle."""
        keys: list[str] = []
        while key is not None and key not in keys and len(keys) < _MAX_LEVELS:
            keys.append(key)
            key = self._find(key).parent
        return keys

    def _find(self, key: str, parent: str | None = None) -> SubagentRecord:
        record = self._turn.subagents.get(key)
        if record is None:
            record = self._turn.subagents[key] = self._new_record(key, parent)
        return record

    def _new_record(self, key: str, parent: str | None) -> SubagentRecord:
        """Return a new subagent: that of a call is described by the call's input."""
        call = self._turn.tool_calls.get(key)
        if call is None:
            return SubagentRecord(id=f"subagent-{client_safe_id(key)}", name="agent", description=None, parent=parent)
        arguments = as_object(call.input)
        return SubagentRecord(
            id=f"subagent-{call.client_id}",
            name=_bounded(arguments.get("subagent_type")) or "agent",
            description=_bounded(arguments.get("description")) or call.title or None,
            parent=call.subagent_key,
            parent_call=call.client_id,
        )


def _restart(record: SubagentRecord) -> None:
    """Let a subagent that has finished work again. For clients it is another one."""
    record.restart_count += 1
    record.id, record.is_finished = f"{original_id(record.id)}~{record.restart_count + 1}", False


def _parent_call_id(meta: Mapping[str, Any]) -> str | None:
    """Return the id of the call that an update is made on behalf of. Agents have it among their own members of `_meta`."""
    for vendor in meta.values():
        if parent := as_text(as_object(vendor).get("parentToolUseId")):
            return parent
    return None


def _bounded(value: Any) -> str:
    return head_and_tail(as_text(value), _MAX_TEXT_BYTES)
