"""Predicted state: arguments of a tool call, shown as state while the model streams them.

The graph's state is authoritative. Until a call is answered the graph still has the old value, so its updates of predicted keys are ignored
until then; at the end of the run nothing predicted remains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pydantic_core

from ambient_runner.bridges.langgraph.copilotkit import intermediate_mappings
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.projections.redaction import held_start
from ambient_runner.protocol.events import Custom

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.protocol.events import Event

__all__ = ["Predictions", "requested_mappings"]

_MIN_PARSE_INTERVAL = 16
"""Fewest characters between two parses of the arguments. Parsing all of them for every chunk would take quadratic time."""

_MAPPING_KEYS = ("state_key", "tool", "tool_argument")
_ABSENT: Any = object()


@dataclass(slots=True)
class _PredictedCall:
    state_keys: dict[str, str]
    """State key by argument; the empty argument stands for all of them."""
    arguments: str = ""
    parse_at: int = 0
    """Length of the arguments at which they are parsed next."""


class Predictions:
    """The calls of one run whose arguments are shown as state."""

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._calls: dict[str, _PredictedCall] = {}
        self._original: dict[str, Any] = {}

    def covers_key(self, key: str) -> bool:
        """Return True if the graph's value of this key is older than the predicted one that clients have."""
        return any(key in call.state_keys.values() for call in self._calls.values())

    def start_call(self, call_id: str, name: str, mappings: Iterable[Mapping[str, str]]) -> list[Event]:
        """Begin a call. Return the event that tells clients which of its arguments are state."""
        matching = [dict(mapping) for mapping in mappings if mapping.get("tool") == name]
        if not matching:
            return []
        state_keys = {mapping["tool_argument"]: mapping["state_key"] for mapping in matching}
        self._calls[call_id] = _PredictedCall(state_keys=state_keys)
        announced = [{key: item for key, item in mapping.items() if item} for mapping in matching]
        return [Custom(name="PredictState", value=announced)]

    def add_arguments(self, call_id: str, delta: str, *, complete: bool = False) -> list[Event]:
        """Return the changes of state that the arguments so far imply, without the word they end in: it may be part of a secret."""
        call = self._calls.get(call_id)
        if call is None:
            return []
        call.arguments += delta
        if len(call.arguments) < call.parse_at and not complete:
            return []
        call.parse_at = len(call.arguments) + max(_MIN_PARSE_INTERVAL, len(call.arguments) // 16)
        shown = len(call.arguments) if complete else held_start(call.arguments)
        arguments = _parse_partial_object(call.arguments[:shown])
        predicted = {key: arguments[name] for name, key in call.state_keys.items() if name in arguments}
        if arguments and "" in call.state_keys:
            predicted[call.state_keys[""]] = arguments
        self._keep_originals(predicted)
        return self._state.update_with_patch(predicted)

    def show_state(self, values: Mapping[str, Any]) -> list[Event]:
        """Return a snapshot with values that a node shows before it ends."""
        self._keep_originals(values)
        return self._state.update_with_snapshot(values)

    def _keep_originals(self, predicted: Iterable[str]) -> None:
        for key in predicted:
            self._original.setdefault(key, self._state.value.get(key, _ABSENT))

    def finish_call(self, call_id: str) -> None:
        """End the prediction of an answered call: from now on the graph's values apply."""
        self._calls.pop(call_id, None)

    def discard_all(self, graph_state: Mapping[str, Any]) -> None:
        """Replace every predicted value by the graph's, or by the one from before the prediction."""
        for key, original in self._original.items():
            value = graph_state.get(key, original)
            if value is _ABSENT:
                self._state.remove_silently(key)
            else:
                self._state.update_silently({key: value})
        self._original.clear()
        self._calls.clear()


def requested_mappings(metadata: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """Return the mappings that a graph requests in the metadata of a model call, without malformed ones."""
    requested: Any = metadata.get("predict_state")
    listed = cast("list[Any]", requested) if isinstance(requested, list | tuple) else []
    return [*(mapping for mapping in listed if _is_mapping(mapping)), *intermediate_mappings(metadata)]


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(cast("dict[str, Any]", value).get(key), str) for key in _MAPPING_KEYS
    )


def _parse_partial_object(text: str) -> dict[str, Any]:
    try:
        value = pydantic_core.from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return {}
    return as_object(value)
