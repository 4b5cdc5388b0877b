"""ADK events as AG-UI events and messages, for applications that run ADK themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ag_ui.core import AssistantMessage, FunctionCall, Message, ReasoningMessage, ToolCall, ToolMessage, UserMessage

from ambient_runner.bridges.adk.messages import is_initial_result, result_content
from ambient_runner.bridges.adk.session_sync import live_events
from ambient_runner.bridges.adk.translate import Translator
from ambient_runner.bridges.toolkit.json_values import to_json_text
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.protocol.agui_models import to_agui
from ambient_runner.protocol.events import content_as_text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence

    from ag_ui.core import BaseEvent
    from google.adk.events import Event as ADKEvent
    from google.genai import types

__all__ = ["EventTranslator", "adk_events_to_messages"]


class EventTranslator:
    """Translates the events of one run. The author of the first event is the agent that talks to the user.

    Of the options only `output_schema_agent_names` has an effect: the agents whose answers are data instead of text.
    """

    def __init__(
        self,
        predict_state: Any = None,
        client_emitted_tool_call_ids: set[str] | None = None,
        client_tool_names: set[str] | None = None,
        is_resumable: bool = False,
        streaming_function_call_arguments: bool = False,
        output_schema_agent_names: Collection[str] | None = None,
    ) -> None:
        self._structured_agents = output_schema_agent_names or ()
        self._translator: Translator | None = None

    @property
    def long_running_tool_ids(self) -> list[str]:
        """Ids of the calls that wait for the client."""
        return list(self._translator.pending_calls) if self._translator else []

    async def translate(self, adk_event: ADKEvent, thread_id: str, run_id: str) -> AsyncGenerator[BaseEvent, None]:
        """Yield the AG-UI events of an ADK event; none for an event of the user."""
        if adk_event.author == "user":
            return
        if self._translator is None:
            structured = self._structured_agents
            self._translator = Translator(adk_event.author, StateStore({}), structured_agents=structured)
        for event in self._translator.feed(adk_event):
            yield to_agui(event)

    async def force_close_streaming_message(self) -> AsyncGenerator[BaseEvent, None]:
        """Yield the events that end everything open."""
        for event in self._translator.close() if self._translator else ():
            yield to_agui(event)

    def reset(self) -> None:
        """Forget everything, for the next run."""
        self._translator = None


def adk_events_to_messages(events: Sequence[ADKEvent]) -> list[Message]:
    """Return the conversation of a session's events, without partial and rewound ones."""
    return [message for event in live_events(events) if not event.partial for message in _event_messages(event)]


def _event_messages(event: ADKEvent) -> list[Message]:
    responses = event.get_function_responses()
    if responses:
        return [_tool_message(event, response) for response in responses if not is_initial_result(response)]
    parts = (event.content.parts if event.content else None) or []
    text = "".join(part.text for part in parts if part.text and not part.thought)
    if event.author == "user":
        return [UserMessage(id=event.id, content=text)] if text else []
    return [*_reasoning_messages(event, parts), *_assistant_messages(event, text)]


def _reasoning_messages(event: ADKEvent, parts: Sequence[types.Part]) -> list[Message]:
    thoughts = "".join(part.text for part in parts if part.text and part.thought)
    return [ReasoningMessage(id=f"{event.id}-reasoning", content=thoughts)] if thoughts else []


def _assistant_messages(event: ADKEvent, text: str) -> list[Message]:
    calls = [_tool_call(call) for call in event.get_function_calls()]
    if not text and not calls:
        return []
    name = None if event.author == "model" else event.author
    return [AssistantMessage(id=event.id, name=name, content=text or None, tool_calls=calls or None)]


def _tool_call(call: types.FunctionCall) -> ToolCall:
    function = FunctionCall(name=call.name or "", arguments=to_json_text(call.args or {}))
    return ToolCall(id=call.id or "", function=function)


def _tool_message(event: ADKEvent, response: types.FunctionResponse) -> ToolMessage:
    call_id = response.id or ""
    return ToolMessage(
        id=f"{event.id}-{call_id}", tool_call_id=call_id, content=content_as_text(result_content(response))
    )
