"""State that is shown before it is there: arguments of a tool, while the model writes them.

The truth is what the graph says. While a call is not answered the graph still has the old value, so predicted keys are left alone until
then; at the end of the run nothing predicted remains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pydantic_core

from ambient_runner.protocol.events import Custom

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ambient_runner.bridges.toolkit.state import StateStore
    from ambient_runner.protocol.events import Event

__all__ = ["Predictions", "mappings_of"]

_FEWEST = 16
"""Characters of arguments between two looks at them: reading them all for every chunk would take time in the square of their length."""

_NAMES = ("state_key", "tool", "tool_argument")
_NOTHING: Any = object()


@dataclass(slots=True)
class _Open:
    keys: dict[str, str]
    """State key by argument."""
    text: str = ""
    look_at: int = 0


class Predictions:
    """The calls of one run that write into the state."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._calls: dict[str, _Open] = {}
        self._before: dict[str, Any] = {}

    def covers(self, key: str) -> bool:
        """Whether what the graph says of this key is older than what clients have been shown."""
        return any(key in call.keys.values() for call in self._calls.values())

    def begin(self, call_id: str, name: str, mappings: Iterable[Mapping[str, str]]) -> list[Event]:
        """A call begins. Clients are told which of its arguments are state."""
        mine = [dict(mapping) for mapping in mappings if mapping.get("tool") == name]
        if not mine:
            return []
        keys = {one["tool_argument"]: one["state_key"] for one in mine}
        self._calls[call_id] = _Open(keys=keys)
        return [Custom(name="PredictState", value=mine)]

    def more(self, call_id: str, delta: str, *, complete: bool = False) -> list[Event]:
        """The state that the arguments so far make."""
        call = self._calls.get(call_id)
        if call is None:
            return []
        call.text += delta
        if len(call.text) < call.look_at and not complete:
            return []
        call.look_at = len(call.text) + max(_FEWEST, len(call.text) // 16)
        arguments = _parsed(call.text)
        shown = {key: arguments[name] for name, key in call.keys.items() if name in arguments}
        for key in shown:
            self._before.setdefault(key, self._store.value.get(key, _NOTHING))
        return self._store.delta(shown)

    def settle(self, call_id: str) -> None:
        """The call has been answered: from here on the graph's word counts."""
        self._calls.pop(call_id, None)

    def take_back(self, truth: Mapping[str, Any]) -> None:
        """Nothing predicted remains: clients will have what the graph has, or else what was there before."""
        for key, before in self._before.items():
            now = truth.get(key, before)
            if now is _NOTHING:
                self._store.drop(key)
            else:
                self._store.keep({key: now})
        self._before.clear()
        self._calls.clear()


def mappings_of(meta: Mapping[str, Any]) -> list[Mapping[str, str]]:
    """The predictions a graph asks for in the metadata of a model's call. What is no mapping is left out."""
    given: Any = meta.get("predict_state")
    return [one for one in cast("list[Any]", given) if _is_mapping(one)] if isinstance(given, list | tuple) else []


def _is_mapping(one: Any) -> bool:
    return isinstance(one, dict) and all(isinstance(cast("dict[str, Any]", one).get(name), str) for name in _NAMES)


def _parsed(text: str) -> dict[str, Any]:
    try:
        found = pydantic_core.from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
