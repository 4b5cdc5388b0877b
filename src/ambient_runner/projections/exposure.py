"""Exposure rules of the audience `safe`: what a client of an agent may see of its tools, activities and CUSTOM events. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.config import Exposure

__all__ = ["ANY_NAME", "ExposureRules"]

ANY_NAME = "*"
"""The rule of every name that has none, and of what has no name: the output of a run and of subagents, metadata of events."""

_SHOWS_ARGUMENTS: tuple[Exposure, ...] = ("arguments", "all")
_SHOWS_RESULT: tuple[Exposure, ...] = ("result", "all")


@dataclass(frozen=True, kw_only=True)
class ExposureRules:
    """Exposure by the name of a tool, an activity type or a CUSTOM event; without a rule only a summary is shown.

    A tool of the client is shown whole, because the client executes it, unless a rule names it.
    """

    by_name: Mapping[str, Exposure] = field(default_factory=dict["str", "Exposure"])

    def shows_arguments(self, name: str, *, is_client: bool = False) -> bool:
        return self._rule(name, is_client) in _SHOWS_ARGUMENTS

    def shows_result(self, name: str, *, is_client: bool = False) -> bool:
        return self._rule(name, is_client) in _SHOWS_RESULT

    def shows(self, name: str) -> bool:
        """Return True if an activity or a CUSTOM event of this name is shown whole."""
        return self._rule(name, False) == "all"

    @cached_property
    def shows_unnamed(self) -> bool:
        """True if what has no name is shown whole."""
        return self.by_name.get(ANY_NAME) == "all"

    @cached_property
    def shows_all_arguments(self) -> bool:
        """True if the arguments of every tool are shown."""
        return self._all_in(_SHOWS_ARGUMENTS)

    @cached_property
    def shows_all_results(self) -> bool:
        """True if the results of every tool are shown."""
        return self._all_in(_SHOWS_RESULT)

    @cached_property
    def cache_key(self) -> str:
        """Text that differs between different rules."""
        return " ".join(f"{name!r}={rule}" for name, rule in sorted(self.by_name.items()))

    def _rule(self, name: str, is_client: bool) -> Exposure:
        default: Exposure = "all" if is_client else self.by_name.get(ANY_NAME, "summary")
        return self.by_name.get(name, default) if name != ANY_NAME else default

    def _all_in(self, allowed: tuple[Exposure, ...]) -> bool:
        return ANY_NAME in self.by_name and all(rule in allowed for rule in self.by_name.values())
