"""Predicted state: arguments of a tool call that clients show as state while Claude writes them, and that are the state afterwards."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.predict_state import predictions_by_tool
from ambient_runner.protocol.events import Custom, ToolCallArgs, ToolCallEnd, ToolCallStart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.bridges.toolkit.predict_state import PredictStateMapping
    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.protocol.events import Event

__all__ = ["Predictions"]


class Predictions:
    """The calls of one run whose arguments are keys of the shared state."""

    def __init__(self, mappings: Sequence[PredictStateMapping], state: StateStore) -> None:
        self._mappings = predictions_by_tool(mappings)
        self._state = state
        self._tools: dict[str, str] = {}
        self._arguments: dict[str, str] = {}

    def feed(self, event: Event) -> list[Event]:
        """Return the event and those that belong to it: the mappings before a call begins, the state before it ends."""
        match event:
            case ToolCallStart(tool_call_name=name) if name in self._mappings:
                self._tools[event.tool_call_id] = name
                mappings = self._mappings[name]
                return [Custom(name="PredictState", value=mappings, subagent_run_id=event.subagent_run_id), event]
            case ToolCallArgs(tool_call_id=call_id) if call_id in self._tools:
                self._arguments[call_id] = self._arguments.get(call_id, "") + event.delta
            case ToolCallEnd(tool_call_id=call_id) if call_id in self._tools:
                return [*self._set_state(call_id), event]
            case _:
                pass
        return [event]

    def _set_state(self, call_id: str) -> list[Event]:
        mappings, arguments = self._mappings[self._tools.pop(call_id)], self._arguments.pop(call_id, "")
        with suppress(ValueError):
            values = as_object(json.loads(arguments))
            return self._state.update_with_snapshot(
                {
                    mapping["state_key"]: values[mapping["tool_argument"]]
                    for mapping in mappings
                    if mapping["tool_argument"] in values
                }
            )
        return []
