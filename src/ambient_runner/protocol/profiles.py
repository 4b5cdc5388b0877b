"""Compatibility profiles for older AG-UI clients. The ledger holds AG-UI 1.0; a Downgrader rewrites it for a pre-1.0 client.

0.0.59, the client in every CopilotKit, aborts a run at the first event it cannot validate: outcome `cancelled`, `pendingToolCallIds`,
content parts in a tool result, `file` sources. 0.0.58 and older do not know subagents either. Nothing is invented: what such a client
cannot read is replaced by text or left out.
"""

from __future__ import annotations

import re
from enum import Enum

from msgspec.structs import replace

from ambient_runner.protocol.events import (
    EVENT_TYPES,
    Attributed,
    Cancelled,
    Content,
    ContentPart,
    Event,
    FileSource,
    Interrupted,
    Message,
    MessagesSnapshot,
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
    UserMessage,
    content_as_text,
)

__all__ = ["Downgrader", "Profile", "needs_downgrade", "profile_for_version"]

RUN_STOPPED = "The run was stopped."

_VERSION = re.compile(r"(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?")


class Profile(Enum):
    """The protocol generation of a client."""

    V1 = "1.0"
    V0 = "0.0.59"
    V0_OLD = "0.0.58"


def profile_for_version(protocol_version: str | None) -> Profile:
    """Return the profile for the version a client declares. A missing or unreadable version counts as 0.0.59."""
    found = _VERSION.fullmatch(protocol_version or "")
    if found is None:
        return Profile.V0
    major, minor, patch = (int(number) if number else 0 for number in found.groups())
    if major:
        return Profile.V1
    return Profile.V0_OLD if found[3] and minor == 0 and patch < 59 else Profile.V0


_V0_TYPES = frozenset({"RUN_STARTED", "RUN_FINISHED", "TOOL_CALL_RESULT", "MESSAGES_SNAPSHOT"})
_DOWNGRADED_TYPES = {
    Profile.V1: frozenset[str](),
    Profile.V0: _V0_TYPES,
    Profile.V0_OLD: _V0_TYPES
    | {"SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR"}
    | {str(kind.__struct_config__.tag) for kind in EVENT_TYPES if issubclass(kind, Attributed)},
}


def needs_downgrade(event_type: str, profile: Profile) -> bool:
    """Return True if events of this type may differ for such a client. All others are sent as they are stored."""
    return event_type in _DOWNGRADED_TYPES[profile]


class Downgrader:
    """Rewrites one stream for one client. Feed it every event for which `needs_downgrade` is true, also those that reopen a run.

    For V1 and V0 the result depends on the event alone, so readers may share it. For V0_OLD it depends on the open steps.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._steps: dict[tuple[str | None, str | None], str] = {}
        """Step names in use, by (owner, step) and, for a subagent itself, (subagent, None)."""

    def feed(self, event: Event) -> list[Event]:
        """Return the events this client receives instead; none if it cannot receive this one."""
        match self._profile:
            case Profile.V1:
                return [event]
            case Profile.V0:
                return [_downgrade_v0(event)]
            case Profile.V0_OLD:
                return self._downgrade_v0_old(_downgrade_v0(event))

    def _downgrade_v0_old(self, event: Event) -> list[Event]:
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


def _downgrade_v0(event: Event) -> Event:
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
            return replace(event, messages=[_downgrade_message_v0(message) for message in event.messages])
        case RunStarted(input=run_input) if run_input is not None:
            return replace(
                event,
                input=replace(run_input, messages=[_downgrade_message_v0(message) for message in run_input.messages]),
            )
        case _:
            return event


def _downgrade_message_v0(message: Message) -> Message:
    match message:
        case ToolMessage(content=list() as parts):
            return replace(message, content=content_as_text(parts))
        case UserMessage(content=list() as parts) if any(_is_file(part) for part in parts):
            readable: Content = [part for part in parts if not _is_file(part)]
            return replace(message, content=readable or "")
        case _:
            return message


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
