"""What older AG-UI clients can read. The ledger holds AG-UI 1.0; a Downgrader makes of it what a pre-1.0 client accepts.

0.0.59, the client in every CopilotKit, gives up a run at the first event it cannot validate: outcome `cancelled`, `pendingToolCallIds`,
content parts in a tool result, `file` sources. 0.0.58 and older do not know subagents either. Nothing is invented: what such a client
cannot be told is told in words or left out.
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
    words_of,
)

__all__ = ["Downgrader", "Profile", "needs_downgrade", "profile_of"]

STOPPED = "The run was stopped."

_VERSION = re.compile(r"(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?")


class Profile(Enum):
    """A client's generation."""

    V1 = "1.0"
    V0 = "0.0.59"
    V0_OLD = "0.0.58"


def profile_of(protocol_version: str | None) -> Profile:
    """The profile for the version a client declares. One that declares none, or nothing we can read, is taken as 0.0.59."""
    found = _VERSION.fullmatch(protocol_version or "")
    if found is None:
        return Profile.V0
    major, minor, patch = (int(number) if number else 0 for number in found.groups())
    if major:
        return Profile.V1
    return Profile.V0_OLD if found[3] and minor == 0 and patch < 59 else Profile.V0


_V0_KINDS = frozenset({"RUN_STARTED", "RUN_FINISHED", "TOOL_CALL_RESULT", "MESSAGES_SNAPSHOT"})
_NEEDY = {
    Profile.V1: frozenset[str](),
    Profile.V0: _V0_KINDS,
    Profile.V0_OLD: _V0_KINDS
    | {"SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR"}
    | {str(kind.__struct_config__.tag) for kind in EVENT_TYPES if issubclass(kind, Attributed)},
}


def needs_downgrade(kind: str, profile: Profile) -> bool:
    """Whether events of this type may differ for such a client; all others go out as they are stored."""
    return kind in _NEEDY[profile]


class Downgrader:
    """Rewrites one stream for one client. Feed it every event for which `needs_downgrade`, also those made to re-open a run.

    For V1 and V0 the answer depends on the event alone, so it may be shared between readers. For V0_OLD it depends on what is open.
    """

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._steps: dict[tuple[str | None, str | None], str] = {}
        """Step names in use, by (owner, step) and, for a subagent itself, (subagent, None)."""

    def feed(self, event: Event) -> list[Event]:
        """The events this client gets instead; none when it has to miss this one."""
        match self._profile:
            case Profile.V1:
                return [event]
            case Profile.V0:
                return [_v0(event)]
            case Profile.V0_OLD:
                return self._v0_old(_v0(event))

    def _v0_old(self, event: Event) -> list[Event]:
        match event:
            case RunStarted():
                self._steps.clear()
                return [_without_owners(event)]
            case RunFinished() | MessagesSnapshot():
                return [_without_owners(event)]
            case SubagentStarted():
                return self._open(event, (event.subagent_run_id, None), event.name)
            case SubagentFinished() | SubagentError():
                return self._close(event, (event.subagent_run_id, None))
            case StepStarted():
                return self._open(event, (event.subagent_run_id, event.step_name), event.step_name)
            case StepFinished():
                return self._close(event, (event.subagent_run_id, event.step_name))
            case Attributed(subagent_run_id=str()):
                return [replace(event, subagent_run_id=None)]
            case _:
                return [event]

    def _open(self, event: StepStarted | SubagentStarted, key: tuple[str | None, str | None], name: str) -> list[Event]:
        if key in self._steps:
            return []
        self._steps[key] = unique = _unique(name, set(self._steps.values()))
        return [StepStarted(step_name=unique, timestamp=event.timestamp, metadata=event.metadata)]

    def _close(
        self, event: StepFinished | SubagentFinished | SubagentError, key: tuple[str | None, str | None]
    ) -> list[Event]:
        name = self._steps.pop(key, None)
        if name is None:
            return []
        return [StepFinished(step_name=name, timestamp=event.timestamp, metadata=event.metadata)]


def _unique(name: str, taken: set[str]) -> str:
    """The name, numbered when it is taken: without owners, two open steps of one name are an error to the client."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name} ({number})"
    return candidate


def _v0(event: Event) -> Event:
    match event:
        case RunFinished(outcome=Cancelled()):
            return RunError(
                message=STOPPED, code="abort", usage=event.usage, timestamp=event.timestamp, metadata=event.metadata
            )
        case RunFinished(outcome=Success(pending_tool_call_ids=list())):
            return replace(event, outcome=Success())
        case ToolCallResult(content=list() as parts):
            return replace(event, content=words_of(parts))
        case MessagesSnapshot():
            return replace(event, messages=[_v0_message(message) for message in event.messages])
        case RunStarted(input=given) if given is not None:
            return replace(event, input=replace(given, messages=[_v0_message(message) for message in given.messages]))
        case _:
            return event


def _v0_message(message: Message) -> Message:
    match message:
        case ToolMessage(content=list() as parts):
            return replace(message, content=words_of(parts))
        case UserMessage(content=list() as parts) if any(_is_file(part) for part in parts):
            kept: Content = [part for part in parts if not _is_file(part)]
            return replace(message, content=kept or "")
        case _:
            return message


def _is_file(part: ContentPart) -> bool:
    return not isinstance(part, TextPart) and isinstance(part.source, FileSource)


def _without_owners(event: RunStarted | RunFinished | MessagesSnapshot) -> Event:
    match event:
        case MessagesSnapshot():
            return replace(event, messages=[_ownerless(message) for message in event.messages])
        case RunStarted(input=given) if given is not None:
            return replace(event, input=replace(given, messages=[_ownerless(message) for message in given.messages]))
        case RunFinished(outcome=Interrupted() as outcome):
            interrupts = [replace(interrupt, subagent_run_id=None) for interrupt in outcome.interrupts]
            return replace(event, outcome=Interrupted(interrupts=interrupts))
        case _:
            return event


def _ownerless(message: Message) -> Message:
    return replace(message, subagent_run_id=None)
