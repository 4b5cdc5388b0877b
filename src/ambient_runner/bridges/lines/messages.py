"""Messages in the lines of a command, whichever command it is: text, thoughts, tool calls, tokens, the end of the turn. Pure.

`json_lines.py` reads the lines, `translate.py` makes events of what they say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.json_values import as_object, to_text_or_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.toolkit.provider import StopReason

__all__ = [
    "BlockStart",
    "Call",
    "CallResult",
    "Failure",
    "Line",
    "Other",
    "Part",
    "Reasoning",
    "Text",
    "TurnResult",
    "TurnUsage",
    "find_session_id",
    "parse_stop_reason",
    "parse_usage",
    "result_text",
    "text_of",
]

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    """Text of the agent. `key` names its message; with `is_complete` it is the whole text of it."""

    text: str
    key: str = ""
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A thought of the agent; `key` and `is_complete` as for `Text`."""

    text: str
    key: str = ""
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class BlockStart:
    """The end of a message: the next text belongs to another one."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the agent."""

    id: str
    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a tool call."""

    id: str
    content: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """Tokens, by the names of `TokenUsage`'s fields."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The turn is over. `text` is its answer, for a command that prints nothing else."""

    stop_reason: StopReason | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """The turn has failed, unless it goes on."""

    message: str


@dataclass(frozen=True, slots=True)
class Other:
    """Something that is passed on as it is."""

    kind: str
    value: Any = field(repr=False)


Part = Text | Reasoning | BlockStart | Call | CallResult | TurnUsage | TurnResult | Failure | Other

_SESSION_KEYS = ("session_id", "sessionID", "sessionId", "thread_id")
_SESSION_ID = re.compile(r"[A-Za-z0-9][\w.:-]{0,199}")
"""Ids that can be an argument of a command: they begin no option."""
_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "stop": "end_turn",
    "stop_sequence": "end_turn",
    "max_tokens": "max_tokens",
    "length": "max_tokens",
    "max_turns": "max_turn_requests",
    "error_max_turns": "max_turn_requests",
    "max_turn_requests": "max_turn_requests",
    "refusal": "refusal",
    "content-filter": "refusal",
    "content_filter": "refusal",
}
_COUNT_NAMES = {
    "input_tokens": ("input_tokens", "input"),
    "output_tokens": ("output_tokens", "output"),
    "reasoning_tokens": ("reasoning_output_tokens", "reasoning"),
    "cached_input_tokens": ("cached_input_tokens", "cached", "cache_read_input_tokens", "read"),
    "cache_write_input_tokens": ("cache_write_input_tokens", "cache_creation_input_tokens", "write"),
}
_SEPARATE_CACHE = ("cache_read_input_tokens", "cache_creation_input_tokens", "read", "write")
"""Names of counts that are not part of the input tokens beside them."""


def find_session_id(line: Line) -> str:
    """Return the id of the agent's session that a line names; empty if it names none that can be an argument."""
    for key in _SESSION_KEYS:
        value = line.get(key)
        if isinstance(value, str) and _SESSION_ID.fullmatch(value):
            return value
    return ""


def parse_stop_reason(value: Any) -> StopReason | None:
    return _STOP_REASONS.get(value) if isinstance(value, str) else None


def parse_usage(value: Any) -> list[Part]:
    """Return the tokens that a line reports; nothing if it reports none. Cached tokens are part of the input."""
    reported = as_object(value)
    found = {name: _first_count(reported, aliases) for name, aliases in _COUNT_NAMES.items()}
    counts = {name: count for name, count in found.items() if count}
    if not counts.get("input_tokens") and not counts.get("output_tokens"):
        return []
    sent = counts.get("input_tokens", 0) + sum(_first_count(reported, (name,)) for name in _SEPARATE_CACHE)
    total = sent + counts.get("output_tokens", 0)
    return [TurnUsage({**counts, "input_tokens": sent, "total_tokens": total})]


def result_text(value: Any) -> str:
    """Return the text of a content: text, or a list of blocks."""
    if not isinstance(value, list):
        return "" if value is None else to_text_or_json(value)
    blocks = cast("list[Any]", value)
    return "\n".join(text_of(as_object(block), "text") or to_text_or_json(block) for block in blocks)


def text_of(value: Mapping[str, Any], *names: str) -> str:
    """Return the first of these members that is text; empty if none is."""
    return next((text for name in names if isinstance(text := value.get(name), str)), "")


def _first_count(reported: Mapping[str, Any], names: tuple[str, ...]) -> int:
    for name in names:
        value = reported.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return 0
