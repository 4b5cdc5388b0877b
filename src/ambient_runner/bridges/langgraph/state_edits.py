"""The state a client posts: what of it is new to the graph, and whether the graph can go on with it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from ambient_runner.bridges.toolkit.json_values import json_text, plain
from ambient_runner.projections.json_patch import same

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.langgraph.graph import Shape

__all__ = ["changes", "is_posted_back", "members", "of_kind", "set_by", "storable"]

_JSON: dict[type, type | tuple[type, ...]] = {
    list: list,
    set: list,
    frozenset: list,
    tuple: list,
    dict: dict,
    str: str,
    int: int,
    float: (int, float),
}
"""What JSON has for the types that reducers begin with."""


def members(value: Any) -> dict[str, Any]:
    """The keys and values of an object; none of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def changes(posted: Mapping[str, Any], shape: Shape, values: Mapping[str, Any]) -> dict[str, Any]:
    """What of the client's state the graph takes and does not have yet."""
    inputs = shape.inputs
    return {
        name: item
        for name, item in posted.items()
        if (inputs is None or name in inputs) and not (name in values and is_posted_back(values[name], item))
    }


def set_by(posted: Mapping[str, Any], shape: Shape, values: Mapping[str, Any]) -> dict[str, Any]:
    """The run's changes to the shared state, as an Opening has them."""
    made = changes(posted, shape, values)
    return {
        "before": {name: values[name] for name in made if name in values},
        "sets": list(made),
        "wrong": [name for name, item in made.items() if not _fits(shape.kinds.get(name), item)],
    }


def _fits(kind: type | None, item: Any) -> bool:
    """Whether a client may set this. The SDK takes an object with `__overwrite__` for an order, and that is not the client's to give."""
    if isinstance(item, dict) and "__overwrite__" in item:
        return False
    return kind not in _JSON or isinstance(item, _JSON[kind])


def storable(value: Any) -> Any:
    """JSON as a checkpointer can keep it: an integer of more than 64 bits as the double it is to nearly every other reader of JSON."""
    match value:
        case int() if not -(1 << 63) <= value < 1 << 64:
            return _double(value)
        case dict():
            return {key: storable(item) for key, item in cast("dict[str, Any]", value).items()}
        case list():
            return [storable(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _double(value: int) -> float | str:
    try:
        return float(value)
    except OverflowError:
        return str(value)


def of_kind(kind: type | None, item: Any) -> Any:
    """The item in the type that the graph goes on with, where JSON has none for it."""
    make: Any = kind
    if kind not in {set, frozenset, tuple} or not isinstance(item, list):
        return item
    try:
        return make(item)
    except TypeError:
        return cast("Any", item)  # What no set can hold.


def is_posted_back(kept: Any, item: Any) -> bool:
    """Whether this is what clients get of what the graph keeps. A set has no order of its own, and another one each time it is read."""
    match kept, item:
        case (set() | frozenset(), list()):
            return sorted(map(json_text, cast("set[Any]", kept))) == sorted(map(json_text, cast("list[Any]", item)))
        case (list() | tuple(), list()):
            ours, theirs = cast("list[Any]", kept), cast("list[Any]", item)
            return len(ours) == len(theirs) and all(map(is_posted_back, ours, theirs))
        case (dict(), dict()):
            return _is_each_posted_back(cast("dict[Any, Any]", kept), cast("dict[str, Any]", item))
        case (BaseModel(), dict()):
            return same(plain(kept), item) or is_posted_back(kept.model_dump(), item)
        case _:
            return same(plain(kept), item)


def _is_each_posted_back(kept: Mapping[Any, Any], posted: Mapping[str, Any]) -> bool:
    ours = dict(zip(plain(dict.fromkeys(kept)), kept.values(), strict=False))
    return ours.keys() == posted.keys() and all(is_posted_back(ours[key], posted[key]) for key in ours)
