"""Rendering of a run for the terminal. Pure: events in, pieces out; a piece becomes plain text or a rich renderable.

`run.py` drives the run and prints the pieces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from ambient_runner.cli.text_format import compact_json, shorten_text, strip_control_chars
from ambient_runner.protocol import events as ev

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import RenderableType

_SESSION_KEY = "acp"
"""The key of the shared state under which the session of a command-line agent is published."""
_VENDOR_PREFIX = "acp:_"
"""Prefix of events that a vendor adds to the Agent Client Protocol."""
NO_RESULT = "no result"
_LOG_HINT = re.compile(r"(?:; t|\. T)he server's log has the reason\.")
"""The hint that clients of a server get. In the terminal there is no server log; the cause is shown instead."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of the answer, to be printed without a line break."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """A piece of reasoning, to be printed without a line break."""

    text: str


@dataclass(frozen=True, slots=True)
class LineEndPiece:
    """The end of a message."""


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    """A tool call with its arguments and its result; without a result, `pending` says why."""

    name: str
    arguments: str
    result: str | None
    pending: str = NO_RESULT


@dataclass(frozen=True, slots=True)
class NotePiece:
    """A note next to the answer: a step, a subagent, a state change."""

    label: str
    detail: str


@dataclass(frozen=True, slots=True)
class EndPiece:
    """The end of the run."""

    outcome: str
    """`success`, `interrupt`, `cancelled` or `error`."""
    message: str


Piece = TextPiece | ReasoningPiece | LineEndPiece | ToolCallPiece | NotePiece | EndPiece


@dataclass(slots=True)
class _Call:
    name: str
    arguments: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Screen:
    """Folds the events of a run into pieces. A tool call is shown once, with its result, or at the end without one."""

    _calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    _earlier_calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    """Calls of earlier runs. Only the result of one is shown."""
    _setup_messages: dict[str, str] = field(default_factory=dict[str, str])
    """Text of set-up messages by message id. They are not part of the answer."""

    def add_earlier_calls(self, calls: Iterable[ev.ToolCall]) -> None:
        """Add tool calls of earlier runs of the thread, whose results may come now."""
        self._earlier_calls |= {call.id: _Call(call.function.name, [call.function.arguments]) for call in calls}

    def describe_call(self, call_id: str | None) -> str:
        """Return the name and the arguments of a call without a result, on one line; empty for an unknown one."""
        call = self._calls.get(call_id or "") or self._earlier_calls.get(call_id or "")
        return f"{call.name} {shorten_text(''.join(call.arguments))}".rstrip() if call else ""

    def render_event(self, event: ev.Event) -> list[Piece]:
        match event:
            case ev.TextMessageStart(role="developer"):
                self._setup_messages[event.message_id] = ""
                return []
            case ev.TextMessageContent(message_id=name) if name in self._setup_messages:
                self._setup_messages[name] += event.delta
                return []
            case ev.TextMessageEnd(message_id=name) if name in self._setup_messages:
                return [NotePiece("setup", self._setup_messages.pop(name))]
            case ev.TextMessageContent():
                return [TextPiece(event.delta)]
            case ev.ReasoningMessageContent():
                return [ReasoningPiece(event.delta)]
            case ev.TextMessageEnd() | ev.ReasoningMessageEnd():
                return [LineEndPiece()]
            case ev.ToolCallStart() | ev.ToolCallArgs() | ev.ToolCallResult():
                return self._render_tool_call(event)
            case ev.RunFinished() | ev.RunError():
                return [*self._render_open_calls(_pending_reason(event)), _render_terminal_event(event)]
            case _:
                return _render_note(event)

    def _render_tool_call(self, event: ev.ToolCallStart | ev.ToolCallArgs | ev.ToolCallResult) -> list[Piece]:
        match event:
            case ev.ToolCallStart():
                self._calls[event.tool_call_id] = _Call(event.tool_call_name)
            case ev.ToolCallArgs():
                self._calls[event.tool_call_id].arguments.append(event.delta)
            case ev.ToolCallResult():
                earlier = self._earlier_calls.pop(event.tool_call_id, _Call("tool"))
                call = self._calls.pop(event.tool_call_id, earlier)
                return [ToolCallPiece(call.name, "".join(call.arguments), ev.content_as_text(event.content))]
        return []

    def _render_open_calls(self, pending: str) -> list[Piece]:
        """Render the calls without a result. Those that wait stay known: the run that resumes brings their results."""
        pieces = [ToolCallPiece(call.name, "".join(call.arguments), None, pending) for call in self._calls.values()]
        if pending == NO_RESULT:
            self._earlier_calls |= self._calls
            self._calls.clear()
        return [*pieces]


def _pending_reason(event: ev.RunFinished | ev.RunError) -> str:
    match event:
        case ev.RunFinished(outcome=ev.Interrupted()):
            return "waiting for your answer"
        case ev.RunFinished(outcome=ev.Success(pending_tool_call_ids=[_, *_])):
            return "waiting for the client's result"
        case _:
            return NO_RESULT


def _render_note(event: ev.Event) -> list[Piece]:
    match event:
        case ev.StateSnapshot():
            return _state_notes(event.snapshot)
        case ev.StateDelta():
            return [NotePiece("state", compact_json(patch)) for patch in event.delta if not _is_session_patch(patch)]
        case ev.StepStarted():
            return [NotePiece("step", event.step_name)]
        case ev.SubagentStarted():
            return [NotePiece("subagent", event.name)]
        case ev.SubagentError():
            return [NotePiece("subagent", event.message)]
        case ev.Custom():
            return _render_custom(event)
        case _:
            return []


def _state_notes(snapshot: Any) -> list[Piece]:
    """Return the state of the conversation. What a command-line agent says about its session is for front ends."""
    if not isinstance(snapshot, dict) or _SESSION_KEY not in snapshot:
        return [NotePiece("state", compact_json(snapshot))]
    members = cast("dict[str, Any]", snapshot)
    shown = {key: value for key, value in members.items() if key != _SESSION_KEY}
    return [NotePiece("state", compact_json(shown))] if shown else []


def _is_session_patch(patch: Mapping[str, Any]) -> bool:
    return f"{patch.get('path', '')}/".startswith(f"/{_SESSION_KEY}/")


def _render_custom(event: ev.Custom) -> list[Piece]:
    match event:
        case ev.Custom(name="ambient:capabilities" | "ambient:trace_id"):
            return []  # for front ends
        case ev.Custom(name="ambient:interrupt_lapsed"):
            return [
                NotePiece(
                    "interrupt", "An earlier interrupt lapsed. The agent will ask again if it still needs an answer."
                )
            ]
        case ev.Custom(name="ambient:dropped", value={"type": kind, "reason": reason}):
            return [NotePiece("left out", f"{kind or 'an event'}: {reason}")]
        case ev.Custom(
            name="acp:session", value={"started": started, "enforcedBy": enforcer, "files": files, "network": network}
        ):
            return [NotePiece("session", f"{started}; files: {files}; network: {network}; enforced by {enforcer}")]
        case ev.Custom(name=name) if name.startswith(_VENDOR_PREFIX):
            return []
        case _:
            return [NotePiece(event.name, compact_json(event.value))]


def _render_terminal_event(event: ev.RunFinished | ev.RunError) -> EndPiece:
    if isinstance(event, ev.RunError):
        message = _LOG_HINT.sub(".", event.message)
        return EndPiece("error", f"{message} ({event.code})" if event.code else message)
    match event.outcome:
        case ev.Interrupted(interrupts=interrupts):
            return EndPiece("interrupt", "; ".join(each.message or each.reason for each in interrupts))
        case ev.Cancelled():
            return EndPiece("cancelled", "The run was stopped.")
        case _:
            return EndPiece("success", "")


def to_plain_text(piece: Piece) -> str:
    """Return the piece as text for a pipe or a file, without control characters: a pipe often ends in a terminal."""
    return strip_control_chars(_piece_text(piece))


def _piece_text(piece: Piece) -> str:
    match piece:
        case TextPiece(text) | ReasoningPiece(text):
            return text
        case LineEndPiece():
            return "\n"
        case ToolCallPiece(name, arguments, result, pending):
            return f"[tool] {name} {arguments}\n" + (f"[{pending}]\n" if result is None else f"[result] {result}\n")
        case NotePiece(what, detail):
            return f"[{what}] {detail}\n"
        case EndPiece(outcome, message):
            return f"[{outcome}] {message}\n" if message else ""


def to_renderable(piece: Piece) -> RenderableType | None:
    """Return the piece for a terminal. Text of an agent is never interpreted as markup or control sequences."""
    match piece:
        case TextPiece(text):
            return Text(strip_control_chars(text), end="")
        case ReasoningPiece(text):
            return Text(strip_control_chars(text), style="dim italic", end="")
        case LineEndPiece():
            return Text("")
        case ToolCallPiece():
            return _tool_call_panel(piece)
        case NotePiece(what, detail):
            return Text.assemble((f"{strip_control_chars(what)} ", "cyan"), (strip_control_chars(detail), "dim"))
        case EndPiece(outcome, message):
            return Text(strip_control_chars(message), style=_OUTCOME_STYLES[outcome]) if message else None


_OUTCOME_STYLES = {"error": "bold red", "cancelled": "yellow", "interrupt": "bold magenta", "success": "green"}


def _tool_call_panel(call: ToolCallPiece) -> Panel:
    answer = Text(call.pending, style="dim") if call.result is None else Text(strip_control_chars(call.result))
    body = Group(Text(strip_control_chars(call.arguments), style="dim"), answer)
    return Panel(
        body, title=Text(strip_control_chars(call.name)), title_align="left", border_style="blue", expand=False
    )
