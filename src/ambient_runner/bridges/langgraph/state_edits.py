"""Edits of the state by a client: which values are new to the graph, and which it can use. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from ambient_runner.bridges.toolkit.json_values import to_json_text, to_jsonable
from ambient_runner.projections.json_patch import json_equal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ambient_runner.bridges.langgraph.graph import StateSchema

__all__ = ["StateEdits", "coerce_to", "find_edits", "is_unchanged", "to_storable"]

_JSON_TYPES: dict[type, type | tuple[type, ...]] = {
    list: list,
    set: list,
    frozenset: list,
    tuple: list,
    dict: dict,
    str: str,
    int: int,
    float: (int, float),
}
"""JSON types of the types that reducers begin with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateEdits:
    """The client's changes of the shared state in one run."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """The new values by key, as the client sent them."""
    previous: dict[str, Any] = field(default_factory=dict[str, Any])
    """The graph's values of these keys, where it has some."""
    invalid_keys: list[str] = field(default_factory=list[str])
    """The keys whose new value does not have the graph's type."""

    def with_invalid(self, keys: Iterable[str]) -> StateEdits:
        return replace(self, invalid_keys=[*self.invalid_keys, *keys])


def find_edits(client_state: Mapping[str, Any], schema: StateSchema, stored: Mapping[str, Any]) -> StateEdits:
    """Return the values of the client's state that the graph accepts and does not have yet."""
    keys = schema.input_keys
    values = {
        name: item
        for name, item in client_state.items()
        if (keys is None or name in keys) and not (name in stored and is_unchanged(stored[name], item))
    }
    return StateEdits(
        values=values,
        previous={name: stored[name] for name in values if name in stored},
        invalid_keys=[
            name
            for name, item in values.items()
            if not _is_allowed(schema.initial_types.get(name), item)
            or (schema.is_remote and not _has_type_of(stored.get(name), item))
        ],
    )


def _has_type_of(stored: Any, item: Any) -> bool:
    """Return True if the value can replace the stored one whatever its reducer is, which a LangGraph server does not say.

    One that it cannot combine with a list fails this run and, because the server keeps it, every later one.
    """
    kinds = (list, dict, str, bool, (int, float))
    if stored is None or (item is None and not isinstance(stored, list)):
        return True
    kind = next((kind for kind in kinds if isinstance(stored, kind)), object)
    return isinstance(item, kind)


def _is_allowed(kind: type | None, item: Any) -> bool:
    """Return True if a client may set this value. The SDK treats an object with `__overwrite__` as a command; clients may not send one."""
    if isinstance(item, dict) and "__overwrite__" in item:
        return False
    return kind not in _JSON_TYPES or isinstance(item, _JSON_TYPES[kind])


def to_storable(value: Any) -> Any:
    """Return JSON that a checkpointer can store: an integer of more than 64 bits becomes a double, as most JSON parsers read it."""
    match value:
        case int() if not -(1 << 63) <= value < 1 << 64:
            return _to_double(value)
        case dict():
            return {key: to_storable(item) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [to_storable(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _to_double(value: int) -> float | str:
    try:
        return float(value)
    except OverflowError:
        return str(value)


def coerce_to(kind: type | None, item: Any) -> Any:
    """Return the item in the graph's type, where JSON has no such type."""
    convert: Any = kind
    if kind not in {set, frozenset, tuple} or not isinstance(item, list):
        return item
    try:
        return convert(item)
    except TypeError:
        return cast("Any", item)  # An item is not hashable.


def is_unchanged(stored: Any, item: Any) -> bool:
    """Return True if the item is the JSON of the graph's value. The order of a set differs each time it is read and does not count."""
    match stored, item:
        case (set() | frozenset(), list()):
            return sorted(map(to_json_text, cast("set[Any]", stored))) == sorted(
                map(to_json_text, cast("list[Any]", item))
            )
        case (list() | tuple(), list()):
            ours, theirs = cast("list[Any]", stored), cast("list[Any]", item)
            return len(ours) == len(theirs) and all(map(is_unchanged, ours, theirs))
        case (dict(), dict()):
            return _are_members_unchanged(cast("dict[Any, Any]", stored), cast("dict[str, Any]", item))
        case (BaseModel(), dict()):
            return json_equal(to_jsonable(stored), item) or is_unchanged(stored.model_dump(), item)
        case _:
            return json_equal(to_jsonable(stored), item)


def _are_members_unchanged(stored: Mapping[Any, Any], item: Mapping[str, Any]) -> bool:
    ours = dict(zip(to_jsonable(dict.fromkeys(stored)), stored.values(), strict=False))
    return ours.keys() == item.keys() and all(is_unchanged(ours[key], item[key]) for key in ours)
