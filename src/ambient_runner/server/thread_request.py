"""Parse the requests that list and label threads, and describe a thread in their answers. Pure; the routes are in `routes/threads.py`."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from ambient_runner.errors import InvalidInput
from ambient_runner.ledger.records import ArchivedFilter, ThreadLabels, ThreadStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.datastructures import QueryParams

    from ambient_runner.ledger.records import ThreadInfo

__all__ = ["MAX_TITLE_LENGTH", "ListRequest", "describe_thread", "parse_labels", "parse_limit", "parse_list_request"]

MAX_TITLE_LENGTH = 200
"""Characters of a title."""

_PAGE_SIZE = 100
_MAX_PAGE_SIZE = 1000
_MAX_DIGITS = 15
_STATUSES: tuple[ThreadStatus, ...] = get_args(ThreadStatus)
_ARCHIVED: tuple[ArchivedFilter, ...] = get_args(ArchivedFilter)
_FILTERS = ("before", "agent", "status", "archived", "search")
_CONTROL_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories that a title must not contain: control characters, and separators of lines and paragraphs."""

_Word = TypeVar("_Word", bound=str)


@dataclass(frozen=True, kw_only=True, slots=True)
class ListRequest:
    """The query of `GET /thread/list`. With `changed_after` it has no filter."""

    limit: int
    before: str | None
    changed_after: str | None
    agents: Sequence[str]
    statuses: Sequence[ThreadStatus]
    archived: ArchivedFilter
    search: str


def parse_list_request(query: QueryParams) -> ListRequest:
    """Return the query of a list. The store checks the cursors. Raises: InvalidInput."""
    changed_after = query.get("changed_after")
    if changed_after is not None and (refused := [name for name in _FILTERS if name in query]):
        raise InvalidInput(f"`changed_after` lists every change: it cannot be combined with `{refused[0]}`.")
    return ListRequest(
        limit=parse_limit(query.get("limit")),
        before=query.get("before"),
        changed_after=changed_after,
        agents=[name for name in query.getlist("agent") if name],
        statuses=[_parse_word(status, "status", _STATUSES) for status in query.getlist("status") if status],
        archived=_parse_word(query.get("archived", "without"), "archived", _ARCHIVED),
        search=query.get("search", ""),
    )


def parse_labels(body: Mapping[str, Any], *, title_member: str = "title") -> ThreadLabels:
    """Return the labels of a PATCH, as the client sent them. Raises: InvalidInput, naming the member."""
    if unknown := [name for name in body if name not in {title_member, "archived"}]:
        raise InvalidInput(
            f"`{unknown[0][:64]}` cannot be changed. A thread has the labels `{title_member}` and `archived`."
        )
    if not body:
        raise InvalidInput(f"Nothing to change. Send `{title_member}`, `archived` or both.")
    title = _parse_title(body[title_member], title_member) if title_member in body else None
    archived = _parse_archived(body["archived"]) if "archived" in body else None
    return ThreadLabels(title=title, archived=archived)


def describe_thread(info: ThreadInfo) -> dict[str, Any]:
    """Return the thread as clients get it, in lists and after a PATCH."""
    return {
        "threadId": info.key.id,
        "agent": info.agent,
        "title": info.title,
        "archived": info.archived,
        "status": info.status,
        "createdAt": info.created,
        "updatedAt": info.updated,
        "running": bool(info.active),
        "cursor": info.cursor,
    }


def _parse_title(value: Any, member: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"`{member}` must be a string.")
    title = value.strip()
    if not title:
        raise InvalidInput(f"`{member}` is empty.")
    if len(title) > MAX_TITLE_LENGTH:
        raise InvalidInput(f"`{member}` has more than {MAX_TITLE_LENGTH} characters.")
    if any(unicodedata.category(character) in _CONTROL_CATEGORIES for character in title):
        raise InvalidInput(f"`{member}` contains a line break or another control character.")
    return title


def _parse_archived(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput("`archived` must be true or false.")
    return value


def parse_limit(text: str | None) -> int:
    """Return the number of entries of a page. Raises: InvalidInput."""
    if text is None:
        return _PAGE_SIZE
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise InvalidInput("`limit` must be a whole number.")
    return min(max(int(text) or _PAGE_SIZE, 1), _MAX_PAGE_SIZE)


def _parse_word(text: str, name: str, words: tuple[_Word, ...]) -> _Word:
    for word in words:
        if text == word:
            return word
    raise InvalidInput(f"`{name}` must be one of {', '.join(words)}.")
