"""The messages of a thread, folded from its events exactly as the official AG-UI client folds them.

The clients 1.0.0 and 0.0.59 (every CopilotKit) agree on all streams whose message ids are unique: a message stands where its
first event came, reasoning and activity messages included; a tool result stands after its assistant message and the results already
there; the messages of RUN_STARTED are appended. They differ only when reasoning is streamed into the id of an activity message, where we
do as 1.0.0 does (nothing). So a client that followed the stream has our order already when MESSAGES_SNAPSHOT comes, and replacing by
id changes nothing: also after a stop or an error, where what was streamed so far is kept. `tests/e2e/test_official_reducer.py` proves it.

Chunks are expanded before they are stored (`protocol/chunks.py`), so there are none here.
A bridge's own MESSAGES_SNAPSHOT is merged by the client's rule, not simply put in place. An empty one is the ledger's marker for "the
snapshot is sent here" and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from ambient_runner.errors import PatchConflict
from ambient_runner.projections.json_patch import apply_within_bounds
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


class _Call:
    """A tool call as it grows."""

    __slots__ = ("call", "deltas")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.deltas: list[str] = []

    def settled(self) -> ToolCall:
        if self.deltas:
            function = self.call.function
            text = function.arguments + "".join(self.deltas)
            self.call = replace(self.call, function=FunctionCall(name=function.name, arguments=text))
            self.deltas.clear()
        return self.call


class _Slot:
    """A message as it grows: the last settled message, and what came since."""

    __slots__ = ("calls", "deltas", "message", "stale")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.deltas: list[str] = []
        self.calls: list[_Call] = []
        self.stale = False
        """Whether a call has changed since the message was settled."""
        if isinstance(message, AssistantMessage) and message.tool_calls:
            self.calls = [_Call(call) for call in message.tool_calls]

    def settled(self) -> Message:
        if self.deltas:
            content = self.message.content
            text = (content if isinstance(content, str) else "") + "".join(self.deltas)
            self.message = replace(self.message, content=text)
            self.deltas.clear()
        if self.stale:
            self.message = replace(self.message, tool_calls=[call.settled() for call in self.calls])
            self.stale = False
        return self.message


class Transcript:
    """The messages so far. `apply` every event in order; `messages` may be asked at any time, also in the middle of a run."""

    __slots__ = ("_by_id", "_calls", "_order")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._order: list[_Slot] = []
        self._by_id: dict[str, _Slot] = {}
        self._calls: dict[str, tuple[_Slot, _Call]] = {}
        for message in messages:
            self._add(message)

    def apply(self, event: Event) -> None:
        if type(event) is TextMessageContent and event.metadata is None:
            self.append(event.message_id, event.delta)
            return
        step = self._STEPS.get(type(event))
        if step is not None:
            step(self, event)

    def append(self, message_id: str, text: str) -> None:
        """What TEXT_MESSAGE_CONTENT does, for those who have not decoded it whole."""
        slot = self._by_id.get(message_id)
        if slot is not None and type(slot.message) is not ActivityMessage:
            slot.deltas.append(text)

    def messages(self) -> list[Message]:
        return [slot.settled() for slot in self._order]

    def message(self, message_id: str) -> Message | None:
        slot = self._by_id.get(message_id)
        return slot.settled() if slot else None

    def call(self, tool_call_id: str) -> ToolCall | None:
        found = self._calls.get(tool_call_id)
        return found[1].settled() if found else None

    def newest(self) -> str:
        """The id of the last message; empty when there is none."""
        return self._order[-1].message.id if self._order else ""

    def ids(self) -> set[str]:
        """The ids of all messages and tool calls: none of them may be used for a new one."""
        return {*self._by_id, *self._calls}

    def rewind(self, message_id: str) -> None:
        """Forget every message after this one, all of them for an empty id; nothing happens if it is unknown."""
        if not message_id:
            self._reset(())
        slot = self._by_id.get(message_id)
        if slot is not None:
            self._reset(self.messages()[: self._index(slot) + 1])

    def restate(self, messages: Sequence[Message], gone: Collection[str] = ()) -> None:
        """These messages are so, in this order; those named in `gone` are no more; every other stays behind the one it followed."""
        told = {message.id for message in messages}
        followers: dict[str | None, list[Message]] = {}
        last: str | None = None
        for message in self.messages():
            if message.id in told:
                last = message.id
            elif message.id not in gone:
                followers.setdefault(last, []).append(message)
        first = followers.pop(None, [])
        # Taken out as they are put back: an id that is told twice does not double what followed it.
        told_and_kept = [one for message in messages for one in (message, *followers.pop(message.id, ()))]
        self._reset([*first, *told_and_kept])

    def copy(self) -> Transcript:
        return Transcript(self.messages())

    def _reset(self, messages: Iterable[Message]) -> None:
        self._order.clear()
        self._by_id.clear()
        self._calls.clear()
        for message in messages:
            self._add(message)

    def _add(self, message: Message, at: int | None = None) -> _Slot:
        slot = _Slot(message)
        self._order.insert(len(self._order) if at is None else at, slot)
        self._by_id.setdefault(message.id, slot)
        for call in slot.calls:
            self._calls.setdefault(call.call.id, (slot, call))
        return slot

    def _index(self, slot: _Slot) -> int:
        return next(at for at in range(len(self._order) - 1, -1, -1) if self._order[at] is slot)

    def _run_started(self, event: RunStarted) -> None:
        for message in event.input.messages if event.input else ():
            if message.id not in self._by_id:
                self._add(message)

    def _snapshot(self, event: MessagesSnapshot) -> None:
        """A bridge's own snapshot, merged as the client does: known messages change in place, new ones follow, others go.

        Reasoning and activities stay when the snapshot has none of their kind: most agents leave them out.
        """
        if not event.messages:
            return
        named = {message.id: message for message in event.messages}
        told = {type(message) for message in event.messages}
        kept = [named.get(old.id, old) for old in self.messages() if old.id in named or _client_only(old, told)]
        known = {message.id for message in kept}
        self._reset([*kept, *(message for message in event.messages if message.id not in known)])

    def _text_start(self, event: TextMessageStart) -> None:
        if event.message_id not in self._by_id:
            make = _TEXT_MESSAGES[event.role or "assistant"]
            self._add(make(id=event.message_id, content="", name=event.name, subagent_run_id=event.subagent_run_id))
        self._annotate(event.message_id, event.metadata)

    def _content(self, event: TextMessageContent | ReasoningMessageContent) -> None:
        self.append(event.message_id, event.delta)
        self._annotate(event.message_id, event.metadata)

    def _end(self, event: TextMessageEnd | ReasoningMessageEnd) -> None:
        self._annotate(event.message_id, event.metadata)

    def _reasoning_start(self, event: ReasoningMessageStart) -> None:
        if event.message_id not in self._by_id:
            self._add(ReasoningMessage(id=event.message_id, content="", subagent_run_id=event.subagent_run_id))
        self._annotate(event.message_id, event.metadata)

    def _annotate(self, message_id: str, metadata: Metadata | None) -> None:
        """Fold an event's metadata into its message; activity messages have only that of their own events."""
        slot = self._by_id.get(message_id)
        if metadata is not None and slot is not None and type(slot.message) is not ActivityMessage:
            slot.message = replace(slot.message, metadata={**(slot.message.metadata or {}), **metadata})

    def _tool_start(self, event: ToolCallStart) -> None:
        known = self._calls.get(event.tool_call_id)
        if known is None:
            slot = self._host(event)
            call = _Call(
                ToolCall(id=event.tool_call_id, function=FunctionCall(name=event.tool_call_name, arguments=""))
            )
            slot.calls.append(call)
            self._calls[event.tool_call_id] = (slot, call)
        else:
            slot, call = known
            call.settled()
            call.call = replace(call.call, function=replace(call.call.function, name=event.tool_call_name))
        slot.stale = True
        self._annotate_call(event.tool_call_id, event.metadata)

    def _host(self, event: ToolCallStart) -> _Slot:
        """The assistant message a new call belongs to: the parent, or a new message named after the parent or the call."""
        parent = event.parent_message_id
        slot = self._by_id.get(parent) if parent else None
        if slot is not None and type(slot.message) is AssistantMessage:
            return slot
        message_id = parent if parent and slot is None else event.tool_call_id
        owner = None if message_id in self._by_id else event.subagent_run_id
        return self._add(AssistantMessage(id=message_id, subagent_run_id=owner))

    def _tool_args(self, event: ToolCallArgs) -> None:
        known = self._calls.get(event.tool_call_id)
        if known is not None:
            slot, call = known
            call.deltas.append(event.delta)
            slot.stale = True
        self._annotate_call(event.tool_call_id, event.metadata)

    def _tool_end(self, event: ToolCallEnd) -> None:
        self._annotate_call(event.tool_call_id, event.metadata)

    def _annotate_call(self, call_id: str, metadata: Metadata | None) -> None:
        known = self._calls.get(call_id)
        if metadata is not None and known is not None:
            slot, call = known
            call.call = replace(call.call, metadata={**(call.call.metadata or {}), **metadata})
            slot.stale = True

    def _tool_result(self, event: ToolCallResult) -> None:
        message = ToolMessage(
            id=event.message_id,
            tool_call_id=event.tool_call_id,
            content=event.content,
            subagent_run_id=event.subagent_run_id,
            metadata=event.metadata,
        )
        known = self._calls.get(event.tool_call_id)
        self._add(message, at=self._after_results(known[0]) if known else None)

    def _after_results(self, owner: _Slot) -> int:
        at = self._index(owner) + 1
        while at < len(self._order) and type(self._order[at].message) is ToolMessage:
            at += 1
        return at

    def _activity_snapshot(self, event: ActivitySnapshot) -> None:
        slot = self._by_id.get(event.message_id)
        old = slot.message if slot is not None else None
        replaces = event.replace is not False
        if old is not None and not replaces:
            if type(old) is ActivityMessage and slot is not None:
                slot.message = replace(old, metadata=_merged(old.metadata, event.metadata))
            return
        message = ActivityMessage(
            id=event.message_id,
            activity_type=event.activity_type,
            content=event.content,
            subagent_run_id=event.subagent_run_id,
            metadata=_merged(old.metadata if type(old) is ActivityMessage else None, event.metadata),
        )
        if slot is None:
            self._add(message)
        else:
            self._become(slot, message)

    def _become(self, slot: _Slot, message: Message) -> None:
        for call in slot.calls:
            self._calls.pop(call.call.id, None)
        slot.message, slot.stale = message, False
        slot.calls.clear()
        slot.deltas.clear()

    def _activity_delta(self, event: ActivityDelta) -> None:
        slot = self._by_id.get(event.message_id)
        if slot is None or not isinstance(slot.message, ActivityMessage):
            return
        message = replace(slot.message, metadata=_merged(slot.message.metadata, event.metadata))
        try:
            content = apply_within_bounds(message.content, event.patch)
        except PatchConflict:
            content = None  # as the client does: the metadata counts, the content stays
        if isinstance(content, dict):
            message = replace(message, content=content, activity_type=event.activity_type)
        slot.message = message

    def _encrypted(self, event: ReasoningEncryptedValue) -> None:
        if event.subtype == "message":
            slot = self._by_id.get(event.entity_id)
            if slot is not None and type(slot.message) is not ActivityMessage:
                slot.message = replace(slot.message, encrypted_value=event.encrypted_value)
        elif event.entity_id in self._calls:
            slot, call = self._calls[event.entity_id]
            call.call = replace(call.call, encrypted_value=event.encrypted_value)
            slot.stale = True

    _STEPS: ClassVar[dict[type[Event], Callable[[Transcript, Any], None]]] = {
        RunStarted: _run_started,
        MessagesSnapshot: _snapshot,
        TextMessageStart: _text_start,
        TextMessageContent: _content,
        TextMessageEnd: _end,
        ReasoningMessageStart: _reasoning_start,
        ReasoningMessageContent: _content,
        ReasoningMessageEnd: _end,
        ToolCallStart: _tool_start,
        ToolCallArgs: _tool_args,
        ToolCallEnd: _tool_end,
        ToolCallResult: _tool_result,
        ActivitySnapshot: _activity_snapshot,
        ActivityDelta: _activity_delta,
        ReasoningEncryptedValue: _encrypted,
    }


def _client_only(message: Message, told: set[type[Message]]) -> bool:
    return isinstance(message, ActivityMessage | ReasoningMessage) and type(message) not in told


def _merged(old: Metadata | None, new: Metadata | None) -> Metadata | None:
    return old if new is None else {**(old or {}), **new}


_TEXT_MESSAGES: dict[TextRole, Callable[..., Message]] = {
    "developer": DeveloperMessage,
    "system": SystemMessage,
    "assistant": AssistantMessage,
    "user": UserMessage,
}
