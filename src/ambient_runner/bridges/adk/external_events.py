"""Events that another server wrote to the ADK session of a thread. Pure.

Servers with a store of their own each have a thread for a session that they share. So every event of a run carries the epoch of its thread
and the id of its user message. Newer events of another epoch are adopted: they stay in the session, and the thread gets their messages
and state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.adk.config import HIDDEN
from ambient_runner.bridges.adk.session_sync import find_event
from ambient_runner.bridges.adk.translate import Translator
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.projections.private_entries import correct_history
from ambient_runner.projections.state import is_hidden
from ambient_runner.projections.transcript import Transcript
from ambient_runner.protocol.events import RunAgentInput, RunStarted, UserMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from google.adk.events import Event as ADKEvent

    from ambient_runner.bridges.adk.memory import SessionMemory
    from ambient_runner.protocol.events import Custom, Event, Message

__all__ = ["adopted_messages", "adopted_state", "find_external_events", "insert_adopted", "origin_metadata"]

EPOCH_KEY = "ambient_epoch"
MESSAGE_KEY = "ambient_message"


def origin_metadata(epoch: str, user_message_id: str = "") -> dict[str, str]:
    """Return the custom metadata of an event: the epoch of the thread and, if known, the id of the user message. Empty without an epoch."""
    if not epoch:
        return {}
    return {EPOCH_KEY: epoch} | ({MESSAGE_KEY: user_message_id} if user_message_id else {})


def find_external_events(events: Sequence[ADKEvent], memory: SessionMemory | None, epoch: str) -> list[ADKEvent]:
    """Return the events of another server that this thread has not seen. Those before an event of this thread it has seen."""
    unknown = events[find_event(events, memory.last) + 1 if memory else 0 :]
    newest_own = max((i for i, event in enumerate(unknown) if _is_own(event, epoch)), default=-1)
    invocations = {
        event.invocation_id for event in unknown[newest_own + 1 :] if event.content or event.actions.state_delta
    }
    return [event for event in unknown if event.invocation_id in invocations and not _is_own(event, epoch)]


def adopted_messages(
    events: Sequence[ADKEvent],
    root_agent: str,
    *,
    structured_agents: Collection[str] = (),
    known_call_ids: Collection[str] = (),
) -> list[Message]:
    """Return the messages of these events under the ids that clients know them by. `known_call_ids` are all calls of the session."""
    own_calls = {call.id for event in events for call in event.get_function_calls()}
    translator = Translator(
        root_agent,
        StateStore(),
        structured_agents=structured_agents,
        known_call_ids={call_id for call_id in known_call_ids if call_id not in own_calls},
    )
    transcript = Transcript()
    for event in events:
        translated = _user_message_events(event) if event.author == "user" else []
        for each in translated or translator.feed(event):
            transcript.apply(each)
    for each in translator.close():
        transcript.apply(each)
    return transcript.messages()


def insert_adopted(adopted: Sequence[Message], messages: Sequence[Message], new_ids: Collection[str]) -> Custom | None:
    """Return the correction that inserts adopted messages before the new user messages of a run; None if the thread has them all."""
    known = {message.id for message in messages if message.id not in new_ids}
    users = {message.id: message for message in messages if isinstance(message, UserMessage) and message.id in new_ids}
    inserted = [users.pop(message.id, message) for message in adopted if message.id not in known]
    if not inserted:
        return None
    return correct_history([*inserted, *users.values()])


def adopted_state(events: Sequence[ADKEvent]) -> dict[str, Any]:
    """Return the visible keys that these events have set."""
    changes = {key: value for event in events for key, value in event.actions.state_delta.items()}
    return {key: value for key, value in changes.items() if not is_hidden(key, HIDDEN)}


def _is_own(event: ADKEvent, epoch: str) -> bool:
    return (event.custom_metadata or {}).get(EPOCH_KEY) == epoch


def _user_message_events(event: ADKEvent) -> list[Event]:
    """Return the user's message as the start of a run; nothing for an event without text, such as a tool result."""
    text = "".join(part.text or "" for part in (event.content.parts if event.content else None) or ())
    if not text:
        return []
    message_id = (event.custom_metadata or {}).get(MESSAGE_KEY) or event.id
    run_input = RunAgentInput(thread_id="", run_id="", messages=[UserMessage(id=message_id, content=text)])
    return [RunStarted(thread_id="", run_id="", input=run_input)]
