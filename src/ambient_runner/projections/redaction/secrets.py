"""The secrets of a server and of its runs: what to search for, prepared once and shared."""

from __future__ import annotations

from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING

from ambient_runner.config import SECRET_PATTERNS
from ambient_runner.projections.redaction.search import SecretSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ambient_runner.config import SecretPattern
    from ambient_runner.projections.redaction.spans import Span

__all__ = ["Secrets"]

_LARGE_VALUE = 1024
"""Characters from which a value has a search of its own, which is not made again when others are added."""
_MAX_SEARCHES = 32
"""Searches that are kept for when their values are added again: each run of a person adds the same."""
_BETWEEN_TEXTS = "\0"
"""A character that no value and no pattern has."""


class Secrets:
    """The values and patterns to search for. Each run has its own copy, to which values can be added."""

    __slots__ = ("_added", "_on_add", "_patterns", "_shared", "_values", "searches")

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
        self._patterns = tuple(patterns)
        self._shared = _search_for(self._values, self._patterns)
        self._added = set[str]()
        self.searches: tuple[SecretSearch, ...] = () if self._shared.is_empty else (self._shared,)
        """The searches to run. Another tuple after values were added."""

    def copy_for_run(self) -> Secrets:
        """Return a copy for one run. Values added to it are not searched for in other runs."""
        copied = copy(self)
        copied._added = set(self._added)
        return copied

    def with_values(self, values: Iterable[str]) -> Secrets:
        """Return these secrets and more values in one search, which costs less than those that `add` makes. For before the first run."""
        extended = Secrets(self._values.union(self._added, values), self._on_add, patterns=self._patterns)
        self._on_add(extended._values - self._values - self._added)
        return extended

    def without_patterns(self) -> Secrets:
        """Return a copy that searches for the known values only."""
        known = self.copy_for_run()
        known._shared = _search_for(self._values)
        known.searches = known._build_searches(frozenset(known._added))
        return known

    def add(self, values: Iterable[str]) -> None:
        """Search for these values too, from now on and in text that is held back.

        Safe to call in a worker thread: do so for values of many kilobytes.
        """
        fresh = frozenset(values) - self._values - self._added
        if fresh:
            self._added.update(fresh)  # At once, whichever thread this is.
            self._set_searches()
            self._on_add(fresh)

    def _set_searches(self) -> None:
        """Search for the added values. Build the searches again if another thread has added more meanwhile."""
        added = frozenset[str]()
        while len(added) < len(self._added):
            added = frozenset(self._added)
            searches = self._build_searches(added)
            if len(added) == len(self._added):
                self.searches = searches

    def _build_searches(self, added: frozenset[str]) -> tuple[SecretSearch, ...]:
        large = [value for value in added if len(value) > _LARGE_VALUE]
        parts = (
            self._shared,
            _search_for(added.difference(large)),
            *(_search_for(frozenset([value])) for value in large),
        )
        return tuple(search for search in parts if not search.is_empty)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to search for."""
        return not self.searches

    def contains_secret(self, *texts: str) -> bool:
        """Return True if one of the texts contains a secret. All are searched at once, which costs less than each alone."""
        joined = _BETWEEN_TEXTS.join(texts)
        return any(search.find_spans(joined) for search in self.searches)

    def find_spans(self, text: str) -> list[Span]:
        """Return every secret of the text, in no order; some overlap."""
        if len(self.searches) == 1:
            return self.searches[0].find_spans(text)
        return [span for search in self.searches for span in search.find_spans(text)]

    def may_contain_secret(self, line: bytes) -> bool:
        """Return True if an encoded event may contain a secret. May return True for a clean line, never False for one with a secret."""
        return any(search.may_contain_secret(line) for search in self.searches)


@lru_cache(maxsize=_MAX_SEARCHES)
def _search_for(values: frozenset[str], patterns: tuple[SecretPattern, ...] = ()) -> SecretSearch:
    return SecretSearch(values, patterns)
