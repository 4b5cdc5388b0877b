"""Corrections of a thread by the graph's own messages: what the graph removes, replaces or never keeps. Pure.

The messages are compared after every step of the graph with those of the step before, so that only changes by the graph count: the
thread may have more (subagents, partial answers of runs that were stopped) and may show less (models whose output is hidden).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from msgspec.structs import replace

from ambient_runner.bridges.langgraph.messages import content_pieces, result_content, text_content
from ambient_runner.bridges.toolkit.json_values import to_json_text, to_text_or_json
from ambient_runner.projections.private_entries import correct_history
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol import events as e

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from ambient_runner.bridges.langgraph.streamed_message import StreamedMessage
    from ambient_runner.bridges.langgraph.streamed_messages import StreamedMessages
    from ambient_runner.bridges.langgraph.tool_call_ids import ToolCallIds

__all__ = ["GraphHistory", "HistoryContext"]


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryContext:
    """Data of the run that its history depends on."""

    messages: Sequence[e.Message]
    """The thread's messages before the run."""
    call_ids: ToolCallIds
    streamed: StreamedMessages
    has_checkpointer: bool
    is_reduced: bool
    """True if the graph adds to its messages; False if each update replaces them, so that they may be only a part of the conversation."""
    merged_ids: Mapping[str, Sequence[str]]
    """Messages that the graph gets as one: their ids by that of the first."""
    attempted: Sequence[str] = ()
    """Messages of nodes that were interrupted in the run before: such a node runs again and streams them again."""


@dataclass(frozen=True, slots=True)
class _Form:
    """The part of a graph's message that clients see."""

    text: str
    calls: str = ""

    @classmethod
    def of(cls, message: BaseMessage) -> _Form:
        """Return the form of a message. It may contain megabytes of images: `_FormCache` encodes it once."""
        if not isinstance(message, AIMessage):
            return cls(to_text_or_json(_content_of(message)))
        return cls(text_content(message), to_json_text(message.tool_calls) if message.tool_calls else "")


class _FormCache:
    """The forms of the graph's messages. A message whose parts are the same objects as before has the same form."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, Any, _Form]] = {}

    def form_of(self, message: BaseMessage) -> _Form:
        graph_id, content = str(message.id), _content_of(message)
        calls = message.tool_calls if isinstance(message, AIMessage) else None
        known = self._known.get(graph_id)
        if known is None or known[0] is not content or known[1] is not calls:
            known = self._known[graph_id] = content, calls, _Form.of(message)
        return known[2]


class GraphHistory:
    """The messages of one run, in the thread and in the graph."""

    def __init__(self, context: HistoryContext) -> None:
        self._context = context
        self._message_ids = context.call_ids.message_ids
        self._transcript = Transcript(context.messages)
        self._initial_ids = frozenset(message.id for message in context.messages)
        self._form_of = _FormCache().form_of
        self._forms: dict[str, _Form] = {}
        """The graph's messages after its last step."""
        self._seen_ids: set[str] = set()
        """Ids of all messages that the graph has had in this run."""
        self._has_output = False
        """True if the graph has added a message of a model or a tool to its conversation."""

    def apply_event(self, event: e.Event) -> None:
        """Apply an event that clients receive."""
        self._transcript.apply(event)

    def add_known(self, messages: Any, *, is_stored: bool = False) -> None:
        """Record messages that the graph receives, or with `is_stored` those it has in its checkpoint."""
        known = _comparable_messages(messages) or ()
        if is_stored and self._context.is_reduced:
            self._has_output = any(isinstance(message, AIMessage | ToolMessage) for message in known)
        for message in known:
            self._forms[str(message.id)] = self._form_of(message)
            self._seen_ids.add(str(message.id))

    def compare_messages(self, messages: Any) -> list[e.Event]:
        """Compare the graph's messages after a step with those before. Return the correction of what it removed or replaced."""
        current = _comparable_messages(messages)
        if current is None or not self._is_conversation(current):
            return []
        forms = {str(message.id): self._form_of(message) for message in current}
        removed = [
            graph_id for graph_id in self._forms if graph_id not in forms and self._may_remove(graph_id, current)
        ]
        removed_ids = [each for graph_id in removed for each in self._with_results(self._thread_ids(graph_id))]
        results = self._context.call_ids.answered_calls(current)
        replaced = list(self._replaced_messages(current, forms, results))
        self._has_output = self._has_output or any(_is_new_output(message, self._seen_ids) for message in current)
        self._seen_ids |= forms.keys()
        self._forms = forms
        return self._build_correction(replaced, removed_ids, self._order_in_graph(current))

    def correct_unkept(self, *, is_resuming: bool) -> list[e.Event]:
        """Return the correction of what the graph streamed and never kept, unless it keeps its answers elsewhere.

        A node that has not ended may still return its messages.
        """
        unkept = [message for message in self._unkept_messages() if not self._context.streamed.is_open(message)]
        removed = [[*message.reasoning_ids, *self._part_ids(message.message_id)] for message in unkept]
        if is_resuming:
            attempted = [message_id for message_id in self._context.attempted if message_id not in self._seen_ids]
            removed += map(self._thread_ids, attempted)
        if not self._has_output:
            return []
        return self._build_correction([], [each for ids in removed for each in self._with_results(ids)])

    def attempted_ids(self) -> tuple[str, ...]:
        """Return the messages that the graph does not have, and that a later run may take back.

        Those are messages without calls of nodes that have not ended, and all others until it is known that the graph keeps its answers.
        """
        is_open, unkept = self._context.streamed.is_open, self._unkept_messages()
        attempted = [
            message.message_id for message in unkept if is_open(message) and message.task and not message.calls
        ]
        if self._has_output:
            return tuple(attempted)
        ended = [message.message_id for message in unkept if not is_open(message)]
        return tuple(dict.fromkeys([*self._context.attempted, *ended, *attempted]))

    def _unkept_messages(self) -> list[StreamedMessage]:
        """Return the agent's own messages of this run that have never been in the graph's conversation."""
        own = [message for message in self._context.streamed if message.subagent_id is None]
        return [message for message in own if not message.native_ids & self._seen_ids]

    def _is_conversation(self, current: Sequence[BaseMessage]) -> bool:
        """Return True if the graph keeps the thread's messages under their ids, and all of them."""
        ids, known = {str(message.id) for message in current}, set(self._forms)
        if not self._context.is_reduced:
            return bool(known) and known <= ids
        if not known or not current or ids & known:
            return True
        # A reducer that gives all messages new ids keeps their contents. A graph that begins anew does not.
        return {self._form_of(message) for message in current}.isdisjoint(self._forms.values())

    def _may_remove(self, graph_id: str, current: Sequence[BaseMessage]) -> bool:
        """Return False for an earlier message that is replaced by a summary which only the graph has, and which it does not store."""
        if self._context.has_checkpointer or not self._initial_ids.intersection(self._thread_ids(graph_id)):
            return True
        return all(
            self._initial_ids.intersection(self._thread_ids(str(message.id)))
            for message in current
            if isinstance(message, HumanMessage | SystemMessage)
        )

    def _replaced_messages(
        self, current: Sequence[BaseMessage], forms: Mapping[str, _Form], results: Mapping[str, str]
    ) -> Iterator[tuple[list[str], e.Message]]:
        """Yield the thread's ids and the new content of every message that the graph has changed, or never had as it was streamed."""
        for message in current:
            graph_id = str(message.id)
            old, streamed = self._forms.get(graph_id), self._context.streamed.get(graph_id)
            if old == forms[graph_id]:
                continue
            if streamed is not None and streamed.message_id != graph_id:
                self._message_ids[graph_id] = streamed.message_id
            match message:
                case AIMessage():
                    yield from self._replaced_answer(message, old, streamed)
                case ToolMessage():
                    yield from self._replaced_result(message, results.get(graph_id, ""), is_changed=old is not None)
                case HumanMessage() if old is not None:
                    yield from self._replaced_user_message(message)
                case _:
                    pass

    def _replaced_answer(
        self, message: AIMessage, old: _Form | None, streamed: StreamedMessage | None
    ) -> Iterator[tuple[list[str], e.Message]]:
        if old is None and streamed is None:
            return
        ids = self._thread_ids(str(message.id))
        ours = [found for name in ids if isinstance(found := self._transcript.find_message(name), e.AssistantMessage)]
        if not ours:
            return
        shown_text = "".join(each.content or "" for each in ours)
        shows_text = streamed.shows_text if streamed else bool(shown_text) or not (old and old.text)
        text = text_content(message) if shows_text else shown_text
        shown_calls = [call for each in ours for call in each.tool_calls or ()]
        calls = self._calls_of(message, shown_calls, streamed)
        if text != shown_text or calls != shown_calls:
            first = replace(ours[0], content=text or None, tool_calls=calls or None)
            pieces = content_pieces(_content_of(message))
            has_reasoning = any(kind in {"reasoning", "summary"} and piece for kind, piece in pieces)
            thoughts = streamed.reasoning_ids if streamed and not has_reasoning else []
            yield [*thoughts, *(each.id for each in ours)], first

    def _calls_of(
        self, message: AIMessage, shown: Sequence[e.ToolCall], streamed: StreamedMessage | None
    ) -> list[e.ToolCall]:
        """Return the calls of a message as clients see them. Those with the same arguments stay as they were streamed.

        A call that clients have not seen is new if this run streamed the message; otherwise it is one that is hidden.
        """
        by_id = {call.id: call for call in shown}
        unreadable = {call["id"] for call in message.invalid_tool_calls}
        calls = [call for call in shown if self._context.call_ids.native_id(call.id) in unreadable]
        for client_id, call in self._context.call_ids.calls_of(message):
            known = by_id.get(client_id)
            if known is not None and known.function.name == call["name"] and _has_arguments(known, call["args"]):
                calls.append(known)
            elif known is not None or (client_id and streamed is not None and streamed.shows_tool(call["name"])):
                function = e.FunctionCall(name=call["name"], arguments=to_json_text(call["args"]))
                calls.append(e.ToolCall(id=client_id, function=function))
        order = [call.id for call in shown]
        return sorted(calls, key=lambda call: order.index(call.id) if call.id in order else len(order))

    def _replaced_result(
        self, message: ToolMessage, call_id: str, *, is_changed: bool
    ) -> Iterator[tuple[list[str], e.Message]]:
        for ours in self._transcript.messages():
            if isinstance(ours, e.ToolMessage) and ours.tool_call_id == call_id:
                content = result_content(_content_of(message))
                if content != ours.content and (is_changed or ours.id not in self._initial_ids):
                    yield [ours.id], replace(ours, content=content)

    def _replaced_user_message(self, message: HumanMessage) -> Iterator[tuple[list[str], e.Message]]:
        ours = self._transcript.find_message(self._message_ids.get(str(message.id), str(message.id)))
        if isinstance(ours, e.UserMessage):
            yield [ours.id], replace(ours, content=result_content(_content_of(message)))

    def _build_correction(
        self, replaced: Sequence[tuple[list[str], e.Message]], removed: Iterable[str], order: Sequence[str] = ()
    ) -> list[e.Event]:
        """Return the correction, if there is any. A message that was streamed in parts becomes one; those in `order` get this order."""
        messages = {message.id: message for _, message in replaced}
        parts = [part_id for ids, message in replaced for part_id in ids if part_id != message.id]
        thread = {message.id: message for message in self._transcript.messages()}
        obsolete = {*removed, *parts} - messages.keys()
        removed_ids = [message_id for message_id in thread if message_id in obsolete]
        changed_ids = [message_id for message_id in thread if message_id in messages]
        ordered = [message_id for message_id in order if message_id not in obsolete]
        if ordered != [message_id for message_id in thread if message_id in ordered]:
            changed_ids = [*(message_id for message_id in changed_ids if message_id not in ordered), *ordered]
        changed = [messages.get(message_id, thread[message_id]) for message_id in changed_ids]
        if not changed and not removed_ids:
            return []
        self._transcript.apply_correction(changed, removed_ids)
        return [correct_history(changed, removed_ids)]

    def _order_in_graph(self, current: Sequence[BaseMessage]) -> list[str]:
        """Return the ids of this run's messages in the thread, in the graph's order."""
        graph_ids = [str(message.id) for message in current]
        added = [
            graph_id for graph_id in graph_ids if self._message_ids.get(graph_id, graph_id) not in self._initial_ids
        ]
        found = dict.fromkeys(each for graph_id in added for each in self._thread_ids(graph_id))
        return [each for each in found if self._transcript.find_message(each) is not None]

    def _thread_ids(self, graph_id: str) -> list[str]:
        """Return the ids of a graph's message in the thread: of its reasoning, its parts, and the messages merged into it."""
        first = self._message_ids.get(graph_id, graph_id)
        streamed = self._context.streamed.get(graph_id)
        thoughts = streamed.reasoning_ids if streamed else self._reasoning_before(first)
        return list(dict.fromkeys([*thoughts, *self._part_ids(first), *self._context.merged_ids.get(first, ())]))

    def _part_ids(self, first: str) -> list[str]:
        """Return the ids under which one message was streamed: `m`, and `m~2` where something came in between."""
        following = (f"{first}~{number}" for number in count(2))
        return [first, *takewhile(lambda part_id: self._transcript.find_message(part_id) is not None, following)]

    def _reasoning_before(self, message_id: str) -> list[str]:
        """Return the reasoning of an earlier run that immediately precedes a message."""
        before: list[str] = []
        for message in self._transcript.messages():
            if message.id == message_id:
                return before
            before = [*before, message.id] if isinstance(message, e.ReasoningMessage) else []
        return []

    def _with_results(self, message_ids: Collection[str]) -> list[str]:
        """Return these messages, and the results of their calls."""
        messages = self._transcript.messages()
        calls = {
            call.id
            for message in messages
            if isinstance(message, e.AssistantMessage) and message.id in message_ids
            for call in message.tool_calls or ()
        }
        results = [
            message.id for message in messages if isinstance(message, e.ToolMessage) and message.tool_call_id in calls
        ]
        return [*message_ids, *results]


def _comparable_messages(messages: Any) -> list[BaseMessage] | None:
    """Return a graph's messages; None if they are not all messages with ids, so that they cannot be compared."""
    if not isinstance(messages, list):
        return None
    items = cast("list[Any]", messages)
    return items if all(isinstance(item, BaseMessage) and item.id for item in items) else None


def _is_new_output(message: BaseMessage, known: Collection[str]) -> bool:
    return isinstance(message, AIMessage | ToolMessage) and message.id not in known


def _content_of(message: BaseMessage) -> Any:
    return message.content  # pyright: ignore[reportUnknownMemberType]


def _has_arguments(call: e.ToolCall, arguments: Any) -> bool:
    try:
        return json.loads(call.function.arguments or "{}") == arguments
    except ValueError:
        return False
