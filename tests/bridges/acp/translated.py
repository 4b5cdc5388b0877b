"""A thread as the translator makes it from an agent's updates, without a process: its events are verified as they come."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from ambient_runner.bridges.acp.session_state import SessionState
from ambient_runner.bridges.acp.translate import Translator, TurnState
from ambient_runner.bridges.toolkit.composer import Composer
from ambient_runner.bridges.toolkit.state import StateStore
from ambient_runner.projections.json_patch import apply_patch
from ambient_runner.protocol import events as e
from ambient_runner.protocol.limits import MAX_EVENT_BYTES
from ambient_runner.protocol.repair import Repairer
from ambient_runner.protocol.verify import Verifier

__all__ = ["TranslatedThread", "text_content", "words"]

Json = dict[str, Any]


def text_content(text: str) -> list[Json]:
    """Return the content of a tool call that is this text."""
    return [{"type": "content", "content": {"type": "text", "text": text}}]


class TranslatedThread:
    """Runs of one agent. `events` are those of all runs; `run_events` those of the current one, without its start."""

    def __init__(self, **options: Any) -> None:
        self.turn, self.session, self.state = TurnState(), SessionState(), StateStore({"acp": {}})
        self.used_ids: set[str] = set()
        self.events: list[e.Event] = []
        self.run_events: list[e.Event] = []
        self._options = options
        self._counts: Counter[str] = Counter()
        self._verifier = Verifier()
        self._runs = 0
        self.start_run()

    def start_run(self, **options: Any) -> None:
        self._runs += 1
        self.composer = Composer(self._new_id)
        self.translator = Translator(
            self.composer,
            self.turn,
            session=self.session,
            used_ids=self.used_ids,
            new_id=self._new_id,
            **{**self._options, **options},
        )
        self._repairer = Repairer("t", f"r{self._runs}")
        self._add([e.RunStarted(thread_id="t", run_id=f"r{self._runs}")])
        self.run_events = []

    def feed(self, *updates: Json, session: str | None = None) -> TranslatedThread:
        for update in updates:
            self._add(self.translator.feed(update, session))
            if self.session.is_changed:
                self._add(self.state.apply_patch(self.session.take_patch()))
        return self

    def call(self, call_id: Any = "c1", **members: Any) -> TranslatedThread:
        return self.feed({"sessionUpdate": "tool_call", "toolCallId": call_id, **members})

    def update(self, call_id: Any = "c1", **members: Any) -> TranslatedThread:
        return self.feed({"sessionUpdate": "tool_call_update", "toolCallId": call_id, **members})

    def say(self, text: str, message_id: Any = None, **members: Any) -> TranslatedThread:
        return self._chunk("agent_message_chunk", text, message_id, **members)

    def think(self, text: str, message_id: Any = None, **members: Any) -> TranslatedThread:
        return self._chunk("agent_thought_chunk", text, message_id, **members)

    def ask(self, call_id: Any = "c1", **members: Any) -> TranslatedThread:
        """Let the agent ask for permission, and end the run with the interrupt."""
        self._add(self.translator.emit_requested_call({"toolCallId": call_id, **members}))
        return self.end_run(e.Interrupted(interrupts=[e.Interrupt(id=f"i{self._runs}", reason="tool_call")]))

    def end_run(self, outcome: e.Outcome | None = None) -> TranslatedThread:
        self._add(self.translator.cut_streamed_calls())
        return self._finish(outcome)

    def end_turn(self, *, is_error: bool = False) -> TranslatedThread:
        self._add(self.translator.finish_turn(is_error=is_error))
        self.turn.clear()
        return self._finish(None)

    def add(self, events: list[e.Event]) -> TranslatedThread:
        self._add(events)
        return self

    def activities(self) -> dict[str, Json]:
        """Return the contents of the activities as a client has them now, by the ids of their messages."""
        contents: dict[str, Json] = {}
        for event in self.events:
            if isinstance(event, e.ActivitySnapshot):
                contents[event.message_id] = event.content
            elif isinstance(event, e.ActivityDelta):
                contents[event.message_id] = apply_patch(contents[event.message_id], event.patch)
        return contents

    def results(self) -> dict[str, e.Content]:
        """Return the results by the ids of their calls. A call has at most one."""
        results = [event for event in self.events if isinstance(event, e.ToolCallResult)]
        assert len({event.tool_call_id for event in results}) == len(results)
        return {event.tool_call_id: event.content for event in results}

    def arguments(self) -> dict[str, Any]:
        """Return the arguments by the ids of their calls. They come in one piece."""
        found = [event for event in self.events if isinstance(event, e.ToolCallArgs)]
        assert len({event.tool_call_id for event in found}) == len(found)
        return {event.tool_call_id: json.loads(event.delta) for event in found}

    def words(self) -> list[str]:
        """Return the events of the current or last run in short words, without activities."""
        return words(self.run_events)

    def _chunk(self, name: str, text: str, message_id: Any, **members: Any) -> TranslatedThread:
        chunk = {"sessionUpdate": name, "content": {"type": "text", "text": text}, **members}
        return self.feed(chunk if message_id is None else {**chunk, "messageId": message_id})

    def _finish(self, outcome: e.Outcome | None) -> TranslatedThread:
        end = e.RunFinished(thread_id="t", run_id=f"r{self._runs}", outcome=outcome or e.Success())
        self._add([*self.composer.close(end), end])
        assert self._repairer.repairs == {}
        return self

    def _add(self, events: list[e.Event]) -> None:
        for event in events:
            self._verifier.check(event)
            self._repairer.feed(event)
            assert len(e.encode_event(event)) <= MAX_EVENT_BYTES
        self.events += events
        self.run_events += events

    def _new_id(self, kind: str) -> str:
        self._counts[kind] += 1
        return f"{kind}-{self._counts[kind]}"


def words(events: list[e.Event]) -> list[str]:
    """Return events in short words. Pieces of one text are joined; activities and the end of the run are left out."""
    found = [_word(event) for event in events]
    return [word for word in found if word]


def _word(event: e.Event) -> str:  # noqa: C901
    owner = getattr(event, "subagent_run_id", None)
    at = f" @{owner}" if owner else ""
    match event:
        case e.TextMessageStart():
            return f"TEXT {event.message_id}{at}"
        case e.TextMessageContent() | e.ReasoningMessageContent():
            return f"+ {event.delta}{at}"
        case e.TextMessageEnd():
            return f"END {event.message_id}{at}"
        case e.ReasoningStart():
            return f"THOUGHT {event.message_id}{at}"
        case e.ReasoningEnd():
            return f"END {event.message_id}{at}"
        case e.ToolCallStart():
            return f"CALL {event.tool_call_id} {event.tool_call_name}{at}"
        case e.ToolCallArgs():
            return f"ARGS {event.tool_call_id} {event.delta}{at}"
        case e.ToolCallEnd():
            return f"END {event.tool_call_id}{at}"
        case e.ToolCallResult():
            failed = " (failed)" if event.metadata else ""
            return f"RESULT {event.tool_call_id} {event.content}{failed}{at}"
        case e.SubagentStarted():
            return f"SUBAGENT {owner} {event.name} < {event.parent_subagent_run_id or event.parent_tool_call_id}"
        case e.SubagentFinished():
            return f"END {owner}" + (" (suspended)" if event.outcome else "")
        case e.SubagentError():
            return f"FAILED {owner}"
        case e.StateDelta():
            return f"STATE {event.delta}"
        case e.Custom():
            return f"CUSTOM {event.name} {event.value}{at}"
        case _:
            return ""
