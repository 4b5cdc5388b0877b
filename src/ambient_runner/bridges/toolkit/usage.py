"""Token usage of a run, summed per provider and model. A bridge adds the counts that its framework reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.protocol.events import TokenUsage

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Usage"]


class Usage:
    """Sums token counts. `tokens` has the sums in AG-UI's form."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str | None, str | None], dict[str, int]] = {}

    def add_counts(self, counts: Mapping[str, int | None], *, model: str | None, provider: str | None = None) -> None:
        """Add counts by the names of `TokenUsage`'s fields, such as `input_tokens`. None means not reported."""
        sums = self._sums.setdefault((provider, model), {})
        for name, count in counts.items():
            if count is not None:
                sums[name] = sums.get(name, 0) + count

    @property
    def tokens(self) -> list[TokenUsage] | None:
        """Sums per provider and model; None when no model reported usage."""
        return [
            TokenUsage(provider=provider, model=model, **sums) for (provider, model), sums in self._sums.items() if sums
        ] or None
