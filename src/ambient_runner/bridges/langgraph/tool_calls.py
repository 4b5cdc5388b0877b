"""The tool calls of a run as events: their arguments while they are streamed, and the results that answer them. Pure.

Several calls may share the graph's id, a resumed node repeats its calls, and some calls are hidden. `translate.py` decides which message a
call belongs to; `tool_call_ids.py` maps the ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.langgraph.emitted_items import EmittedItems
from ambient_runner.bridges.langgraph.messages import is_json_object, result_content
from ambient_runner.bridges.toolkit.json_values import parse_json_or_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.messages import ToolMessage

    from ambient_runner.bridges.langgraph.predict_state import Predictions
    from ambient_runner.bridges.langgraph.streamed_message import StreamedMessage, StreamedToolCall
    from ambient_runner.bridges.langgraph.subagents import Namespace, Subagents
    from ambient_runner.bridges.langgraph.tool_call_ids import ToolCallIds
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event

__all__ = ["ToolCalls"]

_NOT_JSON = "The arguments of this call are not a JSON object, so it was not executed."


@dataclass(frozen=True, slots=True, eq=False)
class _OpenCall:
    """A call of this run that has no result."""

    namespace: Namespace
    message: StreamedMessage
    call: StreamedToolCall


class ToolCalls:
    """The calls of one run. `earlier_calls` are those of earlier runs that may be answered now: the tool's name by the call's id.

    Calls that nodes emit by themselves are in `emitted`. A method's `stored` is the graph's conversation.
    """

    def __init__(
        self,
        composer: Composer,
        subagents: Subagents,
        call_ids: ToolCallIds,
        predictions: Predictions,
        earlier_calls: Mapping[str, str],
    ) -> None:
        self._composer = composer
        self._subagents = subagents
        self._call_ids = call_ids
        self._predictions = predictions
        self._earlier_calls = dict(earlier_calls)
        self._repeated_calls: set[str] = set()
        self._hidden_calls: set[str] = set()
        self._open_calls: dict[str, list[_OpenCall]] = {}
        self.emitted = EmittedItems(composer, call_ids, self._earlier_calls)
        for call_id in earlier_calls:
            composer.continue_tool_call(call_id)

    def pending_tools(self, stored: Any) -> dict[str, str]:
        """Return the tools of the calls without a result: of the graph's conversation, also of earlier runs, and emitted ones."""
        tools: dict[str, str] = {call_id: call["name"] for call_id, call in self._unanswered_calls(stored)}
        return tools | self.emitted.pending_tools()

    def pending_calls(self, stored: Any) -> list[tuple[str, str, Any]]:
        """Return the calls without a result: id, name and arguments. Those of this run first, then those of the graph's conversation."""
        streamed = [open_call.call for open_call in chain.from_iterable(self._open_calls.values())]
        own = {call.client_id: (call.client_id, call.name, parse_json_or_text(call.arguments)) for call in streamed}
        others = [(call_id, call["name"], call["args"]) for call_id, call in self._unanswered_calls(stored)]
        return [*own.values(), *(call for call in others if call[0] not in own)]

    def results_of_unreadable_calls(self, stored: Any) -> list[Event]:
        """Return error results for calls the SDK skipped because it cannot read their arguments. It reads more than JSON."""
        unanswered = {call_id for call_id, _ in self._unanswered_calls(stored)}
        return [
            event
            for open_call in chain.from_iterable(self._open_calls.values())
            if open_call.call.client_id not in unanswered and not is_json_object(open_call.call.arguments)
            for event in open_call.message.composer.tool_result(open_call.call.client_id, _NOT_JSON, is_error=True)
        ]

    def add_arguments(
        self,
        namespace: Namespace,
        message: StreamedMessage,
        call: StreamedToolCall,
        delta: str,
        mappings: Sequence[Mapping[str, str]],
        *,
        is_resuming: bool,
    ) -> list[Event]:
        """Begin or continue a call. Its arguments may be predicted state (`mappings`), also if the call is hidden."""
        if not message.shows_call(call):
            return self._predict_hidden_call(call, mappings)
        events: list[Event] = []
        if not call.client_id and not self._reuse_client_id(message, call, is_resuming=is_resuming):
            call.client_id = self._call_ids.allocate_client_id(message.message_id, call.id)
            self._open_calls.setdefault(call.id, []).append(_OpenCall(namespace, message, call))
            events += self._predictions.start_call(call.client_id, call.name, mappings)
            events += message.composer.tool_start(
                call.client_id, call.name, message.subagent_id, message_id=message.message_id
            )
        return [
            *events,
            *message.composer.tool_args(call.client_id, delta),
            *self._predictions.add_arguments(call.client_id, delta),
        ]

    def complete_arguments(self, message: StreamedMessage) -> list[Event]:
        """Return the state that the arguments of a message's calls predict. They are complete."""
        events: list[Event] = []
        for call in message.calls.values():
            events += self._predictions.add_arguments(call.client_id or call.id, "", complete=True)
        return events

    def add_result(self, namespace: Namespace, result: ToolMessage) -> list[Event]:
        if result.tool_call_id in self._hidden_calls:
            self._predictions.finish_call(result.tool_call_id)
            return []
        open_call = self._find_open_call(namespace, result.tool_call_id)
        call_id = open_call.call.client_id if open_call else self._earlier_call_id(result.tool_call_id)
        if call_id is None:
            return []
        if open_call:
            self._open_calls[open_call.call.id].remove(open_call)
        self._earlier_calls.pop(call_id, None)
        self._predictions.finish_call(call_id)
        caller = open_call.message if open_call else None
        return [
            *(self._subagents.enter_namespace(namespace) if caller is None else []),
            *(caller.composer if caller else self._composer).tool_result(
                call_id,
                result_content(cast("Any", result.content)),
                name=result.name,
                subagent_id=self._subagents.subagent_of(namespace) if caller is None else caller.subagent_id,
                is_error=result.status == "error",
            ),
        ]

    def is_waiting_for(self, result: ToolMessage) -> bool:
        """Return True if a call of this run or of an earlier one has no result yet, and this one answers it."""
        native_id = result.tool_call_id
        return self._find_open_call((), native_id) is not None or bool(self._earlier_call_ids(native_id))

    def find_client_id(self, namespace: Namespace, native_id: str) -> str:
        """Return the id for clients of the call that a node in the namespace executes."""
        open_call = self._find_open_call(namespace, native_id)
        return open_call.call.client_id if open_call else self._call_ids.latest_client_id(native_id)

    def _unanswered_calls(self, stored: Any) -> list[tuple[str, Any]]:
        return list(self._call_ids.read_stored(stored).unanswered)

    def _predict_hidden_call(self, call: StreamedToolCall, mappings: Sequence[Mapping[str, str]]) -> list[Event]:
        if call.id in self._hidden_calls:
            return self._predictions.add_arguments(call.id, call.pieces[-1])
        self._hidden_calls.add(call.id)
        self._predictions.start_call(call.id, call.name, mappings)
        return self._predictions.add_arguments(call.id, call.arguments)

    def _reuse_client_id(self, message: StreamedMessage, call: StreamedToolCall, *, is_resuming: bool) -> bool:
        """Give the call the id that clients know, if a resumed node repeats it or the node emitted it before. Return False if it is new."""
        emitted_id = self.emitted.client_id(call.id)
        if emitted_id is not None:
            call.client_id = emitted_id
            self._call_ids.record_call(message.message_id, emitted_id)
            return True
        for client_id, name in reversed(self._earlier_calls.items()) if is_resuming else ():
            is_same = name == call.name and self._call_ids.native_id(client_id) == call.id
            if is_same and client_id not in self._repeated_calls:
                call.client_id = client_id
                self._repeated_calls.add(client_id)
                self._call_ids.record_call(message.message_id, client_id)
                return True
        return False

    def _find_open_call(self, namespace: Namespace, native_id: str) -> _OpenCall | None:
        """Return the call of this run that a result answers: of the newest message in the namespace that has one, else of the newest."""
        candidates = self._open_calls.get(native_id, [])
        nearest = [open_call for open_call in candidates if open_call.namespace == namespace] or candidates
        return next((open_call for open_call in nearest if open_call.message is nearest[-1].message), None)

    def _earlier_call_id(self, native_id: str) -> str | None:
        """Return the id under which clients await a result of an earlier run, or a new id for an unknown call; None if they have it."""
        waiting = self._earlier_call_ids(native_id)
        if waiting:
            return waiting[-1]
        if self._call_ids.has_native_id(native_id):
            return None
        return self._call_ids.allocate_client_id("", native_id)

    def _earlier_call_ids(self, native_id: str) -> list[str]:
        return [client_id for client_id in self._earlier_calls if self._call_ids.native_id(client_id) == native_id]
