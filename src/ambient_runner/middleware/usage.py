"""What a run took, as its last event says it: `usage` of AG-UI 1.0, or what older adapters put into `result`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.protocol.events import RunFinished, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.protocol.events import Terminal

__all__ = ["cost_of", "usage_of"]

_NAMES = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_input_tokens": "cache_read_input_tokens",
    "cache_write_input_tokens": "cache_creation_input_tokens",
}
_COSTS = ("total_cost_usd", "totalCostUsd", "cost_usd", "costUsd")


def usage_of(terminal: Terminal) -> list[TokenUsage]:
    """One entry for each model, as far as the run says it."""
    if terminal.usage:
        return terminal.usage
    told = _members(_members(_result(terminal)).get("usage"))
    counts = {field: told[name] for field, name in _NAMES.items() if _is_count(told.get(name))}
    return [TokenUsage(**counts)] if counts else []


def cost_of(terminal: Terminal) -> float | None:
    """Dollars, where the framework knows the price."""
    for place in (_members(_result(terminal)), terminal.metadata or {}):
        for name in _COSTS:
            cost = place.get(name)
            if isinstance(cost, int | float) and not isinstance(cost, bool) and cost >= 0:
                return float(cost)
    return None


def _result(terminal: Terminal) -> object:
    return terminal.result if isinstance(terminal, RunFinished) else None


def _members(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
