"""The secrets of a server and of its runs: what to search for, prepared once and shared."""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import TYPE_CHECKING

from ambient_runner.config import SECRET_PATTERNS
from ambient_runner.projections.redaction.search import SecretSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ambient_runner.config import SecretPattern
    from ambient_runner.projections.redaction.spans import Span

__all__ = ["Secrets"]


class Secrets:
    """The values and patterns to search for. Each run has its own copy, to which values can be added."""

    __slots__ = ("_added", "_learned", "_on_add", "_shared", "_values")

    def __init__(
        self,
        values: Iterable[str],
        on_add: Callable[[Iterable[str]], None] = lambda values: None,
        *,
        patterns: Sequence[SecretPattern] = SECRET_PATTERNS,
    ) -> None:
        """`on_add` is called with values added to this object or to a copy of it: all runs share the log."""
        self._on_add = on_add
        self._values = frozenset(values)
        self._shared = SecretSearch(self._values, patterns) if self._values else _search_for_patterns(tuple(patterns))
        self._added = frozenset[str]()
        self._learned: SecretSearch | None = None

    def copy_for_run(self) -> Secrets:
        """Return a copy for one run. Values added to it are not searched for in other runs."""
        return copy(self)

    def add(self, values: Iterable[str]) -> None:
        """Search for these values too, from now on and in text that is held back. Safe to call in a worker thread."""
        fresh = frozenset(values) - self._values - self._added
        if fresh:
            added = self._added | fresh
            self._learned = SecretSearch(added)
            self._added = added
            self._on_add(fresh)

    @property
    def searches(self) -> tuple[SecretSearch, ...]:
        """What is searched. Another tuple after values were added."""
        return (self._shared,) if self._learned is None else (self._shared, self._learned)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to search for."""
        return self._learned is None and self._shared.is_empty

    def contains_secret(self, text: str) -> bool:
        return bool(self.find_spans(text))

    def find_spans(self, text: str) -> list[Span]:
        """Return every secret of the text, in no order; some overlap."""
        if self._learned is None:
            return self._shared.find_spans(text)
        return self._shared.find_spans(text) + self._learned.find_spans(text)

    def may_contain_secret(self, line: bytes) -> bool:
        """Return True if an encoded event may contain a secret. May return True for a clean line, never False for one with a secret."""
        return self._shared.may_contain_secret(line) or (
            self._learned is not None and self._learned.may_contain_secret(line)
        )


@cache
def _search_for_patterns(patterns: tuple[SecretPattern, ...]) -> SecretSearch:
    return SecretSearch((), patterns)
