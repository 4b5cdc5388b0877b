"""Results of tool calls: the best text an agent has given for one, and diffs of files as text. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.messages import (
    as_text,
    block_text,
    head_and_tail,
    raw_output_content,
    to_content,
    unfenced,
)
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.turns import EMPTY_RESULT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ambient_runner.protocol.events import Content

__all__ = ["FAILED_RESULT", "MAX_RESULT_BYTES", "diffs_in", "result_content", "text_in"]

FAILED_RESULT = "The call failed. The agent gave no reason."
MAX_RESULT_BYTES = 128 << 10
_MAX_DIFF_BYTES = 64 << 10
"""Of the text of a file before or after a change."""
_MAX_DIFFS_BYTES = 1 << 20
"""Of all diffs of a call."""
_MAX_DIFFS = 50
_MAX_PATH_BYTES = 4 << 10


def result_content(
    content: Sequence[Any], *, is_new: bool, output: str, raw_output: Any, exit_code: int | None, is_failed: bool
) -> Content:
    """Return the result of a call that has ended; it is never empty.

    `content` is the call's content, new if the update that ended the call has it; older content may describe the request only. `output`
    is what its terminal has printed.
    """
    printed = f"{output.rstrip()}\n[exit code {exit_code}]" if exit_code else output
    found = (
        (to_content(list(_blocks(content)), MAX_RESULT_BYTES) if is_new else "")
        or head_and_tail(printed, MAX_RESULT_BYTES)
        or raw_output_content(raw_output, MAX_RESULT_BYTES)
        or to_content(list(_blocks(content)), MAX_RESULT_BYTES)
        or (FAILED_RESULT if is_failed else EMPTY_RESULT)
    )
    return unfenced(found) or EMPTY_RESULT if isinstance(found, str) else found


def text_in(content: Sequence[Any]) -> str:
    """Return the text of a call's content, without its diffs."""
    return "\n".join(filter(None, (block_text(block) for item in content for block in _plain_blocks(item))))


def diffs_in(content: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the changes of files in a call's content: `path`, `oldText` (None for a new file) and `newText`."""
    items = (as_object(item) for item in content)
    diffs = [item for item in items if item.get("type") == "diff" and as_text(item.get("path"))][:_MAX_DIFFS]
    max_bytes = min(_MAX_DIFF_BYTES, _MAX_DIFFS_BYTES // (2 * len(diffs) or 1))
    return [_bounded_diff(item, max_bytes) for item in diffs]


def _bounded_diff(diff: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    old = diff.get("oldText")
    return {
        "path": head_and_tail(diff["path"], _MAX_PATH_BYTES),
        "oldText": head_and_tail(old, max_bytes) if isinstance(old, str) else None,
        "newText": head_and_tail(as_text(diff.get("newText")), max_bytes),
    }


def _blocks(content: Sequence[Any]) -> Iterator[Any]:
    """Return the content blocks of a result. A diff becomes text."""
    for item in content:
        yield from _plain_blocks(item)
        for diff in diffs_in([item]):
            yield {"type": "text", "text": _diff_text(diff)}


def _plain_blocks(item: Any) -> Iterator[Any]:
    members = as_object(item)
    if members.get("type") == "content":
        yield members.get("content")


def _diff_text(diff: Mapping[str, Any]) -> str:
    """Return a change of a file as text, without the lines at the beginning and the end that are the same."""
    old, new = as_text(diff["oldText"]).splitlines(), diff["newText"].splitlines()
    start = _common_length(old, new)
    end = _common_length(old[start:][::-1], new[start:][::-1])
    removed, added = old[start : len(old) - end], new[start : len(new) - end]
    path = diff["path"]
    header = [f"--- {path if diff['oldText'] is not None else '/dev/null'}", f"+++ {path}"]
    return "\n".join([*header, *(f"-{line}" for line in removed), *(f"+{line}" for line in added)])


def _common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many items both sequences begin with."""
    pairs = zip(first, second, strict=False)
    return next((number for number, (one, other) in enumerate(pairs) if one != other), min(len(first), len(second)))
