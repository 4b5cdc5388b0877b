"""Messages and tool calls that the nodes of a run emit by themselves, before they return them or without (`copilotkit.py`). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.bridges.langgraph.messages import text_content

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage

    from ambient_runner.bridges.langgraph.copilotkit import EmittedToolCall
    from ambient_runner.bridges.langgraph.streamed_message import StreamedMessage
    from ambient_runner.bridges.langgraph.tool_call_ids import ToolCallIds
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event
    from ambient_runner.protocol.open_items import SubagentId

__all__ = ["EmittedItems"]


class EmittedItems:
    """The emitted items of one run. `earlier_calls` has the names of the calls that wait for a result; it is added to."""

    def __init__(self, composer: Composer, call_ids: ToolCallIds, earlier_calls: dict[str, str]) -> None:
        self._composer = composer
        self._call_ids = call_ids
        self._earlier_calls = earlier_calls
        self._client_ids: dict[str, str] = {}
        self._messages: list[tuple[str, StreamedMessage]] = []

    def emit_call(self, call: EmittedToolCall, subagent_id: SubagentId) -> list[Event]:
        call_id = self._client_ids[call.id] = self._call_ids.allocate_client_id("", call.id)
        self._earlier_calls[call_id] = call.name
        started = self._composer.tool_start(call_id, call.name, subagent_id)
        return [*started, *self._composer.tool_args(call_id, call.arguments), *self._composer.tool_end(call_id)]

    def client_id(self, native_id: str) -> str | None:
        """Return the id of an emitted call for clients, if it is one."""
        return self._client_ids.get(native_id)

    def pending_tools(self) -> dict[str, str]:
        """Return the tools of the emitted calls without a result, by the calls' ids."""
        emitted = set(self._client_ids.values())
        return {call_id: name for call_id, name in self._earlier_calls.items() if call_id in emitted}

    def add_message(self, text: str, message: StreamedMessage) -> None:
        self._messages.append((text, message))

    def take_message(self, whole: AIMessage) -> StreamedMessage | None:
        """Return the emitted message that a node returns now, usually under another id. It is not emitted again."""
        text = text_content(whole)
        found = next((item for item in self._messages if item[0] == text and not whole.tool_calls), None)
        if found is None:
            return None
        self._messages.remove(found)
        return found[1]
