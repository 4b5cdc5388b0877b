"""What the models of a run used, added up by model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.protocol.events import TokenUsage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_core.messages import AIMessage

__all__ = ["Usage"]

_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_DETAILS = {
    "cached_input_tokens": ("input_token_details", "cache_read"),
    "cache_write_input_tokens": ("input_token_details", "cache_creation"),
    "reasoning_tokens": ("output_token_details", "reasoning"),
}


class Usage:
    """Chunks of a message add up, as the SDK adds them."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str | None, str | None], dict[str, int]] = {}

    def add(self, message: AIMessage, meta: Mapping[str, Any]) -> None:
        counted: Mapping[str, Any] | None = message.usage_metadata
        if counted is None:
            return
        model = meta.get("ls_model_name") or message.response_metadata.get("model_name")
        sums = self._sums.setdefault((meta.get("ls_provider"), model), {})
        for name in _COUNTS:
            sums[name] = sums.get(name, 0) + int(counted.get(name) or 0)
        for name, (group, key) in _DETAILS.items():
            details: Mapping[str, Any] = counted.get(group) or {}
            found = details.get(key)
            if found:
                sums[name] = sums.get(name, 0) + int(found)

    @property
    def tokens(self) -> list[TokenUsage] | None:
        """The sums, or nothing when no model counted."""
        return [TokenUsage(provider=by, model=model, **sums) for (by, model), sums in self._sums.items()] or None
