"""The filter of a list of threads, and the search in their titles and ids, for all stores. Pure."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from ambient_runner.ledger.records import ArchivedFilter, ThreadInfo, ThreadStatus

__all__ = ["ThreadFilter", "fold_case", "searched_text"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadFilter:
    """The threads that a list contains. An empty collection or text selects all."""

    agents: Collection[str] = ()
    statuses: Collection[ThreadStatus] = ()
    archived: ArchivedFilter = "without"
    search: str = ""

    def matches(self, info: ThreadInfo) -> bool:
        return (
            (not self.agents or info.agent in self.agents)
            and (not self.statuses or info.status in self.statuses)
            and (self.archived == "with" or info.archived == (self.archived == "only"))
            and (not self.search or self.folded_search in searched_text(info.title, info.key.id))
        )

    @property
    def folded_search(self) -> str:
        """The text to look for in `searched_text`. A line break is doubled, so that none matches the one between title and id."""
        return fold_case(self.search).replace("\n", "\n\n")


def fold_case(text: str) -> str:
    """Return the text for comparisons that ignore case, in any script and however accents are composed."""
    return text.casefold() if text.isascii() else unicodedata.normalize("NFC", text.casefold())


def searched_text(title: str, thread_id: str) -> str:
    """Return the text that a search looks in. A line break separates its parts: neither contains one."""
    return f"{fold_case(title)}\n{fold_case(thread_id)}"
