"""Translate the updates of an agent into AG-UI events. Pure: no process, nothing awaited.

Updates are dicts as the agent has sent them. Nothing in them is trusted: a member of the wrong type is passed over, and an update that is
unknown becomes a CUSTOM event. `tool_calls.py` has the tool calls, `session_state.py` what is said about the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ambient_runner.bridges.acp.messages import as_text, bounded_json
from ambient_runner.bridges.acp.session_state import announced_mode, plan_content
from ambient_runner.bridges.acp.subagents import Subagents
from ambient_runner.bridges.acp.tool_calls import CUT_OFF, ToolCalls
from ambient_runner.bridges.acp.tool_records import ToolCallRecord, TurnState
from ambient_runner.bridges.toolkit.composer import random_id
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.protocol.events import (
    ActivitySnapshot,
    ReasoningStart,
    SubagentError,
    SubagentFinished,
    TextMessageContent,
    TextMessageStart,
    ToolCallResult,
    ToolCallStart,
)
from ambient_runner.protocol.ids import CONTROL_CHARS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Collection, Mapping

    from ambient_runner.bridges.acp.session_state import SessionState
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Event, Tool

__all__ = ["CUSTOM_PREFIX", "CUT_OFF", "ToolCallRecord", "Translator", "TurnState"]

CUSTOM_PREFIX = "acp:"
"""Prefix of the names of CUSTOM events."""
_BRIDGE_EVENT_NAMES = frozenset({"mode_set_back", "network_refused", "permission", "refusal", "retry", "session"})
"""Names of the bridge's own events, which say what the server and people have done. An agent cannot send one."""
CONTENT_ACTIVITY = "acp.content"
"""Activity of a block in the agent's message that is not text: an assistant message of AG-UI has text only."""
PLAN_ACTIVITY = "PLAN"

_MAX_DELTA_CHARS = 1 << 20
"""Characters of text in one event. Encoded they are at most six times as long."""
_MAX_VALUE_BYTES = 1 << 20
"""Of the value of a CUSTOM event or an activity."""
_MAX_CUSTOM_NAME_LENGTH = 64


class Translator:
    """Translator of one run. `turn` and `session` outlive it: a turn may go on in the next run.

    `used_ids` are the ids that the thread already has. `answered` are the calls whose results the client brings in this run.
    `own_tool` and `tool_name` are those of `ToolCalls`. `has_mode_chatter` is for an agent that announces a change
    of mode as text.

    Attributes:
        irregularities: Number of updates that are not as the protocol says, by kind.
    """

    def __init__(
        self,
        composer: Composer,
        turn: TurnState,
        *,
        session: SessionState,
        used_ids: set[str],
        answered: Collection[str] = (),
        own_tool: Callable[[Mapping[str, Any]], Tool | None] | None = None,
        tool_name: Callable[[Mapping[str, Any]], str] | None = None,
        has_mode_chatter: bool = False,
        new_id: Callable[[str], str] = random_id,
    ) -> None:
        self._composer = composer
        self._turn = turn
        self._session = session
        self._has_mode_chatter = has_mode_chatter
        self._new_id = new_id
        for record in turn.tool_calls.values():
            record.is_answered = record.is_answered or record.client_id in answered
        self._subagents = Subagents(composer, turn)
        self._calls = ToolCalls(
            composer, turn, self._subagents, used_ids=used_ids, own_tool=own_tool, tool_name=tool_name
        )
        self.irregularities: Counter[str] = self._calls.irregularities
        self._open_texts: dict[str | None, tuple[str, Any]] = {}
        """Kind and message id of the open text or reasoning, by the id of the subagent that writes it; None for the agent itself."""

    @property
    def is_streaming(self) -> bool:
        """True while text, reasoning or the arguments of a call are open. The protocol has no end of a text: the next item ends it."""
        return bool(self._open_texts) or self._calls.are_streaming

    @property
    def is_tool_working(self) -> bool:
        """True while a tool of the agent works."""
        return self._calls.are_working

    def feed(self, update: Mapping[str, Any], session_id: str | None = None) -> list[Event]:
        """Return the events of an `update` of the agent; often none. `session_id` is for one of a child session.

        What it says about the session is kept in the SessionState and has no events here.
        """
        handle = self._HANDLERS.get(as_text(update.get("sessionUpdate")))
        if handle is None:
            return self._track(self._on_unknown_update(update, session_id))
        return self._track(handle(self, update, self._subagents.key_of(update, session_id)))

    def emit_requested_call(self, tool_call: Mapping[str, Any], session_id: str | None = None) -> list[Event]:
        """Return the events of a call for which the agent asks permission, with its arguments: clients see what is asked.

        The request may be the first mention of the call, or have less than what was reported before.
        """
        call_id = as_text(tool_call.get("toolCallId"))
        if not call_id:
            self.irregularities["malformed"] += 1
            return []
        return self._track(self._calls.request(call_id, tool_call, self._subagents.key_of(tool_call, session_id)))

    def emit_client_call(
        self, name: str, arguments: Any, call_id: str | None = None
    ) -> tuple[ToolCallRecord, list[Event]]:
        """Return the record and the events of a call that has reached a tool of the client. `call_id` is the agent's id, if it is known."""
        record, events = self._calls.client_call(name, arguments, call_id)
        return record, self._track(events)

    def emit_bridge_event(self, name: str, value: Any) -> list[Event]:
        """Return an event of the bridge itself: CUSTOM `acp:` and its name."""
        return self._composer.custom(f"{CUSTOM_PREFIX}{name}", value)

    def record_of(self, call_id: str) -> ToolCallRecord | None:
        """Return what is known about a call of the turn, by the agent's id."""
        return self._turn.tool_calls.get(call_id)

    def report_silence(self, seconds: float) -> list[Event]:
        """Return events that show that the open calls still work, after the agent has sent nothing for so long."""
        return self._track(self._calls.report_silence(seconds))

    def cut_streamed_calls(self) -> list[Event]:
        """Return the end of what is incomplete when the run has to end within the turn. Calls start again, under another id."""
        return [*self._close_texts(), *self._track(self._calls.cut_streamed_calls())]

    def finish_turn(self, *, is_error: bool = False) -> list[Event]:
        """Return the last events of the turn: the ends of its texts, and results for calls that will get none. Clear the turn afterwards.

        Texts end first: their last words may be held back until then, and a result must not come between.
        """
        return [*self._close_texts(), *self._track(self._calls.finish_turn(is_error=is_error))]

    def _on_text(self, update: Mapping[str, Any], key: str | None) -> list[Event]:
        return self._on_chunk("text", update, key)

    def _on_thought(self, update: Mapping[str, Any], key: str | None) -> list[Event]:
        return self._on_chunk("reasoning", update, key)

    def _on_chunk(self, kind: str, update: Mapping[str, Any], key: str | None) -> list[Event]:
        block = as_object(update.get("content"))
        text = block.get("text")
        if block.get("type") != "text" or not isinstance(text, str):
            return self._show_block(block, key) if block else self._on_malformed(update, key)
        if self._has_mode_chatter and (mode_id := announced_mode(update)):
            self._session.set_mode(mode_id)
            return []
        return self._write(kind, text, update.get("messageId"), key)

    def _write(self, kind: str, text: str, message_id: Any, key: str | None) -> list[Event]:
        """Return the events of a piece of text or reasoning. Another message id begins another message."""
        write = self._composer.text if kind == "text" else self._composer.reasoning
        is_open = key is None and self._open_texts.get(None) == (kind, message_id)
        if is_open and len(text) <= _MAX_DELTA_CHARS:
            return write(text)
        if not text:
            return []
        events = self._subagents.start(key)
        subagent_id = self._subagents.id_of(key)
        if self._open_texts.get(subagent_id) != (kind, message_id):
            events += self._close_text(subagent_id)
            self._open_texts[subagent_id] = (kind, message_id)
        for start in range(0, len(text), _MAX_DELTA_CHARS):
            events += write(text[start : start + _MAX_DELTA_CHARS], subagent_id=subagent_id)
        return events

    def _close_text(self, subagent_id: str | None) -> list[Event]:
        """Return the end of the text or reasoning that is open."""
        if self._open_texts.pop(subagent_id, None) is None:
            return []
        return [*self._composer.end_text(subagent_id), *self._composer.end_reasoning(subagent_id)]

    def _close_texts(self) -> list[Event]:
        """Return the ends of all texts and reasoning that are open."""
        return [event for subagent_id in list(self._open_texts) for event in self._close_text(subagent_id)]

    def _show_block(self, block: Mapping[str, Any], key: str | None) -> list[Event]:
        """Return an image, a recording, a link or a file in the agent's message as an activity."""
        shown = {name: item for name, item in block.items() if name != "_meta"}
        starts, subagent_id = self._subagents.start(key), self._subagents.id_of(key)
        activity = ActivitySnapshot(
            message_id=self._new_id("content"),
            activity_type=CONTENT_ACTIVITY,
            content=as_object(bounded_json(shown, _MAX_VALUE_BYTES)),
            subagent_run_id=subagent_id,
        )
        return [*starts, *self._close_text(subagent_id), activity]

    def _on_tool_call(self, update: Mapping[str, Any], key: str | None) -> list[Event]:
        call_id = as_text(update.get("toolCallId"))
        if not call_id:
            return self._on_malformed(update, key)
        is_call = update.get("sessionUpdate") == "tool_call"
        if not is_call and call_id in self._turn.late_ids and call_id not in self._turn.tool_calls:
            self.irregularities["late_update"] += 1
            return self._custom(update, key)
        return self._calls.update(call_id, update, key)

    def _on_session_update(self, update: Mapping[str, Any], key: str | None) -> list[Event]:
        if key is not None:  # A child session has a state of its own.
            return self._custom(update, key)
        self._session.apply(update)
        return []

    def _on_plan(self, update: Mapping[str, Any], key: str | None) -> list[Event]:
        self._apply_plan(update, key)
        return self._show_plan("", plan_content(update), key)

    def _on_plan_update(self, update: Mapping[str, Any], key: str | None) -> list[Event]:
        self._apply_plan(update, key)
        plan = as_object(update.get("plan"))
        return self._show_plan(as_text(plan.get("planId")), plan_content(plan), key)

    def _on_plan_removed(self, update: Mapping[str, Any], key: str | None) -> list[Event]:
        self._apply_plan(update, key)
        plan_id = as_text(update.get("planId"))
        if (key, plan_id) not in self._turn.plan_ids:
            return []
        return self._show_plan(plan_id, {"entries": [], "removed": True}, key)

    def _apply_plan(self, update: Mapping[str, Any], key: str | None) -> None:
        """Keep the plan in the state of the session, unless it is a subagent's."""
        if key is None:
            self._session.apply(update)

    def _show_plan(self, plan_id: str, content: dict[str, Any], key: str | None) -> list[Event]:
        starts = self._subagents.start(key)
        plan_ids = self._turn.plan_ids
        if (key, plan_id) not in plan_ids:
            plan_ids[key, plan_id] = self._new_id("plan")
        snapshot = ActivitySnapshot(
            message_id=plan_ids[key, plan_id],
            activity_type=PLAN_ACTIVITY,
            content=content,
            subagent_run_id=self._subagents.id_of(key),
        )
        return [*starts, snapshot]

    def _on_subagent_update(self, update: Mapping[str, Any], key: str | None) -> list[Event]:
        if not as_text(update.get("sessionId")):
            return self._on_malformed(update, key)
        return self._subagents.apply_update(update, key)

    def _on_own_message(self, update: Mapping[str, Any], key: str | None) -> list[Event]:
        """Return nothing: the agent repeats what a user has sent."""
        return []

    def _on_event(self, update: Mapping[str, Any], key: str | None) -> list[Event]:
        """Return an update that has no counterpart in AG-UI as a CUSTOM event."""
        return self._custom(update, key)

    def _on_unknown_update(self, update: Mapping[str, Any], session_id: str | None) -> list[Event]:
        self.irregularities["unknown_update"] += 1
        return self._custom(update, self._subagents.key_of(update, session_id))

    def _on_malformed(self, update: Mapping[str, Any], key: str | None) -> list[Event]:
        self.irregularities["malformed"] += 1
        return self._custom(update, key)

    def _custom(self, update: Mapping[str, Any], key: str | None) -> list[Event]:
        name = CONTROL_CHARS.sub("", as_text(update.get("sessionUpdate")))[:_MAX_CUSTOM_NAME_LENGTH]
        if name in _BRIDGE_EVENT_NAMES:
            name = f"agent_{name}"
        value = {member: item for member, item in update.items() if member != "sessionUpdate"}
        return [
            *self._subagents.start(key),
            *self._composer.custom(
                f"{CUSTOM_PREFIX}{name or 'update'}", bounded_json(value, _MAX_VALUE_BYTES), self._subagents.id_of(key)
            ),
        ]

    def _track(self, events: list[Event]) -> list[Event]:
        """Keep the ids of the messages that begin with these events, and return the events."""
        if len(events) == 1 and type(events[0]) is TextMessageContent:
            return events
        for event in events:
            match event:
                case TextMessageStart() | ReasoningStart() | ToolCallResult() | ActivitySnapshot():
                    self._turn.message_ids[event.message_id] = None
                case ToolCallStart(parent_message_id=message_id):
                    self._turn.message_ids[message_id or event.tool_call_id] = None
                    self._open_texts.pop(event.subagent_run_id, None)
                case SubagentFinished() | SubagentError():
                    self._open_texts.pop(event.subagent_run_id, None)
                case _:
                    pass
        return events

    _HANDLERS: ClassVar[dict[str, Callable[[Translator, Mapping[str, Any], str | None], list[Event]]]] = {
        "user_message_chunk": _on_own_message,
        "agent_message_chunk": _on_text,
        "agent_thought_chunk": _on_thought,
        "tool_call": _on_tool_call,
        "tool_call_update": _on_tool_call,
        "plan": _on_plan,
        "plan_update": _on_plan_update,
        "plan_removed": _on_plan_removed,
        "available_commands_update": _on_session_update,
        "current_mode_update": _on_session_update,
        "config_option_update": _on_session_update,
        "session_info_update": _on_session_update,
        "usage_update": _on_session_update,
        "subagent_update": _on_subagent_update,
        "notice": _on_event,
        "compaction_update": _on_event,
        "compaction_summary_chunk": _on_event,
        "session_message": _on_event,
        "session_message_chunk": _on_event,
    }
