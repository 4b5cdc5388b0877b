"""Arguments of a call while the model still writes them: JSON text that only grows, and is complete and right in the end.

The model names places (`$.city`) and gives pieces of their values. Strings and plain values directly under the root are passed on as
they come. From the first deeper place on nothing is, until the whole arguments are known: what has been said is then completed, and a
member that turned out otherwise is said again, for of two members with one name every reader takes the last.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ambient_runner.bridges.toolkit.json_values import json_text

__all__ = ["GrowingArguments"]

_MEMBER = re.compile(r"\$\.([A-Za-z_][A-Za-z0-9_]*)")


class GrowingArguments:
    """The JSON text of one call's arguments. Every method gives what to append to it."""

    def __init__(self) -> None:
        self._said: dict[str, Any] = {}
        self._open: str | None = None
        """The member whose string may go on."""
        self._begun = False
        self._deep = False

    def piece(self, json_path: str | None, value: Any, *, goes_on: bool) -> str:
        """A piece of the value at a place."""
        found = _MEMBER.fullmatch(json_path or "")
        if self._deep or found is None:
            self._deep = True
            return ""
        name = found[1]
        if name == self._open and isinstance(value, str):
            return self._more(name, value, goes_on=goes_on)
        if name in self._said:
            self._deep = True
            return ""
        return self._end_string() + self._member(name, value, goes_on=goes_on)

    def rest(self, arguments: dict[str, Any]) -> str:
        """What is missing, now that the whole arguments are known."""
        closing = self._end_string()
        missing = {
            name: value for name, value in arguments.items() if name not in self._said or self._said[name] != value
        }
        members = "".join(self._member(name, value, goes_on=False) for name, value in missing.items())
        return f"{closing}{members}{'' if self._begun else '{'}}}"

    def _more(self, name: str, value: str, *, goes_on: bool) -> str:
        self._said[name] += value
        return json.dumps(value, ensure_ascii=False)[1:-1] + ("" if goes_on else self._end_string())

    def _member(self, name: str, value: Any, *, goes_on: bool) -> str:
        start = "," if self._begun else "{"
        self._begun, self._said[name] = True, value
        text = f"{start}{json.dumps(name, ensure_ascii=False)}:{json_text(value)}"
        if goes_on and isinstance(value, str):
            self._open = name
            return text[:-1]
        return text

    def _end_string(self) -> str:
        if self._open is None:
            return ""
        self._open = None
        return '"'
