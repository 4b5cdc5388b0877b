"""Tool calls as the frames of a reader need them: their names, whose tools they are of, and their arguments once they are complete.

A line of a call has only its id. The folded thread knows the rest; a reader remembers it for the calls of the current run. Arguments are
taken from the batch itself if the whole call is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ambient_runner.protocol.events import (
    AssistantMessage,
    Interrupted,
    MessagesSnapshot,
    RunFinished,
    RunStarted,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    ToolMessage,
    decode_event,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ambient_runner.ledger.records import Batch
    from ambient_runner.projections.exposure import ExposureRules
    from ambient_runner.projections.thread_view import ThreadView
    from ambient_runner.projections.withdrawn import WithdrawnContent
    from ambient_runner.protocol.events import Custom, Event, Message

__all__ = [
    "UNKNOWN_CALL",
    "FindCall",
    "FrameContext",
    "KnownCall",
    "ReaderCalls",
    "call_ids_in",
    "find_call_in",
    "message_call_ids",
]


class KnownCall(NamedTuple):
    """A tool call. `is_client`: its tool is one of the client's."""

    name: str
    arguments: str
    is_client: bool


UNKNOWN_CALL = KnownCall("", "", is_client=False)

FindCall = Callable[[str], KnownCall]
"""Returns the call of an id; UNKNOWN_CALL if there is none."""

_CALL_PREFIX = b'{"type":"TOOL_CALL_'
_OTHER_PREFIXES = (b'{"type":"RUN_STARTED"', b'{"type":"MESSAGES_SNAPSHOT"', b'{"type":"RUN_FINISHED"')
_CALL_MEMBERS = (b'"toolCallId":', b'"toolCalls":')


def find_call_in(view: ThreadView) -> FindCall:
    """Return the lookup of all calls of a thread as it is in this view."""

    def find(call_id: str) -> KnownCall:
        call = view.transcript.find_call(call_id)
        if call is None:
            return UNKNOWN_CALL
        return KnownCall(call.function.name, call.function.arguments, is_client=call_id in view.client_call_ids)

    return find


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameContext:
    """The part of the thread that the frames of a batch need, as it is at one of its entries."""

    messages: list[Message] = field(default_factory=list["Message"])
    calls: Mapping[str, KnownCall] = field(default_factory=dict[str, KnownCall])
    feedback: Mapping[str, str] = field(default_factory=dict[str, str])
    """The feedback on these messages, by message id."""
    thread: Custom | None = None
    """The event `ambient:thread`, if the entry changes it: a fact outside of runs, or the beginning of a fork."""
    added_ids: Collection[str] = ()
    """Ids of the messages that the first run of a fork adds to the copied ones, if the entry is its FORK_MARKER."""
    ts: int = 0
    """Commit time of the entry in milliseconds since 1970; 0 if it is not known."""

    def with_calls(self, view: ThreadView, call_ids: Iterable[str]) -> FrameContext:
        """Return the context with these calls of the thread too."""
        find = find_call_in(view)
        return replace(self, calls={call_id: find(call_id) for call_id in call_ids})

    def find_call(self, call_id: str) -> KnownCall:
        return self.calls.get(call_id, UNKNOWN_CALL)

    def corrected_by(self, withdrawn: WithdrawnContent) -> FrameContext:
        """Return the context without the content that the agent took back later."""
        snapshot = withdrawn.correct_snapshot(MessagesSnapshot(messages=self.messages))
        calls = {
            call_id: call._replace(arguments="") if call_id in withdrawn.ids else call
            for call_id, call in self.calls.items()
        }
        return replace(self, messages=snapshot.messages, calls=calls)


class ReaderCalls:
    """The calls of the current run that a reader has met."""

    def __init__(self) -> None:
        self._run = ""
        self._known: dict[str, KnownCall] = {}

    def view_seqs(self, batch: Batch, rules: ExposureRules) -> list[int]:
        """Return the seqs at which the folded thread is needed for the calls of this batch. One of them is enough for all its calls."""
        self._enter_run(batch.run)
        begun: set[str] = set()
        seqs: list[int] = []
        needed_at = 0
        for seq, event in _events_with_calls(batch):
            match event:
                case ToolCallStart():
                    begun.add(event.tool_call_id)
                case ToolCallArgs() | ToolCallEnd() if not rules.shows_all_arguments:
                    if self._lacks_arguments(event, begun, rules):
                        needed_at = seq
                case ToolCallResult() if not rules.shows_all_results:
                    # The result of a call may show that it is not the client's.
                    known = self._known.get(event.tool_call_id)
                    needed_at = needed_at if known is not None and not known.is_client else seq
                case RunStarted() | MessagesSnapshot() | RunFinished():
                    seqs.append(seq)
                case _:
                    pass
        return [*seqs, needed_at] if needed_at else seqs

    def read_batch(
        self, batch: Batch, contexts: Mapping[int, FrameContext], withdrawn_ids: Collection[str] = ()
    ) -> FindCall:
        """Return the lookup of the calls in a batch. `contexts` has the thread at the seqs of `view_seqs`."""
        self._enter_run(batch.run)
        arguments: dict[str, list[str]] = {}
        found: dict[str, KnownCall] = {}
        for context in contexts.values():
            found |= context.calls
        for _, event in _events_with_calls(batch):
            if isinstance(event, ToolCallStart):
                arguments[event.tool_call_id] = []
            elif isinstance(event, ToolCallArgs) and event.tool_call_id in arguments:
                arguments[event.tool_call_id].append(event.delta)
        self._known |= {call_id: call._replace(arguments="") for call_id, call in found.items() if call.name}
        whole = {call_id: "".join(parts) for call_id, parts in arguments.items() if call_id not in withdrawn_ids}

        def find(call_id: str) -> KnownCall:
            call = found.get(call_id) or self._known.get(call_id, UNKNOWN_CALL)
            return call._replace(arguments=whole[call_id]) if call_id in whole else call

        return find

    def _enter_run(self, run: str) -> None:
        if run != self._run:
            self._run = run
            self._known.clear()

    def _lacks_arguments(self, event: ToolCallArgs | ToolCallEnd, begun: set[str], rules: ExposureRules) -> bool:
        """Return True if the event's call is not known, or its end needs a summary of arguments of an earlier batch."""
        call = self._known.get(event.tool_call_id)
        if call is None:
            return True
        is_shown = rules.shows_arguments(call.name, is_client=call.is_client)
        return isinstance(event, ToolCallEnd) and not is_shown and event.tool_call_id not in begun


def call_ids_in(lines: Sequence[bytes]) -> set[str]:
    """Return the ids of the calls that stored lines refer to."""
    return {call_id for line in lines if _has_calls(line) for call_id in _call_ids(decode_event(line))}


def message_call_ids(messages: Iterable[Message]) -> set[str]:
    """Return the ids of the calls that messages have or answer."""
    return {call_id for message in messages for call_id in _ids_of_message(message)}


def _events_with_calls(batch: Batch) -> Iterator[tuple[int, Event]]:
    return ((seq, decode_event(line)) for seq, line in enumerate(batch.lines, batch.first) if _has_calls(line))


def _has_calls(line: bytes) -> bool:
    if line.startswith(_CALL_PREFIX):
        return True
    return line.startswith(_OTHER_PREFIXES) and any(member in line for member in _CALL_MEMBERS)


def _call_ids(event: Event) -> Iterable[str]:
    match event:
        case ToolCallStart() | ToolCallArgs() | ToolCallEnd() | ToolCallResult():
            return (event.tool_call_id,)
        case MessagesSnapshot():
            return message_call_ids(event.messages)
        case RunStarted() if event.input is not None:
            return message_call_ids(event.input.messages)
        case RunFinished(outcome=Interrupted(interrupts=interrupts)):
            return [interrupt.tool_call_id for interrupt in interrupts if interrupt.tool_call_id]
        case _:
            return ()


def _ids_of_message(message: Message) -> Iterable[str]:
    match message:
        case AssistantMessage():
            return [call.id for call in message.tool_calls or ()]
        case ToolMessage():
            return [message.tool_call_id]
        case _:
            return ()
