"""What a run looks like in a terminal. Pure: events in, pieces out; a piece becomes plain text or a rich renderable.

`run.py` drives the run and prints; nothing here knows a console or waits for anything.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from ambient_runner.protocol import events as ev

if TYPE_CHECKING:
    from rich.console import RenderableType

LONGEST_SHOWN = 2000
_ELSEWHERE = re.compile(r"(?:; t|\. T)he server's log has the reason\.")
"""What clients of a server are told. Here is no server, and the reason is shown."""
_CONTROLS = dict.fromkeys(code for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t")


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the answer, to be printed without a line break."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of reasoning, to be printed without a line break."""

    text: str


@dataclass(frozen=True, slots=True)
class LineEnd:
    """The message is over."""


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call with what it was given and what came back; None when nothing did."""

    name: str
    arguments: str
    result: str | None


@dataclass(frozen=True, slots=True)
class Noted:
    """Something beside the answer: a step, a subagent, a state change."""

    what: str
    detail: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over."""

    outcome: str
    """`success`, `interrupt`, `cancelled` or `error`."""
    message: str


Piece = Said | Thought | LineEnd | Called | Noted | Ended


@dataclass(slots=True)
class _Call:
    name: str
    arguments: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Screen:
    """Folds a run's events into pieces. A tool call is shown once, with its result, or at the end without one."""

    _calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    _asides: dict[str, str] = field(default_factory=dict[str, str])
    """What set-up says, by message: it is not the agent's answer."""

    def feed(self, event: ev.Event) -> list[Piece]:
        match event:
            case ev.TextMessageStart(role="developer"):
                self._asides[event.message_id] = ""
                return []
            case ev.TextMessageContent(message_id=name) if name in self._asides:
                self._asides[name] += event.delta
                return []
            case ev.TextMessageEnd(message_id=name) if name in self._asides:
                return [Noted("setup", self._asides.pop(name))]
            case ev.TextMessageContent():
                return [Said(event.delta)]
            case ev.ReasoningMessageContent():
                return [Thought(event.delta)]
            case ev.TextMessageEnd() | ev.ReasoningMessageEnd():
                return [LineEnd()]
            case ev.ToolCallStart() | ev.ToolCallArgs() | ev.ToolCallResult():
                return self._called(event)
            case ev.RunFinished() | ev.RunError():
                return [*self._unanswered(), _ending(event)]
            case _:
                return _noted(event)

    def _called(self, event: ev.ToolCallStart | ev.ToolCallArgs | ev.ToolCallResult) -> list[Piece]:
        match event:
            case ev.ToolCallStart():
                self._calls[event.tool_call_id] = _Call(event.tool_call_name)
            case ev.ToolCallArgs():
                self._calls[event.tool_call_id].arguments.append(event.delta)
            case ev.ToolCallResult():
                call = self._calls.pop(event.tool_call_id, _Call("tool"))
                return [Called(call.name, "".join(call.arguments), ev.words_of(event.content))]
        return []

    def _unanswered(self) -> list[Piece]:
        open_calls = list(self._calls.values())
        self._calls.clear()
        return [Called(call.name, "".join(call.arguments), None) for call in open_calls]


def _noted(event: ev.Event) -> list[Piece]:
    match event:
        case ev.StateSnapshot():
            return [Noted("state", compact(event.snapshot))]
        case ev.StateDelta():
            return [Noted("state", compact(patch)) for patch in event.delta]
        case ev.StepStarted():
            return [Noted("step", event.step_name)]
        case ev.SubagentStarted():
            return [Noted("subagent", event.name)]
        case ev.SubagentError():
            return [Noted("subagent", event.message)]
        case ev.Custom(name="ambient:capabilities" | "ambient:trace_id"):
            return []  # for front ends
        case ev.Custom(name="ambient:dropped", value={"type": kind, "reason": reason}):
            return [Noted("left out", f"{kind or 'an event'}: {reason}")]
        case ev.Custom():
            return [Noted(event.name, compact(event.value))]
        case _:
            return []


def _ending(event: ev.RunFinished | ev.RunError) -> Ended:
    if isinstance(event, ev.RunError):
        message = _ELSEWHERE.sub(".", event.message)
        return Ended("error", f"{message} ({event.code})" if event.code else message)
    match event.outcome:
        case ev.Interrupted(interrupts=interrupts):
            return Ended("interrupt", "; ".join(each.message or each.reason for each in interrupts))
        case ev.Cancelled():
            return Ended("cancelled", "The run was stopped.")
        case _:
            return Ended("success", "")


def compact(value: Any) -> str:
    """JSON on one line, cut when it is very long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


def harmless(text: str) -> str:
    """The text without control characters, line breaks and tabs excepted."""
    return text.translate(_CONTROLS)


def plain(piece: Piece) -> str:
    """The piece as text for a pipe or a file."""
    match piece:
        case Said(text) | Thought(text):
            return text
        case LineEnd():
            return "\n"
        case Called(name, arguments, result):
            return f"[tool] {name} {arguments}\n" + ("" if result is None else f"[result] {result}\n")
        case Noted(what, detail):
            return f"[{what}] {detail}\n"
        case Ended(outcome, message):
            return f"[{outcome}] {message}\n" if message else ""


def styled(piece: Piece) -> RenderableType | None:
    """The piece for a colour terminal. Agents' words are never markup nor control sequences: they cannot rule the screen."""
    match piece:
        case Said(text):
            return Text(harmless(text), end="")
        case Thought(text):
            return Text(harmless(text), style="dim italic", end="")
        case LineEnd():
            return Text("")
        case Called():
            return _card(piece)
        case Noted(what, detail):
            return Text.assemble((f"{harmless(what)} ", "cyan"), (harmless(detail), "dim"))
        case Ended(outcome, message):
            return Text(harmless(message), style=_ENDINGS[outcome]) if message else None


_ENDINGS = {"error": "bold red", "cancelled": "yellow", "interrupt": "bold magenta", "success": "green"}


def _card(call: Called) -> Panel:
    answer = Text("no result", style="dim") if call.result is None else Text(harmless(call.result))
    body = Group(Text(harmless(call.arguments), style="dim"), answer)
    return Panel(body, title=Text(harmless(call.name)), title_align="left", border_style="blue", expand=False)
