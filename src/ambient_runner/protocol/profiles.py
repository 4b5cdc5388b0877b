"""Compatibility profiles for older AG-UI clients. The ledger holds AG-UI 1.0; a Downgrader rewrites it for a pre-1.0 client.

Such a client aborts a run at the first event it cannot validate: outcome `cancelled`, `pendingToolCallIds`, content parts in a tool
result and `file` sources for all of them, subagents before 0.0.59, media parts other than `binary` before 0.0.49, reasoning before 0.0.45.
Pre-1.0 clients do not declare their version, so subagents become steps unless a client declares that it knows them. Nothing is invented:
what a client cannot read is replaced by text or left out.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import replace

from ambient_runner.protocol.events import (
    EVENT_TYPES,
    Attributed,
    Cancelled,
    Content,
    ContentPart,
    Custom,
    Event,
    FileSource,
    Interrupt,
    Interrupted,
    Message,
    MessagesSnapshot,
    ReasoningMessage,
    RunError,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    SubagentError,
    SubagentFinished,
    SubagentStarted,
    Success,
    TextPart,
    ToolCallResult,
    ToolMessage,
    UrlSource,
    UserMessage,
    content_as_text,
    type_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Downgrader",
    "Profile",
    "depends_on_reader",
    "is_version",
    "mark_event_only",
    "needs_downgrade",
    "profile_for_version",
]

RUN_STOPPED = "The run was stopped."

_VERSION = re.compile(r"(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?")


class Profile(Enum):
    """The protocol generation of a client, named after its oldest version."""

    V1 = "1.0"
    V0_59 = "0.0.59"
    """Knows subagents."""
    V0_49 = "0.0.49"
    """Knows media parts and reasoning, but no subagents. For clients that declare nothing."""
    V0_45 = "0.0.45"
    """Knows reasoning. Its media parts are `binary`."""
    V0_42 = "0.0.42"
    """Knows no reasoning either."""


def is_version(text: str) -> bool:
    return _VERSION.fullmatch(text) is not None


def profile_for_version(protocol_version: str | None) -> Profile:
    """Return the profile for the version a client declares: a protocol version or that of its `@ag-ui/client`.

    A missing or unreadable version is that of a client from 0.0.49 to 0.0.58.
    """
    found = _VERSION.fullmatch(protocol_version or "")
    if found is None:
        return Profile.V0_49
    major, minor, patch = (int(number) if number else 0 for number in found.groups())
    if major:
        return Profile.V1
    if minor or not found[3]:
        return Profile.V0_59 if minor else Profile.V0_49
    older = Profile.V0_45 if patch >= 45 else Profile.V0_42
    return Profile.V0_59 if patch >= 59 else Profile.V0_49 if patch >= 49 else older


_V0_59_TYPES = frozenset({"RUN_STARTED", "RUN_FINISHED", "TOOL_CALL_RESULT", "MESSAGES_SNAPSHOT"})
_STATEFUL_TYPES = frozenset(
    {"RUN_STARTED", "STEP_STARTED", "STEP_FINISHED", "SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR"}
)
_REASONING_TYPES = frozenset(
    tag for kind in EVENT_TYPES if (tag := str(kind.__struct_config__.tag)).startswith("REASONING_")
)
_DOWNGRADED_TYPES = {
    Profile.V1: frozenset[str](),
    Profile.V0_59: _V0_59_TYPES,
    Profile.V0_49: _V0_59_TYPES | _STATEFUL_TYPES,
    Profile.V0_45: _V0_59_TYPES | _STATEFUL_TYPES,
    Profile.V0_42: _V0_59_TYPES | _STATEFUL_TYPES | _REASONING_TYPES,
}
_EVENT_ONLY = "eventOnly"
"""Member of an interrupt's metadata, see `mark_event_only`."""
_KNOWS_SUBAGENTS = frozenset({Profile.V1, Profile.V0_59})
_SUBAGENT_MEMBER = b'"subagentRunId":'


def _prefixes(types: Iterable[str]) -> tuple[bytes, ...]:
    """Return what encoded events of these types begin with."""
    return tuple(b'{"type":"%b"' % name.encode() for name in sorted(types))


_RESULT = "TOOL_CALL_RESULT"
_DOWNGRADED_PREFIXES = {profile: _prefixes(types - {_RESULT}) for profile, types in _DOWNGRADED_TYPES.items()}
_RESULT_PREFIXES = _prefixes([_RESULT])
_STATEFUL_PREFIXES = _prefixes(_STATEFUL_TYPES)
_CONTENT_PARTS = b'"content":['


def needs_downgrade(line: bytes, profile: Profile) -> bool:
    """Return True if this encoded event may differ for such a client. All others are sent as they are stored."""
    if profile is Profile.V1:
        return False
    if line.startswith(_DOWNGRADED_PREFIXES[profile]):
        return True
    if line.startswith(_RESULT_PREFIXES) and _CONTENT_PARTS in line:
        return True
    return profile not in _KNOWS_SUBAGENTS and _SUBAGENT_MEMBER in line


def depends_on_reader(line: bytes, profile: Profile) -> bool:
    """Return True if the downgraded event depends on what this reader was sent before, so that readers cannot share it."""
    return profile not in _KNOWS_SUBAGENTS and line.startswith(_STATEFUL_PREFIXES)


class Downgrader:
    """Rewrites one stream for one client. Feed it every event for which `needs_downgrade` is true, also those that reopen a run.

    Where subagents become steps, the result depends on the open steps: see `depends_on_reader`.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._steps: dict[tuple[str | None, str | None], str] = {}
        """Step names in use, by (owner, step) and, for a subagent itself, (subagent, None)."""

    def feed(self, event: Event) -> list[Event]:
        """Return the events this client receives instead; none if it cannot receive this one."""
        if self._profile is Profile.V1:
            return [event]
        downgraded = [*_interrupt_events(event), _downgrade_to_v0(_without_event_only(event))]
        return [out for known in downgraded for out in self._feed_known(known)]

    def _feed_known(self, event: Event) -> list[Event]:
        """Return the events for a client that knows the event, but perhaps no subagents or reasoning."""
        match self._profile:
            case Profile.V1 | Profile.V0_59:
                return [event]
            case Profile.V0_49:
                return self._without_subagents(event)
            case Profile.V0_45:
                return self._without_subagents(_with_binary_parts(event))
            case Profile.V0_42:
                readable = _without_reasoning(_with_binary_parts(event))
                return [] if readable is None else self._without_subagents(readable)

    def _without_subagents(self, event: Event) -> list[Event]:
        match event:
            case RunStarted():
                self._steps.clear()
                return [_without_owners(event)]
            case RunFinished() | MessagesSnapshot():
                return [_without_owners(event)]
            case SubagentStarted():
                return self._open_step(event, (event.subagent_run_id, None), event.name)
            case SubagentFinished() | SubagentError():
                return self._close_step(event, (event.subagent_run_id, None))
            case StepStarted():
                return self._open_step(event, (event.subagent_run_id, event.step_name), event.step_name)
            case StepFinished():
                return self._close_step(event, (event.subagent_run_id, event.step_name))
            case Attributed(subagent_run_id=str()):
                return [replace(event, subagent_run_id=None)]
            case _:
                return [event]

    def _open_step(
        self, event: StepStarted | SubagentStarted, key: tuple[str | None, str | None], name: str
    ) -> list[Event]:
        if key in self._steps:
            return []
        self._steps[key] = unique = _unique_name(name, set(self._steps.values()))
        return [StepStarted(step_name=unique, timestamp=event.timestamp, metadata=event.metadata)]

    def _close_step(
        self, event: StepFinished | SubagentFinished | SubagentError, key: tuple[str | None, str | None]
    ) -> list[Event]:
        name = self._steps.pop(key, None)
        if name is None:
            return []
        return [StepFinished(step_name=name, timestamp=event.timestamp, metadata=event.metadata)]


def _unique_name(name: str, taken: set[str]) -> str:
    """Return the name, with a number if it is taken: without owners, two open steps of one name are an error in the client."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name} ({number})"
    return candidate


def _interrupt_events(event: Event) -> list[Event]:
    """Return the graph's interrupts as pages from before the outcome `interrupt` expect them: each value in a CUSTOM `on_interrupt`."""
    interrupts = (
        event.outcome.interrupts if isinstance(event, RunFinished) and isinstance(event.outcome, Interrupted) else []
    )
    return [
        Custom(
            name="on_interrupt", value=_as_text(interrupt.metadata["value"]), subagent_run_id=interrupt.subagent_run_id
        )
        for interrupt in interrupts
        if interrupt.metadata and "value" in interrupt.metadata
    ]


def mark_event_only(interrupt: Interrupt) -> Interrupt:
    """Return the interrupt of a graph for older pages: their clients get it as CUSTOM `on_interrupt` and not in the outcome."""
    return replace(interrupt, metadata={**(interrupt.metadata or {}), _EVENT_ONLY: True})


def _without_event_only(event: Event) -> Event:
    """Return the end of a run without its outcome if all its interrupts are sent as events.

    With the outcome, pages of CopilotKit ignore those events, and clients from 0.0.55 on send no answer but `resume`.
    """
    match event:
        case RunFinished(outcome=Interrupted(interrupts=interrupts)) if all(
            (interrupt.metadata or {}).get(_EVENT_ONLY) for interrupt in interrupts
        ):
            return replace(event, outcome=None)
        case _:
            return event


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _downgrade_to_v0(event: Event) -> Event:
    match event:
        case RunFinished(outcome=Cancelled()):
            return RunError(
                message=RUN_STOPPED, code="abort", usage=event.usage, timestamp=event.timestamp, metadata=event.metadata
            )
        case RunFinished(outcome=Success(pending_tool_call_ids=list())):
            return replace(event, outcome=Success())
        case ToolCallResult(content=list() as parts):
            return replace(event, content=content_as_text(parts))
        case MessagesSnapshot():
            return replace(event, messages=[_downgrade_message(message) for message in event.messages])
        case RunStarted(input=run_input) if run_input is not None:
            return replace(
                event,
                input=replace(run_input, messages=[_downgrade_message(message) for message in run_input.messages]),
            )
        case _:
            return event


def _downgrade_message(message: Message) -> Message:
    match message:
        case ToolMessage(content=list() as parts):
            return replace(message, content=content_as_text(parts))
        case UserMessage(content=list() as parts) if any(_is_file(part) for part in parts):
            readable: Content = [part for part in parts if not _is_file(part)]
            return replace(message, content=readable or "")
        case _:
            return message


class _BinaryPart(
    msgspec.Struct, tag_field="type", tag="binary", rename="camel", omit_defaults=True, frozen=True, kw_only=True
):
    """A media part as clients before 0.0.49 know it."""

    mime_type: str
    data: str | None = None
    url: str | None = None


def _with_binary_parts(event: Event) -> Event:
    """Return the event with `binary` parts in place of images, audio, video and documents."""
    match event:
        case MessagesSnapshot():
            return replace(event, messages=[_with_binary_content(message) for message in event.messages])
        case RunStarted(input=run_input) if run_input is not None:
            messages = [_with_binary_content(message) for message in run_input.messages]
            return replace(event, input=replace(run_input, messages=messages))
        case _:
            return event


def _with_binary_content(message: Message) -> Message:
    match message:
        case UserMessage(content=list() as parts):
            return replace(message, content=cast("Content", [_to_binary_part(part) for part in parts]))
        case _:
            return message


def _to_binary_part(part: ContentPart) -> TextPart | _BinaryPart:
    match part:
        case TextPart():
            return part
        case _:
            mime_type = part.source.mime_type or "application/octet-stream"
            if isinstance(part.source, UrlSource):
                return _BinaryPart(mime_type=mime_type, url=part.source.value)
            return _BinaryPart(mime_type=mime_type, data=part.source.value)


def _without_reasoning(event: Event) -> Event | None:
    """Return the event as a client that does not know reasoning reads it; None if it is reasoning."""
    if type_of(event) in _REASONING_TYPES:
        return None
    match event:
        case MessagesSnapshot():
            return replace(event, messages=_drop_reasoning(event.messages))
        case RunStarted(input=run_input) if run_input is not None:
            return replace(event, input=replace(run_input, messages=_drop_reasoning(run_input.messages)))
        case _:
            return event


def _drop_reasoning(messages: list[Message]) -> list[Message]:
    return [message for message in messages if not isinstance(message, ReasoningMessage)]


def _is_file(part: ContentPart) -> bool:
    return not isinstance(part, TextPart) and isinstance(part.source, FileSource)


def _without_owners(event: RunStarted | RunFinished | MessagesSnapshot) -> Event:
    match event:
        case MessagesSnapshot():
            return replace(event, messages=[_without_owner(message) for message in event.messages])
        case RunStarted(input=run_input) if run_input is not None:
            return replace(
                event, input=replace(run_input, messages=[_without_owner(message) for message in run_input.messages])
            )
        case RunFinished(outcome=Interrupted() as outcome):
            interrupts = [replace(interrupt, subagent_run_id=None) for interrupt in outcome.interrupts]
            return replace(event, outcome=Interrupted(interrupts=interrupts))
        case _:
            return event


def _without_owner(message: Message) -> Message:
    return replace(message, subagent_run_id=None)
