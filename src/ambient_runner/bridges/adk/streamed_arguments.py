"""Streamed arguments of a tool call as JSON text that only grows and is complete and correct at the end.

The model streams JSON paths (`$.city`) with parts of their values. Strings and scalars directly under the root are sent as they arrive.
After the first deeper path nothing is sent until the complete arguments are known. Then the text is completed, and a member with another
value than the one sent is repeated: of duplicate members, JSON parsers take the last.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ambient_runner.bridges.toolkit.json_values import to_json_text

__all__ = ["StreamedArguments"]

_MEMBER = re.compile(r"\$\.([A-Za-z_][A-Za-z0-9_]*)")


class StreamedArguments:
    """JSON text of one call's arguments. Each method returns the text to append."""

    def __init__(self) -> None:
        self._sent: dict[str, Any] = {}
        self._open_member: str | None = None
        """Name of the member whose string may continue."""
        self._has_started = False
        self._has_nested_path = False

    def add_part(self, json_path: str | None, value: Any, *, continues: bool) -> str:
        """Add a part of the value at a JSON path."""
        path = _MEMBER.fullmatch(json_path or "")
        if self._has_nested_path or path is None:
            self._has_nested_path = True
            return ""
        name = path[1]
        if name == self._open_member and isinstance(value, str):
            return self._extend_string(name, value, continues=continues)
        if name in self._sent:
            self._has_nested_path = True
            return ""
        return self._end_string() + self._add_member(name, value, continues=continues)

    def finish(self, arguments: dict[str, Any]) -> str:
        """Return the rest of the text, given the complete arguments."""
        closing = self._end_string()
        missing = {
            name: value for name, value in arguments.items() if name not in self._sent or self._sent[name] != value
        }
        members = "".join(self._add_member(name, value, continues=False) for name, value in missing.items())
        return f"{closing}{members}{'' if self._has_started else '{'}}}"

    def _extend_string(self, name: str, value: str, *, continues: bool) -> str:
        self._sent[name] += value
        return json.dumps(value, ensure_ascii=False)[1:-1] + ("" if continues else self._end_string())

    def _add_member(self, name: str, value: Any, *, continues: bool) -> str:
        start = "," if self._has_started else "{"
        self._has_started, self._sent[name] = True, value
        text = f"{start}{json.dumps(name, ensure_ascii=False)}:{to_json_text(value)}"
        if continues and isinstance(value, str):
            self._open_member = name
            return text[:-1]
        return text

    def _end_string(self) -> str:
        if self._open_member is None:
            return ""
        self._open_member = None
        return '"'
