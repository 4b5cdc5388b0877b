"""A proof for tests of products: frames that clients received do not contain what they must not.

The projectors protect; this finds what got past them, also where a text is spread over several deltas or escaped in JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.protocol.json_pointer import format_pointer

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["UnsafeFrame", "verify_frame_safety"]

_STREAMS = {
    "TEXT_MESSAGE_CONTENT": "messageId",
    "REASONING_MESSAGE_CONTENT": "messageId",
    "TOOL_CALL_ARGS": "toolCallId",
}
"""Events whose `delta` continues that of the event before with the same id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnsafeFrame:
    """Something forbidden in a frame: the number of the frame, the JSON pointer inside it, and the literal or pattern that was found."""

    frame: int
    path: str
    found: str


def verify_frame_safety(
    frames: Iterable[Mapping[str, Any]], literals: Iterable[str] = (), patterns: Iterable[re.Pattern[str]] = ()
) -> list[UnsafeFrame]:
    """Return where frames contain one of the literals or match one of the patterns; nothing if they are safe.

    Frames are JSON objects, as a client receives them. Keys and values are searched, and the texts that deltas add up to.
    """
    needles, expressions = [literal for literal in literals if literal], list(patterns)
    texts = [*_find_texts(frames := list(frames)), *_join_deltas(frames)]
    return [
        UnsafeFrame(frame=number, path=path, found=found)
        for number, path, text in texts
        for found in _find(text, needles, expressions)
    ]


def _find(text: str, literals: Sequence[str], patterns: Sequence[re.Pattern[str]]) -> Iterator[str]:
    for literal in literals:
        if literal in text or json.dumps(literal)[1:-1] in text:
            yield literal
    for pattern in patterns:
        if pattern.search(text):
            yield pattern.pattern


def _find_texts(frames: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str, str]]:
    for number, frame in enumerate(frames):
        for path, text in _walk_texts(frame, ""):
            yield number, path, text


def _walk_texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            pointer = path + format_pointer(key)
            yield pointer, key
            yield from _walk_texts(item, pointer)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _walk_texts(item, f"{path}/{index}")


def _join_deltas(frames: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, str, str]]:
    """Yield the text of each message and call that more than one delta adds up to, with the number of its last frame."""
    pieces: dict[tuple[str, str], list[str]] = {}
    last: dict[tuple[str, str], int] = {}
    for number, frame in enumerate(frames):
        kind = str(frame.get("type"))
        if kind in _STREAMS:
            key = (kind, str(frame.get(_STREAMS[kind])))
            pieces.setdefault(key, []).append(str(frame.get("delta", "")))
            last[key] = number
    return ((last[key], "/delta", "".join(parts)) for key, parts in pieces.items() if len(parts) > 1)
