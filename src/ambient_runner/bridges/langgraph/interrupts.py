"""Questions to people: a graph's interrupts as AG-UI has them, and the answers as the graph wants them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.interrupts import expiry
from ambient_runner.bridges.toolkit.json_values import plain
from ambient_runner.protocol.events import Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ambient_runner.protocol.events import ResumeEntry
    from ambient_runner.protocol.open_items import Owner

__all__ = ["Question", "answers_of", "at_breakpoint", "goes_on", "interrupt_of", "is_breakpoint"]

_BREAKPOINT = "breakpoint-"
_MESSAGES = ("message", "question", "description", "prompt")
_SCHEMAS = ("response_schema", "responseSchema")
_CALLS = ("tool_call_id", "toolCallId")


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """An interrupt of the graph: who asks, and for which call if that is known."""

    id: str
    value: Any
    response_schema: Any = None
    lane: Owner = None
    tool_call_id: str | None = None


def interrupt_of(question: Question, seconds: float | None, told: Callable[[str], str]) -> Interrupt:
    """The question as clients see it; open for so many seconds, or for ever. `told` gives a call's id in the thread."""
    value = plain(question.value)
    said = cast("dict[str, Any]", value) if isinstance(value, dict) else dict[str, Any]()
    named = _first(said, _CALLS, str)
    schema = question.response_schema or _first(said, _SCHEMAS, dict)
    return Interrupt(
        id=question.id,
        reason=_first(said, ("reason",), str) or "input_required",
        message=value if isinstance(value, str) else _first(said, _MESSAGES, str),
        tool_call_id=told(named) if named else question.tool_call_id,
        response_schema=cast("dict[str, Any]", schema) if isinstance(schema, dict) else None,
        expires_at=_first(said, ("expires_at", "expiresAt"), str) or expiry(seconds),
        metadata={"value": value},
        subagent_run_id=question.lane,
    )


def at_breakpoint(checkpoint: str, nodes: Sequence[str], seconds: float | None) -> Interrupt:
    """The question of a graph that stops before or after a node (`interrupt_before`): whether to go on."""
    return Interrupt(
        id=f"{_BREAKPOINT}{checkpoint}",
        reason="confirmation",
        message=f"Go on with {', '.join(nodes)}?" if nodes else "Go on?",
        expires_at=expiry(seconds),
        metadata={"next": list(nodes)},
    )


def is_breakpoint(entry: ResumeEntry) -> bool:
    return entry.interrupt_id.startswith(_BREAKPOINT)


def goes_on(entry: ResumeEntry) -> bool:
    """Whether a graph may go on behind a breakpoint: not if the answer is cancelled, says `false`, or does not approve."""
    match entry.payload:
        case False:
            return False
        case {"approved": approved}:
            return entry.status == "resolved" and approved is True
        case _:
            return entry.status == "resolved"


def answers_of(entries: Iterable[ResumeEntry]) -> dict[str, Any]:
    """The answers by the id of their question. One that was cancelled is told so."""
    return {
        entry.interrupt_id: {"cancelled": True} if entry.status == "cancelled" else entry.payload for entry in entries
    }


def _first(said: Mapping[str, Any], names: Iterable[str], kind: type) -> Any:
    return next((said[name] for name in names if isinstance(said.get(name), kind)), None)
