"""Recordings without what belongs to one machine or is only long: paths, keys, times, and lists that agents send at their start. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.agents.model import KEY

WORKSPACE = "/workspace"
HOME = "/home/agent"
_KEPT_ITEMS = 3
"""Commands, models and options that are kept of a list."""
_KEPT_CHARS = 200
"""Characters of a description that are kept."""
_LISTS = ("availableCommands", "availableModels")
_URL = re.compile(r"http://127\.0\.0\.1:\d+")
_SOCKET = re.compile(r"/[^\s\"]*/tools\.sock")
_CONTEXT = re.compile(r"<session_context>.*?</session_context>", re.DOTALL)
"""What Gemini tells its model about the machine, and repeats when a session is loaded."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def clean_recording(lines: Iterable[str], paths: Mapping[str, str]) -> str:
    """Return the recording with these paths replaced, the longest first, and with every other trace of the machine."""
    ordered = sorted(paths.items(), key=lambda item: -len(item[0]))
    return "".join(_clean_line(json.loads(line), ordered) for line in lines if line.strip())


def _clean_line(entry: dict[str, Any], paths: list[tuple[str, str]]) -> str:
    text = json.dumps(_shorten(entry), ensure_ascii=False)
    for before, now in paths:
        text = text.replace(before, now)
    text = _SOCKET.sub("/run/ambient/tools.sock", text)
    text = _URL.sub("http://127.0.0.1:4010", text.replace(KEY, "placeholder"))
    return _TIME.sub("2026-01-01T00:00:00.000Z", text) + "\n"


def _shorten(value: Any, name: str = "") -> Any:
    match value:
        case dict():
            return {key: _shorten(part, key) for key, part in value.items()}
        case list() if name in _LISTS:
            return [_shorten(part) for part in value[:_KEPT_ITEMS]]
        case list() if name == "options" and len(value) > 2 * _KEPT_ITEMS:
            return [_shorten(part) for part in value[: 2 * _KEPT_ITEMS]]
        case list():
            return [_shorten(part) for part in value]
        case str() if name == "description":
            return value[:_KEPT_CHARS]
        case str():
            return _CONTEXT.sub("<session_context></session_context>", value)
        case _:
            return value
