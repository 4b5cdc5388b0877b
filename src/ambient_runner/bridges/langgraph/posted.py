"""The state a client posts: what of it is new to the graph, and whether the graph can go on with it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.plain import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.langgraph.graphs import Shape

__all__ = ["changes", "members", "of_kind", "set_by", "storable"]

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
        if (inputs is None or name in inputs) and _differs(values, name, item)
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
    """The item in the type that a reducer goes on with, where JSON has none for it."""
    make: Any = kind
    return make(item) if kind in {set, frozenset, tuple} and isinstance(item, list) else item


def _differs(values: Mapping[str, Any], name: str, item: Any) -> bool:
    if name not in values:
        return True
    return plain(values[name]) != item
