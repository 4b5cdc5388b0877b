"""Records of the tool calls of a turn: what an agent has reported of each so far. Pure.

A call is reported in snapshots: each update replaces the members it has, and may have any of them. `tool_calls.py` makes events of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ambient_runner.bridges.acp.messages import as_list, as_text, head_and_tail
from ambient_runner.bridges.acp.tool_activities import ShownActivity, StreamedOutput
from ambient_runner.bridges.acp.tool_results import diffs_in, text_in
from ambient_runner.bridges.toolkit.json_values import as_object, parse_json_or_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.acp.subagents import SubagentRecord

__all__ = ["FINAL_STATUSES", "ToolCallRecord", "TurnState", "client_arguments", "default_tool_name", "shown_arguments"]

FINAL_STATUSES = frozenset({"completed", "failed"})
_ORDER = {"pending": 0, "in_progress": 1, "completed": 2, "failed": 2}
"""The statuses of a call. One never goes back to an earlier one."""
_KINDS = frozenset({"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"})
_OBJECT: type = dict
_MAX_TITLE_BYTES = 4 << 10
_MAX_LOCATIONS = 50
_MAX_LATE_IDS = 1000
"""Number of calls of earlier turns whose late updates are recognised."""


@dataclass(kw_only=True, slots=True)
class ToolCallRecord:
    """The known facts about a call of the turn."""

    call_id: str
    """The agent's id."""
    client_id: str
    """The id that clients know: the agent's own, unless the thread has another call with that id or no client could send it back."""
    name: str = ""
    """The tool's name for clients. It is fixed once the call has started."""
    title: str = ""
    kind: str = "other"
    input: Any = None
    """The newest `rawInput`; the plain arguments for a tool of the client. None while the agent has reported none."""
    status: str = "pending"
    locations: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    content: list[Any] = field(default_factory=list[Any])
    """The newest content. It is dropped once the call has a result."""
    diffs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The newest changes of files: `path`, `oldText` and `newText`."""
    raw_output: Any = None
    output: StreamedOutput = field(default_factory=StreamedOutput)
    exit_code: int | None = None
    progress: str | None = None
    subagent_key: str | None = None
    subagent_id: str | None = None
    """The id, for clients, of the subagent that makes the call; None for the agent itself."""
    is_client_tool: bool = False
    """True for a call of one of our own tools: the result comes from the client."""
    has_agent_id: bool = True
    """False for a call that has reached the client's tool without an id, before the agent has reported it."""
    has_reached_client: bool = False
    is_background: bool = False
    """True if the work of the call goes on after its result."""
    is_started: bool = False
    has_arguments: bool = False
    """True once clients have the arguments."""
    sent_input: Any = None
    """The `input` of the arguments that clients have. The agent may report another one later."""
    is_answered: bool = False
    start_title: str = ""
    shown: ShownActivity = field(default_factory=ShownActivity)
    shown_diffs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    members: dict[str, Any] = field(default_factory=dict[str, Any])
    """The newest members as the agent has sent them, in the form of a ToolCall."""

    @property
    def is_final(self) -> bool:
        return self.status in FINAL_STATUSES

    def merge(self, update: Mapping[str, Any]) -> None:
        """Take over the members that an update has. They replace the older ones."""
        self.members |= {name: value for name, value in update.items() if value is not None and name != "sessionUpdate"}
        self.title = head_and_tail(as_text(update.get("title")), _MAX_TITLE_BYTES) or self.title
        if as_text(update.get("kind")) in _KINDS:
            self.kind = update["kind"]
        status = as_text(update.get("status"))
        if _ORDER.get(status, -1) >= _ORDER[self.status] and not self.is_final:
            self.status = status
        raw_input = update.get("rawInput")
        if raw_input is not None and (raw_input != {} or self.input is None) and not self.is_client_tool:
            self.input = raw_input
        if isinstance(update.get("locations"), list):
            self.locations = _locations(update["locations"])
        if update.get("rawOutput") is not None:
            self.raw_output = update["rawOutput"]
        self._merge_content(update.get("content"))
        if update.get("_meta"):
            self._merge_meta(as_object(update["_meta"]))

    def restart(self, client_id: str) -> None:
        """Let the call start again under another id."""
        self.client_id, self.is_started, self.shown, self.shown_diffs = client_id, False, ShownActivity(), []

    def release(self) -> None:
        """Drop what is not needed once the call has its result."""
        self.members, self.content, self.raw_output, self.output = {}, [], None, StreamedOutput()

    def _merge_content(self, content: Any) -> None:
        if not isinstance(content, list):
            return
        self.content = as_list(content)
        self.diffs = diffs_in(self.content) or self.diffs
        if self.status == "in_progress":
            self.output.update_whole(text_in(self.content))

    def _merge_meta(self, meta: Mapping[str, Any]) -> None:
        """Take over what agents report beside the protocol: the output of terminals, and calls that go on in the background."""
        for name in ("terminal_output_delta", "terminal_output"):
            self.output.append(as_text(as_object(meta.get(name)).get("data")))
        exit_code = as_object(meta.get("terminal_exit")).get("exit_code")
        if isinstance(exit_code, int):
            self.exit_code = exit_code
        responses = [as_object(as_object(vendor).get("toolResponse")) for vendor in meta.values()]
        self.is_background = self.is_background or any(response.get("isAsync") is True for response in responses)


@dataclass(slots=True)
class TurnState:
    """A turn of the agent. It outlives a run: one that ends with an interrupt is in the middle of a turn, and the next continues it."""

    tool_calls: dict[str, ToolCallRecord] = field(default_factory=dict[str, ToolCallRecord])
    """By the agent's ids."""
    subagents: dict[str, SubagentRecord] = field(default_factory=dict[str, Any])
    plan_ids: dict[tuple[str | None, str], str] = field(default_factory=dict[tuple["str | None", str], str])
    """Ids of the activities that show plans, by the subagents' keys and the agent's ids of the plans."""
    message_ids: dict[str, None] = field(default_factory=dict[str, None])
    """Ids of all messages, results and activities of the turn, also of the user's message. After a refusal the agent has forgotten them."""
    has_earlier_turns: bool = False
    """True if the prompt also has earlier turns of the conversation, which the agent forgets with it."""
    late_ids: dict[str, None] = field(default_factory=dict[str, None])
    """Calls of earlier turns. An update of one is no new call."""

    def clear(self) -> None:
        """Forget everything, in place: the turn has ended."""
        self.late_ids |= dict.fromkeys(self.tool_calls)
        for call_id in list(self.late_ids)[:-_MAX_LATE_IDS]:
            del self.late_ids[call_id]
        self.tool_calls.clear()
        self.subagents.clear()
        self.plan_ids.clear()
        self.message_ids.clear()
        self.has_earlier_turns = False


def default_tool_name(tool_call: Mapping[str, Any]) -> str:
    """Return the name of a call's tool: the protocol's, else the one in `_meta` of the agent's vendor, else the kind of tool."""
    vendors = as_object(tool_call.get("_meta")).values()
    names = (as_text(as_object(vendor).get("toolName")) for vendor in vendors)
    found = as_text(tool_call.get("name")) or next((name for name in names if name), "")
    return found or as_text(tool_call.get("kind")) or "tool"


def client_arguments(tool_call: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the plain arguments of a call of a client's tool, wherever the agent reports them; None if it does not."""
    raw_input = as_object(tool_call.get("rawInput"))
    if as_object(tool_call.get("_meta")).get("is_mcp_tool_call") is True:
        raw_input = as_object(raw_input.get("arguments"))
    if raw_input or tool_call.get("status") != "pending":
        return raw_input or None
    described = parse_json_or_text(text_in(as_list(tool_call.get("content"))))
    return as_object(described) or None


def shown_arguments(record: ToolCallRecord) -> dict[str, Any]:
    """Return the arguments for clients. An agent that reports none describes the call in other members."""
    if record.input is not None:
        return as_object(record.input) if type(record.input) is _OBJECT else {"input": record.input}
    if record.is_client_tool:
        return {}
    changed = {diff["path"] for diff in record.diffs}
    paths = [place["path"] for place in record.locations if place["path"] not in changed]
    described = {
        "title": record.title,
        "description": text_in(record.content),
        "paths": paths,
        "diffs": record.diffs,
    }
    return {name: value for name, value in described.items() if value}


def _locations(items: Any) -> list[dict[str, Any]]:
    """Return the files a call is about: `path`, and `line` where it has one."""
    places = [as_object(item) for item in as_list(items)[:_MAX_LOCATIONS]]
    return [
        {"path": head_and_tail(place["path"], _MAX_TITLE_BYTES)}
        | ({"line": place["line"]} if isinstance(place.get("line"), int) else {})
        for place in places
        if as_text(place.get("path"))
    ]
