"""Lines of JSON that known commands print, as parts (`messages.py`). Pure.

Known are the lines of `codex exec --json`, `opencode run --format json`, `gemini --output-format stream-json` and
`claude -p --output-format stream-json`. Any other command can print the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.lines.messages import (
    BlockStart,
    Call,
    CallResult,
    Failure,
    Line,
    Other,
    Part,
    Reasoning,
    Text,
    TurnResult,
    parse_stop_reason,
    parse_usage,
    result_text,
    text_of,
)
from ambient_runner.bridges.toolkit.json_values import as_object

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["parse_line"]


def parse_line(line: Line) -> list[Part] | None:
    """Return what a line says, often nothing; None if it is not known."""
    kind = line.get("type")
    parse = _PARSERS.get(kind) if isinstance(kind, str) else None
    return None if parse is None else parse(line)


def _ignore(line: Line) -> list[Part]:
    return []


def _parse_item(line: Line) -> list[Part] | None:
    """Parse `item.started`, `item.updated` and `item.completed` of codex. An item is reported whole each time."""
    item = as_object(line.get("item"))
    key, kind = text_of(item, "id"), text_of(item, "type")
    match kind:
        case "agent_message":
            return [Text(text_of(item, "text"), key, is_complete=True)]
        case "reasoning":
            return [Reasoning(text_of(item, "text"), key, is_complete=True)]
        case "command_execution" | "file_change" | "mcp_tool_call" | "web_search":
            call = Call(key, _item_name(item), _item_arguments(item))
            return [call, _item_result(item)] if line["type"] == "item.completed" else [call]
        case _:
            return None


def _item_name(item: Line) -> str:
    return text_of(item, "tool") or text_of(item, "type")


def _item_arguments(item: Line) -> Any:
    if item.get("type") == "mcp_tool_call":
        return item.get("arguments")
    return {name: item[name] for name in ("command", "changes", "query") if name in item}


def _item_result(item: Line) -> CallResult:
    error = as_object(item.get("error"))
    output = error.get("message") or item.get("aggregated_output") or as_object(item.get("result")).get("content")
    is_error = bool(error) or item.get("status") in ("failed", "declined") or item.get("exit_code") not in (0, None)
    return CallResult(text_of(item, "id"), result_text(output) or text_of(item, "status"), is_error)


def _parse_completed_turn(line: Line) -> list[Part]:
    return [*parse_usage(line.get("usage")), TurnResult()]


def _parse_error(line: Line) -> list[Part]:
    error = as_object(line.get("error"))
    reported = [text_of(place, "message") for place in (line, error, as_object(error.get("data")))]
    return [Failure(next(filter(None, reported), "") or result_text(line.get("error") or line.get("errors")))]


def _parse_text(line: Line) -> list[Part]:
    """Parse `text`: of opencode a whole part of a message, else the next piece of text."""
    part = as_object(line.get("part"))
    if part:
        return [Text(text_of(part, "text"), text_of(part, "id"), is_complete=True)]
    return [Text(text_of(line, "text", "content"))]


def _parse_reasoning(line: Line) -> list[Part]:
    part = as_object(line.get("part"))
    if part:
        return [Reasoning(text_of(part, "text"), text_of(part, "id"), is_complete=True)]
    return [Reasoning(text_of(line, "text", "content"))]


def _parse_tool_use(line: Line) -> list[Part]:
    """Parse `tool_use`: of opencode a call with its result, else a call."""
    part = as_object(line.get("part"))
    if not part:
        arguments = line.get("parameters", line.get("input"))
        return [Call(text_of(line, "tool_id", "id"), text_of(line, "tool_name", "name"), arguments)]
    state, call_id = as_object(part.get("state")), text_of(part, "callID", "id")
    call = Call(call_id, text_of(part, "tool"), state.get("input"))
    match state.get("status"):
        case "completed":
            return [call, CallResult(call_id, result_text(state.get("output")))]
        case "error":
            return [call, CallResult(call_id, result_text(state.get("error")), is_error=True)]
        case _:
            return [call]


def _parse_tool_result(line: Line) -> list[Part]:
    error = as_object(line.get("error"))
    content = result_text(line.get("output", line.get("content"))) or text_of(error, "message")
    return [CallResult(text_of(line, "tool_id", "tool_use_id"), content, line.get("status") == "error")]


def _parse_finished_step(line: Line) -> list[Part]:
    part = as_object(line.get("part"))
    tokens = as_object(part.get("tokens"))
    usage = parse_usage({**tokens, **as_object(tokens.get("cache"))})
    return [*usage, TurnResult(parse_stop_reason(part.get("reason")))]


def _parse_message(line: Line) -> list[Part]:
    """Parse `message` of gemini: a piece of text if `delta` is true, else a whole message. That of the user is an echo."""
    if line.get("role") != "assistant":
        return []
    return [Text(result_text(line.get("content")), is_complete=line.get("delta") is not True)]


def _parse_result(line: Line) -> list[Part]:
    """Parse `result` of claude and gemini, the last line."""
    usage = parse_usage(line.get("usage") or line.get("stats"))
    reason = parse_stop_reason(line.get("subtype")) or parse_stop_reason(line.get("stop_reason"))
    has_failed = text_of(line, "subtype").startswith("error") or line.get("status") == "error"
    if (has_failed or line.get("is_error") is True) and reason != "max_turn_requests":
        return [*usage, *_parse_error({"message": text_of(line, "result"), **line})]
    return [*usage, TurnResult(reason, text_of(line, "result", "response"))]


def _parse_system(line: Line) -> list[Part] | None:
    return [] if line.get("subtype") == "init" else None


def _parse_assistant(line: Line) -> list[Part] | None:
    """Parse `assistant` of claude: blocks of a message. Those of a subagent are no part of the answer."""
    if line.get("parent_tool_use_id"):
        return None
    return [part for block in _message_blocks(line) for part in _parse_block(block)]


def _parse_block(block: Line) -> list[Part]:
    match block.get("type"):
        case "text":
            return [Text(text_of(block, "text"), is_complete=True)]
        case "thinking":
            return [Reasoning(text_of(block, "thinking"), is_complete=True)]
        case "tool_use":
            return [Call(text_of(block, "id"), text_of(block, "name"), block.get("input"))]
        case kind:
            return [Other(kind if isinstance(kind, str) else "block", block)]


def _parse_user(line: Line) -> list[Part] | None:
    """Parse `user` of claude: results of tool calls. Anything else is an echo of what the user wrote."""
    if line.get("parent_tool_use_id"):
        return None
    return [
        CallResult(text_of(block, "tool_use_id"), result_text(block.get("content")), block.get("is_error") is True)
        for block in _message_blocks(line)
        if block.get("type") == "tool_result"
    ]


def _message_blocks(line: Line) -> list[Line]:
    content = as_object(line.get("message")).get("content")
    return [as_object(block) for block in cast("list[Any]", content)] if isinstance(content, list) else []


def _parse_stream_event(line: Line) -> list[Part]:
    """Parse `stream_event` of claude: pieces of a block, which follows as a whole."""
    event = as_object(line.get("event"))
    delta = as_object(event.get("delta"))
    match event.get("type"), delta.get("type"):
        case _ if line.get("parent_tool_use_id"):
            return []
        case "content_block_start", _:
            return [BlockStart()]
        case "content_block_delta", "text_delta":
            return [Text(text_of(delta, "text"))]
        case "content_block_delta", "thinking_delta":
            return [Reasoning(text_of(delta, "thinking"))]
        case _:
            return []


_PARSERS: dict[str, Callable[[Line], list[Part] | None]] = {
    "thread.started": _ignore,
    "turn.started": _ignore,
    "item.started": _parse_item,
    "item.updated": _parse_item,
    "item.completed": _parse_item,
    "turn.completed": _parse_completed_turn,
    "turn.failed": _parse_error,
    "error": _parse_error,
    "init": _ignore,
    "step_start": _ignore,
    "step_finish": _parse_finished_step,
    "text": _parse_text,
    "reasoning": _parse_reasoning,
    "tool_use": _parse_tool_use,
    "tool_result": _parse_tool_result,
    "message": _parse_message,
    "result": _parse_result,
    "system": _parse_system,
    "assistant": _parse_assistant,
    "user": _parse_user,
    "stream_event": _parse_stream_event,
}
