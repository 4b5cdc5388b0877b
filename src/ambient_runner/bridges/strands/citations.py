"""Citations of a model: the sources of its text, sent in the metadata of the message that they belong to. Pure.

The SDK yields a citation between the text deltas. TEXT_MESSAGE_END then has all citations of its message in `metadata.citations`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.toolkit.json_values import as_object, to_jsonable_or_type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.protocol.events import Metadata
    from ambient_runner.protocol.open_items import SubagentId

__all__ = ["CITATIONS_METADATA_KEY", "Citations"]

CITATIONS_METADATA_KEY = "citations"
"""Key of the citations in the metadata of a message."""

_LOCATION_TYPES = {"searchResultLocation": "searchResult"}


class Citations:
    """The citations of the messages that are open, by subagent; None for the agent itself."""

    def __init__(self) -> None:
        self._items: dict[SubagentId, list[dict[str, Any]]] = {}
        self._offsets: dict[SubagentId, int] = {}

    def start_message(self, subagent_id: SubagentId) -> None:
        """Count the text of this subagent from zero again."""
        self._offsets[subagent_id] = 0

    def add_text(self, delta: str, subagent_id: SubagentId) -> None:
        """Count the text before the next citation, in the units of JavaScript's strings: browsers use the offset."""
        length = len(delta) if delta.isascii() else len(delta.encode("utf-16-le", "surrogatepass")) // 2
        self._offsets[subagent_id] = self._offsets.get(subagent_id, 0) + length

    def add(self, citation: Any, subagent_id: SubagentId) -> None:
        """Add a citation, unless it names no source."""
        entry = _to_entry(as_object(to_jsonable_or_type_name(citation)))
        if entry:
            entry["textOffset"] = self._offsets.get(subagent_id, 0)
            self._items.setdefault(subagent_id, []).append(entry)

    def __bool__(self) -> bool:
        return bool(self._items)

    def take_metadata(self, subagent_id: SubagentId) -> Metadata | None:
        """Return the metadata of the message that ends, and forget its citations."""
        items = self._items.pop(subagent_id, None)
        return {CITATIONS_METADATA_KEY: items} if items else None


def _to_entry(citation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a citation that are not empty."""
    location = _to_location(as_object(citation.get("location")))
    sources = [{"text": item["text"]} for item in citation.get("sourceContent") or () if item.get("text")]
    entry = {
        "title": citation.get("title"),
        "source": citation.get("source"),
        "location": location,
        "sourceContent": sources,
    }
    return {key: value for key, value in entry.items() if value}


def _to_location(location: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a location with its kind as `type`. Providers wrap it in its kind: `{"documentChar": {"start": 1}}`."""
    kind = next(iter(location), "")
    wrapped = as_object(location.get(kind)) if len(location) == 1 else {}
    flat = {"type": _LOCATION_TYPES.get(kind, kind), **wrapped} if wrapped else dict(location)
    fields = {key: value for key, value in flat.items() if value not in (None, "")}
    return fields if isinstance(fields.get("type"), str) and len(fields) > 1 else None
