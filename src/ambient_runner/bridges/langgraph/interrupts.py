"""Interrupts both ways: the graph's as AG-UI interrupts, and the client's answers as the graph expects them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.langgraph.approvals import parse_approval
from ambient_runner.bridges.toolkit.interrupts import cancelled_answer, expires_at, framework_interrupt_id, is_approved
from ambient_runner.bridges.toolkit.json_values import as_object, to_jsonable
from ambient_runner.projections.json_values import canonical_json
from ambient_runner.protocol.events import Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ambient_runner.bridges.langgraph.approvals import ApprovalRequest
    from ambient_runner.protocol.events import ResumeEntry
    from ambient_runner.protocol.open_items import SubagentId

__all__ = [
    "GraphInterrupt",
    "answers_by_interrupt",
    "breakpoint_interrupt",
    "continues_after",
    "find_interrupted_calls",
    "is_breakpoint",
    "is_executed",
    "to_interrupt",
]

_BREAKPOINT_PREFIX = "breakpoint-"
_MESSAGE_KEYS = ("message", "question", "description", "prompt", "__copilotkit_interrupt_value__")
_SCHEMA_KEYS = ("response_schema", "responseSchema")
_TOOL_CALL_KEYS = ("tool_call_id", "toolCallId")
_REFUSALS = ("reject", "respond", "ignore")
"""Decisions of the middleware that do not execute a call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphInterrupt:
    """An interrupt of the graph: the subagent that raised it, and the tool call it is for, if known."""

    id: str
    value: Any
    response_schema: Any = None
    subagent_id: SubagentId = None
    tool_call_id: str | None = None


def to_interrupt(
    raised: GraphInterrupt,
    seconds: float | None,
    client_call_id: Callable[[str], str],
    open_calls: Iterable[tuple[str, str, Any]] = (),
) -> Interrupt:
    """Return the AG-UI interrupt. It expires after so many seconds; never if None. `client_call_id` maps ids of tool calls.

    `open_calls` are the unanswered calls of the thread: id, name and arguments.
    """
    value = to_jsonable(raised.value)
    approval = parse_approval(value, raised.response_schema)
    if approval is not None:
        return _approval_interrupt(raised, value, approval.with_tool_call_ids(open_calls, client_call_id), seconds)
    members = as_object(value)
    tool_call_id = _first_member(members, _TOOL_CALL_KEYS, str)
    schema = raised.response_schema or _first_member(members, _SCHEMA_KEYS, dict)
    return Interrupt(
        id=raised.id,
        reason=_first_member(members, ("reason",), str) or "input_required",
        message=value if isinstance(value, str) else _first_member(members, _MESSAGE_KEYS, str),
        tool_call_id=client_call_id(tool_call_id) if tool_call_id else raised.tool_call_id,
        response_schema=cast("dict[str, Any]", schema) if isinstance(schema, dict) else None,
        expires_at=_first_member(members, ("expires_at", "expiresAt"), str) or expires_at(seconds),
        metadata={"value": value},
        subagent_run_id=raised.subagent_id,
    )


def _approval_interrupt(
    raised: GraphInterrupt, value: Any, request: ApprovalRequest, seconds: float | None
) -> Interrupt:
    return Interrupt(
        id=raised.id,
        reason="tool_call",
        message=request.message,
        tool_call_id=next((call.tool_call_id for call in request.calls if call.tool_call_id), raised.tool_call_id),
        response_schema=request.response_schema,
        expires_at=expires_at(seconds),
        metadata={"value": value, "toolCalls": [call.to_metadata() for call in request.calls]},
        subagent_run_id=raised.subagent_id,
    )


def breakpoint_interrupt(checkpoint: str, nodes: Sequence[str], seconds: float | None) -> Interrupt:
    """Return the interrupt of a graph that stops before or after a node (`interrupt_before`): a confirmation to continue."""
    return Interrupt(
        id=f"{_BREAKPOINT_PREFIX}{checkpoint}",
        reason="confirmation",
        message=f"Continue with {', '.join(nodes)}?" if nodes else "Continue?",
        expires_at=expires_at(seconds),
        metadata={"next": list(nodes)},
    )


def is_breakpoint(entry: ResumeEntry) -> bool:
    return entry.interrupt_id.startswith(_BREAKPOINT_PREFIX)


def continues_after(entry: ResumeEntry) -> bool:
    """Return True if the answer lets the graph continue after a breakpoint: not cancelled, not `false`, not disapproved."""
    if entry.status != "resolved" or entry.payload is False:
        return False
    return "approved" not in as_object(entry.payload) or is_approved(entry.payload)


def answers_by_interrupt(
    entries: Iterable[ResumeEntry], raised: Iterable[GraphInterrupt], tool_names: Collection[str] = ()
) -> dict[str, Any]:
    """Return the answers to the interrupts that are open in the graph, by their ids. `tool_names` are the graph's tools, if known.

    Raises: InvalidAnswer.
    """
    by_id = {interrupt.id: interrupt for interrupt in raised}
    return {
        interrupt_id: _to_answer(entry, by_id[interrupt_id], tool_names)
        for entry in entries
        if (interrupt_id := framework_interrupt_id(entry.interrupt_id)) in by_id
    }


def find_interrupted_calls(raised: GraphInterrupt | None) -> list[tuple[str, Any]]:
    """Return what a person is asked about: the calls of an approval, or the value of an interrupt if it is more than a text."""
    if raised is None:
        return []
    value = to_jsonable(_with_ordered_sets(raised.value))
    approval = parse_approval(value, raised.response_schema)
    if approval is not None:
        return [(call.name, call.arguments) for call in approval.calls]
    return [("", value)] if isinstance(value, dict | list) else []


def is_executed(answer: Any) -> bool:
    """Return False if the answer to an approval executes none of its calls; True for any other answer."""
    members = as_object(answer)
    decisions: list[Any] = members["decisions"] if isinstance(members.get("decisions"), list) else [answer]
    return any(as_object(decision).get("type") not in _REFUSALS for decision in decisions)


def _to_answer(entry: ResumeEntry, raised: GraphInterrupt, tool_names: Collection[str]) -> Any:
    """Return the value with which the graph continues. A cancelled approval is a rejection, any other interrupt `cancelled_answer()`."""
    approval = parse_approval(raised.value, raised.response_schema, tool_names)
    if entry.status == "cancelled":
        return (approval.to_cancelled() if approval else None) or cancelled_answer()
    return approval.to_answer(entry.payload) if approval else entry.payload


def _with_ordered_sets(value: Any) -> Any:
    """Return the value with lists in place of sets, whose order differs from one process to the next."""
    match value:
        case set() | frozenset():
            return sorted((to_jsonable(item) for item in cast("set[Any]", value)), key=canonical_json)
        case dict():
            return {name: _with_ordered_sets(item) for name, item in cast("dict[Any, Any]", value).items()}
        case list() | tuple():
            return [_with_ordered_sets(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _first_member(members: Mapping[str, Any], names: Iterable[str], kind: type) -> Any:
    return next((members[name] for name in names if isinstance(members.get(name), kind)), None)
