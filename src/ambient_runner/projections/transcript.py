"""The messages of a thread, folded from its events exactly as the official AG-UI client folds them.

The clients 1.0.0 and 0.0.59 (every CopilotKit) agree on all streams whose message ids are unique: a message is placed where its
first event came, reasoning and activity messages included; a tool result is placed after its assistant message and the results already
there; the messages of RUN_STARTED are appended. They differ only if reasoning is streamed into the id of an activity message, where we
follow 1.0.0 and ignore it. So a client that followed the stream already has our order when MESSAGES_SNAPSHOT comes, and replacing by
id changes nothing: also after a stop or an error, where the streamed part stays. `tests/e2e/test_official_reducer.py` proves it.

Chunks are expanded before they are stored (`protocol/chunks.py`), so there are none here.
A bridge's own MESSAGES_SNAPSHOT is merged by the client's rule and does not replace the transcript. An empty one is the ledger's marker
for a snapshot to be folded on read, and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from ambient_runner.errors import PatchConflict
from ambient_runner.projections.json_patch import apply_bounded_patch
from ambient_runner.projections.safe_metadata import is_summary, without_summary_mark
from ambient_runner.protocol.events import (
    ActivityDelta,
    ActivityMessage,
    ActivitySnapshot,
    AssistantMessage,
    DeveloperMessage,
    FunctionCall,
    MessagesSnapshot,
    ReasoningEncryptedValue,
    ReasoningMessage,
    ReasoningMessageContent,
    ReasoningMessageEnd,
    ReasoningMessageStart,
    RunStarted,
    SystemMessage,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
    ToolCall,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallResult,
    ToolCallStart,
    ToolMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from ambient_runner.protocol.events import Event, Message, Metadata, TextRole

__all__ = ["Transcript"]


class _GrowingCall:
    """A tool call and the argument deltas not joined yet."""

    __slots__ = ("call", "deltas")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.deltas: list[str] = []

    def join_deltas(self) -> ToolCall:
        if self.deltas:
            function = self.call.function
            text = function.arguments + "".join(self.deltas)
            self.call = replace(self.call, function=FunctionCall(name=function.name, arguments=text))
            self.deltas.clear()
        return self.call


class _GrowingMessage:
    """A message, and the deltas and calls that came since it was last joined."""

    __slots__ = ("calls", "deltas", "has_changed_calls", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.deltas: list[str] = []
        self.calls: list[_GrowingCall] = []
        self.has_changed_calls = False
        """True if a call has changed since the message was last joined."""
        if isinstance(message, AssistantMessage) and message.tool_calls:
            self.calls = [_GrowingCall(call) for call in message.tool_calls]

    def has_text(self) -> bool:
        return bool(self.deltas or self.message.content)

    def join_deltas(self) -> Message:
        if self.deltas:
            content = self.message.content
            text = (content if isinstance(content, str) else "") + "".join(self.deltas)
            self.message = replace(self.message, content=text)
            self.deltas.clear()
        if self.has_changed_calls:
            self.message = replace(self.message, tool_calls=[call.join_deltas() for call in self.calls])
            self.has_changed_calls = False
        return self.message


class Transcript:
    """The messages so far. `apply` every event in order; `messages` may be called at any time, also during a run."""

    __slots__ = ("_by_id", "_calls", "_order", "removed_ids", "withdrawn_ids")

    def __init__(
        self, messages: Iterable[Message] = (), removed_ids: Iterable[str] = (), withdrawn_ids: Iterable[str] = ()
    ) -> None:
        self._order: list[_GrowingMessage] = []
        self._by_id: dict[str, _GrowingMessage] = {}
        self._calls: dict[str, tuple[_GrowingMessage, _GrowingCall]] = {}
        self.removed_ids = set(removed_ids)
        """Ids of messages that a correction removed: a client that still has one does not add it again."""
        self.withdrawn_ids = set(withdrawn_ids)
        """Ids of messages and tool calls whose streamed content a correction removed or replaced (`withdrawn.py`)."""
        for message in messages:
            self._add_message(message)

    def apply(self, event: Event) -> None:
        if type(event) is TextMessageContent and event.metadata is None:
            self.append_text(event.message_id, event.delta)
            return
        handle = self._HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event)

    def append_text(self, message_id: str, text: str) -> None:
        """Append text as TEXT_MESSAGE_CONTENT does, for callers that have not decoded the event."""
        slot = self._by_id.get(message_id)
        if slot is not None and type(slot.message) is not ActivityMessage:
            slot.deltas.append(text)

    def messages(self) -> list[Message]:
        return [slot.join_deltas() for slot in self._order]

    def find_message(self, message_id: str) -> Message | None:
        slot = self._by_id.get(message_id)
        return slot.join_deltas() if slot else None

    def has_message(self, message_id: str) -> bool:
        return message_id in self._by_id

    def find_call(self, tool_call_id: str) -> ToolCall | None:
        found = self._calls.get(tool_call_id)
        return found[1].join_deltas() if found else None

    def newest_id(self) -> str:
        """Return the id of the last message; empty if there is none."""
        return self._order[-1].message.id if self._order else ""

    def all_ids(self) -> set[str]:
        """Return the ids of all messages and tool calls, also of removed messages. None of them may be used for a new one."""
        return {*self._by_id, *self._calls, *self.removed_ids}

    def rewind(self, message_id: str) -> None:
        """Remove every message after this one, all of them for an empty id, none for an unknown id."""
        if not message_id:
            self._replace_all(())
        slot = self._by_id.get(message_id)
        if slot is not None:
            self._replace_all(self.messages()[: self._index_of(slot) + 1])

    def apply_correction(self, messages: Sequence[Message], removed_ids: Collection[str] = ()) -> None:
        """Apply corrected messages, in their order. Those in `removed_ids` go; all others stay behind the message they followed."""
        corrected = {message.id: message for message in messages}
        followers: dict[str | None, list[Message]] = {}
        last: str | None = None
        for message in self.messages():
            if message.id in corrected:
                last = message.id
                self.withdrawn_ids |= _withdrawn_ids(message, corrected[message.id])
            elif message.id not in removed_ids:
                followers.setdefault(last, []).append(message)
            else:
                self.withdrawn_ids |= _withdrawn_ids(message, None)
        leading = followers.pop(None, [])
        # Popped as they are put back: an id that occurs twice does not duplicate its followers.
        following = [each for message in messages for each in (message, *followers.pop(message.id, ()))]
        self._replace_all([*leading, *following])
        self.removed_ids.update(removed_ids)

    def copy(self) -> Transcript:
        return Transcript(self.messages(), self.removed_ids, self.withdrawn_ids)

    def _replace_all(self, messages: Iterable[Message]) -> None:
        self._order.clear()
        self._by_id.clear()
        self._calls.clear()
        for message in messages:
            self._add_message(message)

    def _add_message(self, message: Message, at: int | None = None) -> _GrowingMessage:
        slot = _GrowingMessage(message)
        self._order.insert(len(self._order) if at is None else at, slot)
        self._by_id.setdefault(message.id, slot)
        for call in slot.calls:
            self._calls.setdefault(call.call.id, (slot, call))
        return slot

    def _index_of(self, slot: _GrowingMessage) -> int:
        return next(at for at in range(len(self._order) - 1, -1, -1) if self._order[at] is slot)

    def _apply_run_started(self, event: RunStarted) -> None:
        for message in event.input.messages if event.input else ():
            if message.id not in self._by_id:
                self._add_message(message)

    def _merge_snapshot(self, event: MessagesSnapshot) -> None:
        """Merge a bridge's own snapshot as the client does: known messages change in place, new ones follow, others go.

        Reasoning and activities stay if the snapshot has none of their kind: most agents leave them out.
        """
        if not event.messages:
            return
        named = {message.id: message for message in event.messages}
        kinds = {type(message) for message in event.messages}
        merged = [
            named.get(old.id, old) for old in self.messages() if old.id in named or _survives_snapshot(old, kinds)
        ]
        known = {message.id for message in merged}
        self._replace_all([*merged, *(message for message in event.messages if message.id not in known)])

    def _apply_text_start(self, event: TextMessageStart) -> None:
        if event.message_id not in self._by_id:
            make = _TEXT_MESSAGES[event.role or "assistant"]
            self._add_message(
                make(id=event.message_id, content="", name=event.name, subagent_run_id=event.subagent_run_id)
            )
        self._merge_message_metadata(event.message_id, event.metadata)

    def _apply_text_content(self, event: TextMessageContent) -> None:
        self.append_text(event.message_id, event.delta)
        self._merge_message_metadata(event.message_id, event.metadata)

    def _apply_text_end(self, event: TextMessageEnd) -> None:
        self._merge_message_metadata(event.message_id, event.metadata)

    def _apply_reasoning_content(self, event: ReasoningMessageContent) -> None:
        self._merge_reasoning_metadata(event)
        self.append_text(event.message_id, event.delta)

    def _apply_reasoning_start(self, event: ReasoningMessageStart) -> None:
        if event.message_id not in self._by_id:
            self._add_message(ReasoningMessage(id=event.message_id, content="", subagent_run_id=event.subagent_run_id))
        self._merge_reasoning_metadata(event)

    def _merge_reasoning_metadata(
        self, event: ReasoningMessageStart | ReasoningMessageContent | ReasoningMessageEnd
    ) -> None:
        """Merge an event's metadata. A message is a summary only if all its text is: every audience would see the rest (`safe.py`)."""
        slot = self._by_id.get(event.message_id)
        has_unmarked_text = slot is not None and slot.has_text() and not is_summary(slot.message)
        self._merge_message_metadata(event.message_id, event.metadata)
        is_unmarked_text = isinstance(event, ReasoningMessageContent) and not is_summary(event)
        if slot is not None and (has_unmarked_text or is_unmarked_text):
            slot.message = without_summary_mark(slot.message)

    def _merge_message_metadata(self, message_id: str, metadata: Metadata | None) -> None:
        """Merge an event's metadata into its message. Activity messages only have the metadata of their own events."""
        slot = self._by_id.get(message_id)
        if metadata is not None and slot is not None and type(slot.message) is not ActivityMessage:
            slot.message = replace(slot.message, metadata={**(slot.message.metadata or {}), **metadata})

    def _apply_tool_start(self, event: ToolCallStart) -> None:
        known = self._calls.get(event.tool_call_id)
        if known is None:
            slot = self._carrier_of(event)
            call = _GrowingCall(
                ToolCall(id=event.tool_call_id, function=FunctionCall(name=event.tool_call_name, arguments=""))
            )
            slot.calls.append(call)
            self._calls[event.tool_call_id] = (slot, call)
        else:
            slot, call = known
            call.join_deltas()
            call.call = replace(call.call, function=replace(call.call.function, name=event.tool_call_name))
        slot.has_changed_calls = True
        self._merge_call_metadata(event.tool_call_id, event.metadata)

    def _carrier_of(self, event: ToolCallStart) -> _GrowingMessage:
        """Return the assistant message of a new call: the parent, or a new message with the id of the parent or the call."""
        parent = event.parent_message_id
        slot = self._by_id.get(parent) if parent else None
        if slot is not None and type(slot.message) is AssistantMessage:
            return slot
        message_id = parent if parent and slot is None else event.tool_call_id
        owner = None if message_id in self._by_id else event.subagent_run_id
        return self._add_message(AssistantMessage(id=message_id, subagent_run_id=owner))

    def _apply_tool_args(self, event: ToolCallArgs) -> None:
        known = self._calls.get(event.tool_call_id)
        if known is not None:
            slot, call = known
            call.deltas.append(event.delta)
            slot.has_changed_calls = True
        self._merge_call_metadata(event.tool_call_id, event.metadata)

    def _apply_tool_end(self, event: ToolCallEnd) -> None:
        self._merge_call_metadata(event.tool_call_id, event.metadata)

    def _merge_call_metadata(self, call_id: str, metadata: Metadata | None) -> None:
        known = self._calls.get(call_id)
        if metadata is not None and known is not None:
            slot, call = known
            call.call = replace(call.call, metadata={**(call.call.metadata or {}), **metadata})
            slot.has_changed_calls = True

    def _apply_tool_result(self, event: ToolCallResult) -> None:
        message = ToolMessage(
            id=event.message_id,
            tool_call_id=event.tool_call_id,
            content=event.content,
            subagent_run_id=event.subagent_run_id,
            metadata=event.metadata,
        )
        known = self._calls.get(event.tool_call_id)
        self._add_message(message, at=self._after_results(known[0]) if known else None)

    def _after_results(self, owner: _GrowingMessage) -> int:
        at = self._index_of(owner) + 1
        while at < len(self._order) and type(self._order[at].message) is ToolMessage:
            at += 1
        return at

    def _apply_activity_snapshot(self, event: ActivitySnapshot) -> None:
        slot = self._by_id.get(event.message_id)
        old = slot.message if slot is not None else None
        replaces = event.replace is not False
        if old is not None and not replaces:
            if type(old) is ActivityMessage and slot is not None:
                slot.message = replace(old, metadata=_merge_metadata(old.metadata, event.metadata))
            return
        message = ActivityMessage(
            id=event.message_id,
            activity_type=event.activity_type,
            content=event.content,
            subagent_run_id=event.subagent_run_id,
            metadata=_merge_metadata(old.metadata if type(old) is ActivityMessage else None, event.metadata),
        )
        if slot is None:
            self._add_message(message)
        else:
            self._replace_message(slot, message)

    def _replace_message(self, slot: _GrowingMessage, message: Message) -> None:
        for call in slot.calls:
            self._calls.pop(call.call.id, None)
        slot.message, slot.has_changed_calls = message, False
        slot.calls.clear()
        slot.deltas.clear()

    def _apply_activity_delta(self, event: ActivityDelta) -> None:
        slot = self._by_id.get(event.message_id)
        if slot is None or not isinstance(slot.message, ActivityMessage):
            return
        message = replace(slot.message, metadata=_merge_metadata(slot.message.metadata, event.metadata))
        try:
            content = apply_bounded_patch(message.content, event.patch)
        except PatchConflict:
            content = None  # As in the client: the metadata is merged, the content stays.
        if isinstance(content, dict):
            message = replace(message, content=content, activity_type=event.activity_type)
        slot.message = message

    def _apply_encrypted_value(self, event: ReasoningEncryptedValue) -> None:
        if event.subtype == "message":
            slot = self._by_id.get(event.entity_id)
            if slot is not None and type(slot.message) is not ActivityMessage:
                slot.message = replace(slot.message, encrypted_value=event.encrypted_value)
        elif event.entity_id in self._calls:
            slot, call = self._calls[event.entity_id]
            call.call = replace(call.call, encrypted_value=event.encrypted_value)
            slot.has_changed_calls = True

    _HANDLERS: ClassVar[dict[type[Event], Callable[[Transcript, Any], None]]] = {
        RunStarted: _apply_run_started,
        MessagesSnapshot: _merge_snapshot,
        TextMessageStart: _apply_text_start,
        TextMessageContent: _apply_text_content,
        TextMessageEnd: _apply_text_end,
        ReasoningMessageStart: _apply_reasoning_start,
        ReasoningMessageContent: _apply_reasoning_content,
        ReasoningMessageEnd: _merge_reasoning_metadata,
        ToolCallStart: _apply_tool_start,
        ToolCallArgs: _apply_tool_args,
        ToolCallEnd: _apply_tool_end,
        ToolCallResult: _apply_tool_result,
        ActivitySnapshot: _apply_activity_snapshot,
        ActivityDelta: _apply_activity_delta,
        ReasoningEncryptedValue: _apply_encrypted_value,
    }


def _survives_snapshot(message: Message, kinds: set[type[Message]]) -> bool:
    return isinstance(message, ActivityMessage | ReasoningMessage) and type(message) not in kinds


def _merge_metadata(old: Metadata | None, new: Metadata | None) -> Metadata | None:
    return old if new is None else {**(old or {}), **new}


_TEXT_MESSAGES: dict[TextRole, Callable[..., Message]] = {
    "developer": DeveloperMessage,
    "system": SystemMessage,
    "assistant": AssistantMessage,
    "user": UserMessage,
}


def _withdrawn_ids(old: Message, new: Message | None) -> set[str]:
    """Return the ids of what a correction takes back of a message: its own if its content changes or goes, and those of its calls."""
    calls = old.tool_calls or [] if isinstance(old, AssistantMessage) else []
    kept = new.tool_calls or [] if isinstance(new, AssistantMessage) else []
    is_changed = new is None or old.content != new.content
    return {*([old.id] if is_changed else ()), *(call.id for call in calls if call not in kept)}
