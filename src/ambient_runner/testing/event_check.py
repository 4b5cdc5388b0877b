"""Check what an adapter yields. The server repairs what it can and hides the rest from clients; the contract names both."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pydantic

from ambient_runner.bridges.agent_host import AgentHost
from ambient_runner.bridges.user_errors import describe_error
from ambient_runner.config.loader import did_you_mean
from ambient_runner.protocol.agui_models import EventCoercer
from ambient_runner.protocol.events import (
    EVENT_TYPES,
    AssistantMessage,
    ReasoningMessageChunk,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    RunStarted,
    TextMessageChunk,
    TextMessageEnd,
    TextMessageStart,
    ToolCallChunk,
    ToolCallEnd,
    ToolCallStart,
    encode_event,
    type_of,
)
from ambient_runner.protocol.repair import Repairer
from ambient_runner.runs.agent_events import AgentEventRules
from ambient_runner.runs.pipeline import is_written

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Run, RunHandler

_MAX_SHOWN = 160
"""Characters of an event that a message shows."""
_SIMILARITY = 0.6
"""Similarity, from 0 to 1, from which on a known event type is suggested."""
_TYPE_NAMES = sorted(str(kind.__struct_config__.tag) for kind in EVENT_TYPES)
_REASONS = {
    "not-open": "nothing with this id is open: it was not started, or has ended",
    "already-open": "this id is already open",
    "left-open": "the run ended before this was closed",
    "id-reused": "an earlier message or call of the thread has this id; ids are unique in a thread",
    "empty-delta": "the delta is empty",
    "owner": "it names another subagent than the event that opened it",
    "patch": "it is not an RFC 6902 patch",
    "interrupts": "the outcome has no interrupt, or two with the same id",
}
"""Explanations of rules of `protocol.verify`, by the end of their names."""
_FORBIDDEN = {
    "reserved-name": "names that begin with `ambient:` are reserved. Use a prefix of your own, or a function of the toolkit.",
    "text-role": "text of an agent is the assistant's. Yield it with the role assistant.",
}
"""Explanations of the rules of `runs.agent_events`."""


class CheckedHost(AgentHost):
    """An AgentHost that keeps what was wrong with its runs, by run key."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.invalid_events: dict[str, str] = {}
        """The first event of a run that is not an AG-UI event, and why."""
        self.repairs: dict[str, str] = {}
        """The first event of a run that the server had to repair, and why."""
        self.errors: dict[str, str] = {}
        """The exception that the adapter raised."""

    @asynccontextmanager
    async def open_run(self, run: Run) -> AsyncGenerator[AsyncGenerator[Any, None], None]:
        try:
            async with super().open_run(run) as events, aclosing(self._check_types(run, events)) as checked:
                yield checked
        finally:
            error = sys.exception()
            if isinstance(error, Exception):
                self.errors.setdefault(run.key, describe_error(error))

    async def _check_types(self, run: Run, events: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        coerce = EventCoercer()
        async for event in events:
            try:
                self._check_rules(run, event, coerce(event))
            except (TypeError, ValueError) as error:
                self.invalid_events.setdefault(run.key, describe_invalid(event, error))
            yield event

    def _check_rules(self, run: Run, value: object, event: Event) -> None:
        def record(rule: str, event_type: str, times: int) -> None:
            self.repairs.setdefault(run.key, _describe_forbidden(event, rule))

        AgentEventRules(self, record).apply(value, event)

    def check_order(self, handler: RunHandler) -> RunHandler:
        """Record the events that the server repairs. This is middleware: it sees the events after the bridge's own middleware."""

        async def handle(run: Run) -> AsyncGenerator[Event, None]:
            check = _OrderCheck(run)
            async with aclosing(handler(run)) as events:
                async for event in events:
                    if (fault := check.feed(event)) and run.key not in self.repairs:
                        self.repairs[run.key] = fault
                    yield event

        return handle


class _OrderCheck:
    """Repairs the events of one run as the server does, and describes each repair."""

    def __init__(self, run: Run) -> None:
        self._repairer = Repairer(run.input.thread_id, run.input.run_id, set(_known_ids(run)))
        self._chunk_ids: set[str] = set()

    def feed(self, event: Event) -> str:
        """Return what is wrong with the event; empty if it is legal."""
        if not isinstance(event, RunStarted) and not is_written(event):
            return ""
        before = Counter(self._repairer.repairs)
        emitted = self._repairer.feed(event)
        if isinstance(event, TextMessageChunk | ToolCallChunk | ReasoningMessageChunk):
            self._chunk_ids.update(map(_entity_id, emitted))
        rules = sorted(self._repairer.repairs - before)
        if rules != ["left-open"]:
            return _describe_repair(event, rules[0]) if rules else ""
        # Everything but the terminal event closes something. Chunks have no END: the server adds it.
        ends = [end for end in emitted[:-1] if _entity_id(end) not in self._chunk_ids]
        return _describe_repair(ends[0], "left-open") if ends else ""


def _entity_id(event: Event) -> str:
    match event:
        case TextMessageStart(message_id=i) | TextMessageEnd(message_id=i):
            return i
        case ReasoningMessageStart(message_id=i) | ReasoningMessageEnd(message_id=i):
            return i
        case ToolCallStart(tool_call_id=i) | ToolCallEnd(tool_call_id=i):
            return i
        case _:
            return ""


def _known_ids(run: Run) -> Iterator[str]:
    for message in run.input.messages:
        yield message.id
        if isinstance(message, AssistantMessage):
            yield from (call.id for call in message.tool_calls or ())


def _describe_repair(event: Event, rule: str) -> str:
    reason = next((text for end, text in _REASONS.items() if rule.endswith(end)), "")
    what = f"{type_of(event)} is missing" if rule == "left-open" else f"{type_of(event)} is out of order"
    return (
        f"{what}{': ' if reason else ''}{reason}. Event: {_shorten(encode_event(event).decode())}. The server repaired it (rule {rule}, "
        f'counted in ambient_repairs_total{{rule="{rule}"}}). Yield START and END with the same id, or use the toolkit\'s Composer.'
    )


def _describe_forbidden(event: Event, rule: str) -> str:
    return (
        f"{type_of(event)} is not the agent's to send: {_FORBIDDEN[rule]} Event: {_shorten(encode_event(event).decode())}. The server "
        f'changed or dropped it (rule {rule}, counted in ambient_repairs_total{{rule="{rule}"}}).'
    )


def describe_invalid(event: object, error: Exception) -> str:
    """Return why this is not an AG-UI event."""
    return (
        f"The adapter yielded something that is not an AG-UI event: {_explain(error)} It was {_shorten(repr(event))}. "
        "Yield events of the toolkit's Composer, models of ag_ui.core, or mappings with their members."
    )


def _explain(error: Exception) -> str:
    """Return what is wrong in one sentence: pydantic lists all types, and a mapping may break many rules."""
    if not isinstance(error, pydantic.ValidationError):
        return f"{error}."
    first = error.errors(include_url=False)[0]
    if first["type"] == "union_tag_not_found":
        return "it has no `type`."
    if first["type"] == "union_tag_invalid":
        tag = str(first.get("ctx", {}).get("tag"))
        return f"there is no type {tag}.{did_you_mean(tag, _TYPE_NAMES, _SIMILARITY)}"
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}."


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
