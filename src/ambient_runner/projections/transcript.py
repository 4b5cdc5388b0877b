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

from typing import TYPE_CHECKING, Any, ClassVar, cast

from msgspec.structs import replace

from ambient_runner.projections.safe_metadata import is_summary, without_summary_mark
from ambient_runner.projections.streamed_message import StreamedCall, StreamedMessage, estimate_message_bytes
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

_MAX_SCANNED_MESSAGES = 64
"""Messages that are scanned before the index of all is made."""
_MAX_STREAMED = 1_024
"""Changed messages from which on they are replaced by their values: some milliseconds of work, which must not become more."""


class Transcript:
    """The messages so far. `apply` every event in order; `messages` may be called at any time, also during a run.

    Messages are values, which copies share. The ones that events change are `StreamedMessage`s until somebody reads or copies all of them,
    so a run on a long thread pays for its own messages only.
    """

    __slots__ = (
        "_by_id",
        "_calls",
        "_estimated_bytes",
        "_known_indexes",
        "_last_results",
        "_order",
        "_streamed",
        "removed_ids",
        "withdrawn_ids",
    )

    def __init__(
        self, messages: Iterable[Message] = (), removed_ids: Iterable[str] = (), withdrawn_ids: Iterable[str] = ()
    ) -> None:
        self._order: list[Message | StreamedMessage] = []
        self._by_id: dict[str, Message | StreamedMessage] = {}
        self._calls: dict[str, Message | StreamedMessage] = {}
        """The message of each call, by the call's id."""
        self._streamed: dict[StreamedMessage, dict[str, StreamedCall]] = {}
        """The messages that change, each with its calls by id."""
        self._last_results: dict[str, tuple[Message | StreamedMessage, StreamedMessage, int]] = {}
        """Messages with calls, by their ids, each with its last result and the index of that. Later insertions can only have raised it."""
        self._known_indexes: dict[int, int] = {}
        """Lower bounds of the indexes of messages, by `id` of the object: insertions only raise an index. Empty until a message is searched
        for that is none of the last ones. An entry may be of a message that is gone."""
        self._estimated_bytes = 0
        self.removed_ids = set(removed_ids)
        """Ids of messages that a correction removed: a client that still has one does not add it again."""
        self.withdrawn_ids = set(withdrawn_ids)
        """Ids of messages and tool calls whose streamed content a correction removed or replaced (`withdrawn.py`)."""
        self.add_messages(messages)

    def add_messages(self, messages: Iterable[Message]) -> None:
        """Add messages at the end."""
        added = list(messages)
        self._order += added
        for message in added:  # Without calls for most of them: a thread that is read has thousands.
            self._by_id.setdefault(message.id, message)
            if type(message) is AssistantMessage and message.tool_calls:
                for call in message.tool_calls:
                    self._calls.setdefault(call.id, message)
        self._estimated_bytes += sum(map(estimate_message_bytes, added))

    def apply(self, event: Event) -> None:
        if type(event) is TextMessageContent and event.metadata is None:
            self.append_text(event.message_id, event.delta)
            return
        handle = self._HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event)

    def append_text(self, message_id: str, text: str) -> None:
        """Append text as TEXT_MESSAGE_CONTENT does, for callers that have not decoded the event."""
        item = self._by_id.get(message_id)
        if item is not None and type(_latest(item)) is not ActivityMessage:
            self._change(item).deltas.append(text)

    def messages(self) -> list[Message]:
        return self._settle().copy()

    @property
    def estimated_bytes(self) -> int:
        """Memory that the messages take, about."""
        self._settle()
        return self._estimated_bytes

    def find_message(self, message_id: str) -> Message | None:
        item = self._by_id.get(message_id)
        return item.join_deltas() if isinstance(item, StreamedMessage) else item

    def has_message(self, message_id: str) -> bool:
        return message_id in self._by_id

    def find_call(self, tool_call_id: str) -> ToolCall | None:
        item = self._calls.get(tool_call_id)
        if item is None:
            return None
        if isinstance(item, StreamedMessage):
            return self._streamed[item][tool_call_id].join_deltas()
        return next(call for call in _tool_calls(item) if call.id == tool_call_id)

    def newest_id(self) -> str:
        """Return the id of the last message; empty if there is none."""
        return _latest(self._order[-1]).id if self._order else ""

    @property
    def message_count(self) -> int:
        return len(self._order)

    def all_ids(self) -> set[str]:
        """Return the ids of all messages and tool calls, also of removed messages. None of them may be used for a new one."""
        return {*self._by_id, *self._calls, *self.removed_ids}

    def has_id(self, name: str) -> bool:
        """Return True if `all_ids` has this one."""
        return name in self._by_id or name in self._calls or name in self.removed_ids

    def rewind(self, message_id: str) -> None:
        """Remove every message after this one, all of them for an empty id, none for an unknown id."""
        if not message_id:
            self._replace_all(())
        messages = self.messages()
        item = self._by_id.get(message_id)
        if item is not None:
            self._replace_all(messages[: self._index_of(item) + 1])

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
        """Return an independent transcript, which shares its messages with this one."""
        self._settle()
        copied = Transcript((), self.removed_ids, self.withdrawn_ids)
        copied._order, copied._by_id, copied._calls = self._order.copy(), self._by_id.copy(), self._calls.copy()
        copied._estimated_bytes = self._estimated_bytes
        return copied

    def settle_if_many(self) -> None:
        """Replace the messages that have changed by their values if they are many. Whoever reads all messages then need not do so for all.

        Call it between batches: a message that changes again afterwards costs a little more.
        """
        if len(self._streamed) > _MAX_STREAMED:
            self._settle()

    def _settle(self) -> list[Message]:
        """Replace the messages that have changed by their values. Return all messages."""
        at = len(self._order)
        self._last_results.clear()
        while self._streamed:
            at -= 1  # Most of them are the last ones.
            item = self._order[at]
            if isinstance(item, StreamedMessage):
                message = item.join_deltas()
                self._replace_item(at, message)
                self._estimated_bytes += estimate_message_bytes(message) - item.initial_bytes
                del self._streamed[item]
        return cast("list[Message]", self._order)

    def _change(self, item: Message | StreamedMessage) -> StreamedMessage:
        """Return the message for events that change it."""
        if isinstance(item, StreamedMessage):
            return item
        streamed = StreamedMessage(item, estimate_message_bytes(item))
        self._replace_item(self._index_of(item), streamed)
        self._streamed[streamed] = {}
        for call in streamed.calls:
            if self._calls.get(call.call.id) is streamed:
                self._streamed[streamed].setdefault(call.call.id, call)
        return streamed

    def _change_call(self, call_id: str) -> StreamedCall:
        """Return a known call for events that change it."""
        streamed = self._change(self._calls[call_id])
        streamed.has_changed_calls = True
        return self._streamed[streamed][call_id]

    def _replace_item(self, at: int, new: Message | StreamedMessage) -> None:
        """Replace one of the two forms of a message by the other one."""
        old, self._order[at] = self._order[at], new
        if self._known_indexes.pop(id(old), None) is not None:
            self._known_indexes[id(new)] = at
        message = _latest(new)
        if self._by_id[message.id] is old:
            self._by_id[message.id] = new
        for call in _tool_calls(message):
            if self._calls.get(call.id) is old:
                self._calls[call.id] = new

    def _replace_all(self, messages: Iterable[Message]) -> None:
        self._order.clear()
        self._by_id.clear()
        self._calls.clear()
        self._streamed.clear()
        self._last_results.clear()
        self._known_indexes.clear()
        self._estimated_bytes = 0
        self.add_messages(messages)

    def _insert_message(self, message: Message, at: int | None = None) -> StreamedMessage:
        """Add a message that events may change, at the end or at an index."""
        streamed = StreamedMessage(message)
        self._order.insert(len(self._order) if at is None else at, streamed)
        self._by_id.setdefault(message.id, streamed)
        self._streamed[streamed] = {}
        return streamed

    def _index_of(self, item: Message | StreamedMessage) -> int:
        """Return the index of a message: nearly always one of the last. The others are found by the index they once had."""
        last = len(self._order) - 1
        for at in range(last, max(last - _MAX_SCANNED_MESSAGES, -1), -1):
            if self._order[at] is item:
                return at
        start = self._known_indexes.get(id(item), last)
        for at in range(start, min(start + _MAX_SCANNED_MESSAGES, last)):
            if self._order[at] is item:
                return at
        self._known_indexes = {id(each): at for at, each in enumerate(self._order)}
        return self._known_indexes[id(item)]

    def _apply_run_started(self, event: RunStarted) -> None:
        for message in event.input.messages if event.input else ():
            if message.id not in self._by_id:
                self.add_messages((message,))

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
            self._insert_message(
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
            self._insert_message(
                ReasoningMessage(id=event.message_id, content="", subagent_run_id=event.subagent_run_id)
            )
        self._merge_reasoning_metadata(event)

    def _merge_reasoning_metadata(
        self, event: ReasoningMessageStart | ReasoningMessageContent | ReasoningMessageEnd
    ) -> None:
        """Merge an event's metadata. A message is a summary only if all its text is: every audience would see the rest (`safe.py`)."""
        item = self._by_id.get(event.message_id)
        has_text = item.has_text() if isinstance(item, StreamedMessage) else bool(item and item.content)
        has_unmarked_text = item is not None and has_text and not is_summary(_latest(item))
        self._merge_message_metadata(event.message_id, event.metadata)
        is_unmarked_text = isinstance(event, ReasoningMessageContent) and not is_summary(event)
        if item is not None and (has_unmarked_text or is_unmarked_text):
            streamed = self._change(self._by_id[event.message_id])
            streamed.message = without_summary_mark(streamed.message)

    def _merge_message_metadata(self, message_id: str, metadata: Metadata | None) -> None:
        """Merge an event's metadata into its message. Activity messages only have the metadata of their own events."""
        item = self._by_id.get(message_id)
        if metadata is not None and item is not None and type(_latest(item)) is not ActivityMessage:
            streamed = self._change(item)
            streamed.message = replace(streamed.message, metadata={**(streamed.message.metadata or {}), **metadata})

    def _apply_tool_start(self, event: ToolCallStart) -> None:
        if event.tool_call_id not in self._calls:
            streamed = self._carrier_of(event)
            call = StreamedCall(
                ToolCall(id=event.tool_call_id, function=FunctionCall(name=event.tool_call_name, arguments=""))
            )
            streamed.calls.append(call)
            streamed.has_changed_calls = True
            self._calls[event.tool_call_id] = streamed
            self._streamed[streamed][event.tool_call_id] = call
        else:
            call = self._change_call(event.tool_call_id)
            call.join_deltas()
            call.call = replace(call.call, function=replace(call.call.function, name=event.tool_call_name))
        self._merge_call_metadata(event.tool_call_id, event.metadata)

    def _carrier_of(self, event: ToolCallStart) -> StreamedMessage:
        """Return the assistant message of a new call: the parent, or a new message with the id of the parent or the call."""
        parent = event.parent_message_id
        item = self._by_id.get(parent) if parent else None
        if item is not None and type(_latest(item)) is AssistantMessage:
            return self._change(item)
        message_id = parent if parent and item is None else event.tool_call_id
        owner = None if message_id in self._by_id else event.subagent_run_id
        return self._insert_message(AssistantMessage(id=message_id, subagent_run_id=owner))

    def _apply_tool_args(self, event: ToolCallArgs) -> None:
        if event.tool_call_id in self._calls:
            self._change_call(event.tool_call_id).deltas.append(event.delta)
        self._merge_call_metadata(event.tool_call_id, event.metadata)

    def _apply_tool_end(self, event: ToolCallEnd) -> None:
        self._merge_call_metadata(event.tool_call_id, event.metadata)

    def _merge_call_metadata(self, call_id: str, metadata: Metadata | None) -> None:
        if metadata is not None and call_id in self._calls:
            call = self._change_call(call_id)
            call.call = replace(call.call, metadata={**(call.call.metadata or {}), **metadata})

    def _apply_tool_result(self, event: ToolCallResult) -> None:
        message = ToolMessage(
            id=event.message_id,
            tool_call_id=event.tool_call_id,
            content=event.content,
            subagent_run_id=event.subagent_run_id,
            metadata=event.metadata,
        )
        known = self._calls.get(event.tool_call_id)
        if known is None:
            self._insert_message(message)
            return
        at = self._after_results(known)
        self._last_results[_latest(known).id] = known, self._insert_message(message, at), at

    def _after_results(self, owner: Message | StreamedMessage) -> int:
        """Return the index after the results of a message's calls. It is found from its last one: a message may have thousands."""
        found = self._last_results.get(_latest(owner).id)
        if found is not None and found[0] is owner:
            _, last, at = found
            while self._order[at] is not last:
                at += 1
        else:
            at = self._index_of(owner)
        at += 1
        while at < len(self._order) and type(_latest(self._order[at])) is ToolMessage:
            at += 1
        return at

    def _apply_activity_snapshot(self, event: ActivitySnapshot) -> None:
        item = self._by_id.get(event.message_id)
        old = _latest(item) if item is not None else None
        replaces = event.replace is not False
        if old is not None and not replaces:
            if type(old) is ActivityMessage and item is not None:
                self._change(item).message = replace(old, metadata=_merge_metadata(old.metadata, event.metadata))
            return
        message = ActivityMessage(
            id=event.message_id,
            activity_type=event.activity_type,
            content=event.content,
            subagent_run_id=event.subagent_run_id,
            metadata=_merge_metadata(old.metadata if type(old) is ActivityMessage else None, event.metadata),
        )
        if item is None:
            self._insert_message(message)
        else:
            self._replace_message(self._change(item), message)

    def _replace_message(self, streamed: StreamedMessage, message: Message) -> None:
        for call in streamed.calls:
            self._calls.pop(call.call.id, None)
        streamed.replace_message(message)
        self._streamed[streamed].clear()

    def _apply_activity_delta(self, event: ActivityDelta) -> None:
        item = self._by_id.get(event.message_id)
        old = _latest(item) if item is not None else None
        if item is None or not isinstance(old, ActivityMessage):
            return
        streamed = self._change(item)
        message = replace(old, metadata=_merge_metadata(old.metadata, event.metadata))
        if streamed.try_patch(event.patch):
            message = replace(message, activity_type=event.activity_type)
        streamed.message = message  # As in the client: the metadata is merged, also if the content stays.

    def _apply_encrypted_value(self, event: ReasoningEncryptedValue) -> None:
        if event.subtype == "message":
            item = self._by_id.get(event.entity_id)
            if item is not None and type(_latest(item)) is not ActivityMessage:
                streamed = self._change(item)
                streamed.message = replace(streamed.message, encrypted_value=event.encrypted_value)
        elif event.entity_id in self._calls:
            call = self._change_call(event.entity_id)
            call.call = replace(call.call, encrypted_value=event.encrypted_value)

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


def _latest(item: Message | StreamedMessage) -> Message:
    """Return a message without the deltas that are not joined yet."""
    return item.message if isinstance(item, StreamedMessage) else item


def _tool_calls(message: Message) -> Sequence[ToolCall]:
    return message.tool_calls or () if type(message) is AssistantMessage else ()


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
    calls = _tool_calls(old)
    kept = _tool_calls(new) if new is not None else ()
    is_changed = new is None or old.content != new.content
    return {*([old.id] if is_changed else ()), *(call.id for call in calls if call not in kept)}
