"""Tool calls of a run: the events that clients get for what an agent reports. Pure.

Updates may come before their call, without it, or after its end, and a permission request may be the first mention. Clients get each call
once: START, the arguments when the agent has all of them, END, and one result. `tool_records.py` keeps what was reported,
`tool_activities.py` shows what happens before the result.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.messages import as_text, json_text
from ambient_runner.bridges.acp.tool_activities import ToolActivities
from ambient_runner.bridges.acp.tool_records import (
    FINAL_STATUSES,
    ToolCallRecord,
    client_arguments,
    default_tool_name,
    shown_arguments,
)
from ambient_runner.bridges.acp.tool_results import result_content
from ambient_runner.bridges.toolkit.composer import random_id
from ambient_runner.bridges.toolkit.tool_call_ids import allocate_tool_call_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ambient_runner.bridges.acp.subagents import Subagents
    from ambient_runner.bridges.acp.tool_records import TurnState
    from ambient_runner.bridges.toolkit.composer import Composer
    from ambient_runner.protocol.events import Content, Event, Tool

__all__ = ["ABANDONED", "CUT_OFF", "UNREPORTED", "ToolCalls"]

CUT_OFF = "This call was not complete when the run ended. It continues under another id."
"""Result of a call whose arguments were incomplete when the run ended in the middle of the turn."""
UNREPORTED = "The agent reported no result of this call."
"""Result of a call that was open when the turn ended: some agents say nothing about a rejected call."""
ABANDONED = "The agent ended before this call had a result."
"""Result of a call that was open when the turn failed."""

_MAX_NAME_LENGTH = 128
_MAX_ARGUMENT_BYTES = 2 << 20


class ToolCalls:
    """Tool calls of one run. `used_ids` are the ids that the thread already has; new ones are added.

    `own_tool` returns the client's tool that an update, or the `toolCall` of a permission request, is about; None for a tool of the agent.
    `tool_name` returns an agent's name of a tool where the protocol has none; empty if it does not know it.
    """

    def __init__(
        self,
        composer: Composer,
        turn: TurnState,
        subagents: Subagents,
        *,
        used_ids: set[str],
        own_tool: Callable[[Mapping[str, Any]], Tool | None] | None,
        tool_name: Callable[[Mapping[str, Any]], str] | None,
    ) -> None:
        self.irregularities: Counter[str] = Counter()
        self._composer = composer
        self._turn = turn
        self._subagents = subagents
        self._used_ids = used_ids
        self._own_tool = own_tool
        self._tool_name = tool_name
        self._activities = ToolActivities()
        self._open: dict[str, ToolCallRecord] = {}
        """Calls that have started and have no result, by their ids for clients."""
        for record in turn.tool_calls.values():
            used_ids.add(record.client_id)
            if record.is_started and not record.is_answered:
                self._open[record.client_id] = record
                composer.continue_tool_call(record.client_id, record.subagent_id)

    @property
    def are_working(self) -> bool:
        """True while a tool of the agent works."""
        return any(not record.is_client_tool for record in self._open.values())

    @property
    def are_streaming(self) -> bool:
        """True while the arguments of a call are not complete."""
        return any(not record.has_arguments for record in self._open.values())

    def update(self, call_id: str, update: Mapping[str, Any], subagent_key: str | None) -> list[Event]:
        """Return the events of a `tool_call` or `tool_call_update`."""
        is_call = update.get("sessionUpdate") == "tool_call"
        record = self._turn.tool_calls.get(call_id)
        is_over = record is not None and record.is_answered
        if is_over and is_call and as_text(update.get("status")) not in FINAL_STATUSES:
            self.irregularities["doubled_id"] += 1
            record = None
        elif record is None and not is_call:
            self.irregularities["update_without_call"] += 1
        record = self._merge(record, call_id, update, subagent_key)
        return [*self._subagents.start(record.subagent_key), *self._emit(record, update)]

    def request(self, call_id: str, tool_call: Mapping[str, Any], subagent_key: str | None) -> list[Event]:
        """Return the events of a call for which the agent asks permission: with its arguments, so that clients see what is asked."""
        record = self._turn.tool_calls.get(call_id)
        if record is not None and record.is_answered:
            record = None
        members = {name: value for name, value in tool_call.items() if value not in ([], None)}
        record = self._merge(record, call_id, members, subagent_key)
        return [
            *self._subagents.start(record.subagent_key),
            *self._start(record),
            *self._finish_arguments(record),
            *self._activities.update(record),
        ]

    def client_call(self, name: str, arguments: Any, call_id: str | None) -> tuple[ToolCallRecord, list[Event]]:
        """Return the record and the events of a call that has reached a tool of the client, with the arguments it has there."""
        record = self._find_client_call(name, arguments, call_id)
        if record is None:
            is_known = call_id is not None and call_id not in self._turn.tool_calls
            record = self._new_record(call_id if call_id is not None and is_known else random_id("call"), None)
            record.name, record.is_client_tool, record.has_agent_id = name, True, is_known
        record.has_reached_client = True
        if not record.has_arguments:
            record.input = arguments
        starts = self._subagents.start(record.subagent_key)
        return record, [*starts, *self._start(record), *self._finish_arguments(record)]

    def finish_turn(self, *, is_error: bool) -> list[Event]:
        """Return results for the calls that will get none; those of subagents first, which end with the calls that started them."""
        events: list[Event] = []
        for record in reversed(list(self._open.values())):
            record.status = "failed"
            events += self._subagents.start(record.subagent_key)
            events += self._finish_arguments(record)
            events += self._answer(record, ABANDONED if is_error else UNREPORTED)
        return events

    def cut_streamed_calls(self) -> list[Event]:
        """Return the end of the calls whose arguments are incomplete. They start again in the next run, under another id."""
        events: list[Event] = []
        for record in [record for record in self._open.values() if not record.has_arguments]:
            events += self._composer.tool_result(record.client_id, CUT_OFF, is_error=True)
            del self._open[record.client_id]
            record.restart(self._allocate_id(record.call_id))
        return events

    def report_silence(self, seconds: float) -> list[Event]:
        """Return events that show that calls still work. Arguments that did not change for so long are complete."""
        events: list[Event] = []
        for record in [record for record in self._open.values() if not record.is_client_tool]:
            record.progress = f"No output for {seconds:.0f} seconds."
            if record.input:
                events += self._finish_arguments(record)
            events += self._activities.update(record)
        return events

    def _emit(self, record: ToolCallRecord, update: Mapping[str, Any]) -> list[Event]:
        record.progress = None
        events = self._start(record)
        if record.status != "pending":
            events += self._finish_arguments(record)
        if not record.is_final or record.is_answered:
            return [*events, *self._activities.update(record)]
        content = result_content(
            record.content,
            is_new=isinstance(update.get("content"), list),
            output=record.output.text,
            raw_output=record.raw_output,
            exit_code=record.exit_code,
            is_failed=record.status == "failed",
        )
        return [*events, *self._answer(record, content)]

    def _start(self, record: ToolCallRecord) -> list[Event]:
        if record.is_started or record.is_answered:
            return []
        self._identify(record)
        record.is_started, record.start_title = True, record.title
        self._open[record.client_id] = record
        metadata = {"title": record.title, "kind": record.kind} if record.title else {"kind": record.kind}
        return self._composer.tool_start(
            record.client_id,
            record.name,
            record.subagent_id,
            metadata=None if record.is_client_tool else metadata,
        )

    def _merge(
        self, record: ToolCallRecord | None, call_id: str, update: Mapping[str, Any], subagent_key: str | None
    ) -> ToolCallRecord:
        """Return the record of a call with what an update says about it; a new one for None."""
        tool = None if self._own_tool is None else self._own_tool(update)
        if record is None:
            reached = None if tool is None else self._take_call_without_id(tool.name, call_id)
            record = reached or self._new_record(call_id, subagent_key)
        if tool is not None and not record.is_started:
            record.is_client_tool, record.name = True, tool.name
        record.merge(update)
        if record.is_client_tool and not record.has_arguments:
            record.input = client_arguments(update) or record.input
        return record

    def _take_call_without_id(self, name: str, call_id: str) -> ToolCallRecord | None:
        """Return the call that has reached this tool of the client without an id, now that the agent reports it."""
        calls = self._turn.tool_calls
        for key, record in calls.items():
            if not record.has_agent_id and record.name == name:
                record.has_agent_id, record.call_id = True, call_id
                del calls[key]
                calls[call_id] = record
                return record
        return None

    def _identify(self, record: ToolCallRecord) -> None:
        """Find the name of the tool for clients."""
        found = "" if self._tool_name is None else self._tool_name(record.members)
        record.name = record.name or (found or default_tool_name(record.members))[:_MAX_NAME_LENGTH]

    def _finish_arguments(self, record: ToolCallRecord) -> list[Event]:
        if record.has_arguments or not record.is_started:
            return []
        record.has_arguments, record.sent_input = True, record.input
        return [
            *self._composer.tool_args_full(record.client_id, json_text(shown_arguments(record), _MAX_ARGUMENT_BYTES)),
            *self._composer.tool_end(record.client_id),
        ]

    def _answer(self, record: ToolCallRecord, content: Content) -> list[Event]:
        """Return the end of a call, with its result, and of the subagent that works for it."""
        is_failed, record.is_answered = record.status == "failed", True
        self._open.pop(record.client_id, None)
        events = self._activities.update(record)
        if not record.is_background:
            events += self._subagents.end(record.call_id, error="The subagent failed." if is_failed else None)
        events += self._composer.tool_result(
            record.client_id, content, name=record.name, subagent_id=record.subagent_id, is_error=is_failed
        )
        record.release()
        return events

    def _new_record(self, call_id: str, subagent_key: str | None) -> ToolCallRecord:
        key = None if subagent_key == call_id else subagent_key
        record = self._turn.tool_calls[call_id] = ToolCallRecord(
            call_id=call_id,
            client_id=self._allocate_id(call_id),
            subagent_key=key,
            subagent_id=self._subagents.id_of(key),
        )
        return record

    def _allocate_id(self, call_id: str) -> str:
        client_id = allocate_tool_call_id(call_id, self._used_ids)
        self._used_ids.add(client_id)
        return client_id

    def _find_client_call(self, name: str, arguments: Any, call_id: str | None) -> ToolCallRecord | None:
        """Return the reported call that has reached the client's tool: by its id, else the first of the tool that fits."""
        calls = [
            record
            for record in self._open.values()
            if record.is_client_tool and record.name == name and not record.has_reached_client
        ]
        if call_id is not None:
            return next((record for record in calls if record.call_id == call_id), None)
        same = [record for record in calls if record.input == arguments]
        return next(iter([*same, *(record for record in calls if not record.has_arguments), *calls]), None)
