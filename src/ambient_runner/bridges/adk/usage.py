"""Tokens a run used, added up per model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.protocol.events import TokenUsage

if TYPE_CHECKING:
    from google.genai import types

__all__ = ["Usage"]

_COUNTS = {
    "input_tokens": "prompt_token_count",
    "output_tokens": "candidates_token_count",
    "total_tokens": "total_token_count",
    "reasoning_tokens": "thoughts_token_count",
    "cached_input_tokens": "cached_content_token_count",
}


class Usage:
    """`add` every count a model reports; `tokens` is what AG-UI says of it."""

    def __init__(self) -> None:
        self._models: dict[str | None, dict[str, Any]] = {}

    def add(self, model: str | None, counted: types.GenerateContentResponseUsageMetadata) -> None:
        sums = self._models.setdefault(model, {})
        for ours, theirs in _COUNTS.items():
            count: Any = getattr(counted, theirs)
            if count is not None:
                sums[ours] = sums.get(ours, 0) + count

    @property
    def tokens(self) -> list[TokenUsage] | None:
        found = [TokenUsage(model=model, **sums) for model, sums in self._models.items() if sums]
        return found or None
