"""Translator: what a command prints becomes AG-UI events. Pure.

Text is the answer of the agent. Lines of JSON say more (`json_lines.py`); one that is not known becomes `CUSTOM lines:<type>`, so that
nothing is lost. A whole message that follows its own pieces adds only what was missing.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from ambient_runner.bridges.lines.framing import LineBuffer, TextBuffer
from ambient_runner.bridges.lines.json_lines import parse_line
from ambient_runner.bridges.lines.messages import (
    BlockStart,
    Call,
    CallResult,
    Failure,
    Line,
    Other,
    Reasoning,
    Text,
    TurnResult,
    TurnUsage,
    find_session_id,
)
from ambient_runner.bridges.lines.streamed_text import SentTexts
from ambient_runner.bridges.toolkit.json_values import as_object, to_json_text
from ambient_runner.bridges.toolkit.tool_call_ids import allocate_tool_call_id
from ambient_runner.bridges.toolkit.turns import EMPTY_RESULT, MISSING_RESULT
from ambient_runner.bridges.toolkit.usage import Usage
from ambient_runner.protocol.strict_json import is_too_deep

if TYPE_CHECKING:
    from ambient_runner.bridges.lines.config import OutputFormat
    from ambient_runner.bridges.lines.messages import Part
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.bridges.toolkit.provider import StopReason
    from ambient_runner.protocol.events import Event

__all__ = ["Translator"]

_MAX_HEAD = 1 << 20
"""Bytes of a first line that are waited for to see whether it is JSON."""
_BLANK = b" \t\r\n\xef\xbb\xbf"
_EVENT_NAME = re.compile(r"[\w.-]{1,64}")
_PREFIX = "lines:"


class Translator:
    """Translates the output of one turn. `used_ids` are ids of tool calls that the thread already has."""

    def __init__(self, composer: Composer, output_format: OutputFormat, used_ids: set[str]) -> None:
        self.session_id = ""
        """The agent's own session, if it names one."""
        self.stop_reason: StopReason = "end_turn"
        self.failure: str | None = None
        """The error that the command has reported, if nothing came after it."""
        self.has_begun = False
        """True if the command has printed anything but an error."""
        self.usage = Usage()
        self._composer = composer
        self._format = output_format
        self._used_ids = used_ids
        self._head = b""
        self._lines = LineBuffer()
        self._text = TextBuffer()
        self._sent = SentTexts()
        self._open_key = ""
        self._has_text = False
        self._call_ids: dict[str, str] = {}
        self._unanswered: dict[str, None] = {}

    @property
    def oversized_lines(self) -> int:
        """Number of lines that were skipped because they are too long."""
        return self._lines.oversized

    @property
    def oversized_bytes(self) -> int:
        """Number of bytes of these lines."""
        return self._lines.oversized_bytes

    def feed(self, data: bytes) -> list[Event]:
        """Return the events of the next block of output. Never raises."""
        if self._format == "auto":
            data, self._head = self._head + data, b""
            self._format = detect_format(data)
        if self._format == "auto":
            self._head = data
            return []
        if self._format == "text":
            return self._add_text(self._text.feed(data))
        return [event for line in self._lines.feed(data) for event in self._translate_line(line)]

    def finish(self) -> list[Event]:
        """Return the events of output whose last line has no end. There is no output after it."""
        if self._format == "auto":
            self._format = detect_format(self._head + b"\n")
            is_json = self._format == "json"
            return (
                self._translate_line(self._head)
                if is_json
                else self._add_text(self._text.feed(self._head, is_last=True))
            )
        if self._format == "text":
            return self._add_text(self._text.feed(b"", is_last=True))
        return self._translate_line(self._lines.take_rest())

    def close_calls(self) -> list[Event]:
        """Return results for the calls that will get none: the turn is over."""
        calls, self._unanswered = list(self._unanswered), {}
        return [event for call in calls for event in self._composer.tool_result(call, MISSING_RESULT, is_error=True)]

    def _translate_line(self, line: bytes) -> list[Event]:
        if not line.strip(_BLANK):
            return []
        value = _decode_object(line)
        if value is None:
            text = line.decode("utf-8", "replace").strip()
            return self._composer.custom(f"{_PREFIX}output", {"text": text})
        self.session_id = self.session_id or find_session_id(value)
        parts = parse_line(value)
        self.has_begun = self.has_begun or _is_begun(value, parts)
        if parts is None:
            return self._pass_on(value.get("type"), value)
        return [event for part in parts for event in self._to_events(part)]

    def _to_events(self, part: Part) -> list[Event]:
        match part:
            case Text():
                return self._add_message_text(part)
            case Reasoning():
                key, text = self._sent.add("reasoning", part.key, part.text, is_complete=part.is_complete)
                self._note_content(text)
                return self._composer.reasoning(text, key=key)
            case BlockStart():
                self._sent.start_block()
                return []
            case Call():
                return self._start_call(part)
            case CallResult():
                return self._end_call(part)
            case TurnUsage():
                self.usage.add_counts(part.counts, model=None)
                return []
            case TurnResult():
                return self._end_turn(part)
            case Failure():
                self.failure = part.message or "The command reported an error without a message."
                return []
            case Other():
                return self._pass_on(part.kind, part.value)

    def _pass_on(self, kind: Any, value: Any) -> list[Event]:
        name = kind if isinstance(kind, str) and _EVENT_NAME.fullmatch(kind) else "unknown"
        return self._composer.custom(f"{_PREFIX}{name}", value)

    def _add_message_text(self, part: Text) -> list[Event]:
        key, text = self._sent.add("text", part.key, part.text, is_complete=part.is_complete)
        if not text:
            return []
        ended = self._composer.end_text() if key != self._open_key else []
        self._open_key = key
        return [*ended, *self._add_text(text)]

    def _add_text(self, text: str) -> list[Event]:
        self._note_content(text)
        self._has_text = self._has_text or bool(text)
        return self._composer.text(text)

    def _note_content(self, content: object) -> None:
        if content:
            self.has_begun, self.failure = True, None

    def _start_call(self, call: Call) -> list[Event]:
        if call.id in self._call_ids:
            return []
        self._note_content(call)
        self._sent.start_block()
        client_id = self._call_ids[call.id] = allocate_tool_call_id(call.id or "call", self._used_ids)
        self._used_ids.add(client_id)
        self._unanswered[client_id] = None
        arguments = to_json_text(call.arguments if call.arguments is not None else {})
        return [
            *self._composer.tool_start(client_id, call.name or "tool"),
            *self._composer.tool_args(client_id, arguments),
            *self._composer.tool_end(client_id),
        ]

    def _end_call(self, result: CallResult) -> list[Event]:
        started = self._start_call(Call(result.id, "", None))
        client_id = self._call_ids[result.id]
        self._unanswered.pop(client_id, None)
        content = result.content or EMPTY_RESULT
        return [*started, *self._composer.tool_result(client_id, content, is_error=result.is_error)]

    def _end_turn(self, result: TurnResult) -> list[Event]:
        self.failure = None
        self.stop_reason = result.stop_reason or self.stop_reason
        return self._add_text(result.text) if result.text and not self._has_text else []


def _is_begun(line: Line, parts: list[Part] | None) -> bool:
    """Return True if a turn has begun, although the line may report that it failed.

    OpenCode names the session of a turn that failed. Claude names a session that it does not have, in a result.
    """
    if parts is None or not any(isinstance(part, Failure) for part in parts):
        return True
    return bool(find_session_id(line)) and line["type"] != "result"


def detect_format(head: bytes) -> OutputFormat:
    """Return what the beginning of the output shows: `json` if its first line is an object with a type; `auto` if that is not known yet."""
    begun = head.lstrip(_BLANK)
    if not begun:
        return "auto"
    line, has_end, _ = begun.partition(b"\n")
    if not begun.startswith(b"{") or len(line) > _MAX_HEAD:
        return "text"
    if not has_end:
        return "auto"
    return "json" if isinstance((_decode_object(line) or {}).get("type"), str) else "text"


def _decode_object(line: bytes) -> Line | None:
    """Return the object in a line; None for anything else, also for one that is nested too deep to be stored."""
    line = line.strip(_BLANK)
    if not line.startswith(b"{") or is_too_deep(line):
        return None
    try:
        return as_object(msgspec.json.decode(line))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:  # JavaScript writes halves of surrogate pairs when it cuts a text anywhere. They become `?`.
        return as_object(msgspec.json.decode(to_json_text(json.loads(line))))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
