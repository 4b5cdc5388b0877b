"""Calls that an ACP agent asks permission for, as permission rules and modes see them. Pure.

What an agent sends is its own choice: a command may be in the arguments, only in the title, or nowhere. Titles often quote what a model
wrote, so nothing is certain because a title says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.acp.modes import answers_without_asking, is_wider
from ambient_runner.bridges.toolkit.call_arguments import read_arguments
from ambient_runner.bridges.toolkit.command_files import edits_protected_path
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.permission_rules import RequestedCall, is_below, resolve_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.acp.modes import Mode
    from ambient_runner.bridges.toolkit.permission_rules import Resolve

__all__ = ["is_allowed_by_mode", "requested_call"]

_QUESTION_KIND = "switch_mode"
_QUESTIONS = frozenset(
    """
    askuser askuserquestion enterplanmode exitplanmode planenter planexit question requestpermissions requestuserinput
    """.split()  # noqa: SIM905
)
"""Tools with which agents ask a person something, without `_` and capitals. Codex' `request_permissions` asks for a wider sandbox."""


def requested_call(
    tool_call: Mapping[str, Any], *, agent: str, cwd: str, earlier: Mapping[str, Any] | None = None
) -> RequestedCall:
    """Return the call of a permission request (`toolCall`). `cwd` is the working directory of the session.

    `earlier` is what the agent has said about the call before. It may have changed since, so that is never certain, except the name.
    """
    before = as_object(earlier)
    kind, tool = _kind_of(tool_call) or _kind_of(before), _name_of(tool_call) or _name_of(before)
    found = read_arguments(kind, as_object(tool_call.get("rawInput")))
    known_before = read_arguments(kind, as_object(before.get("rawInput")))
    places = (*_places_of(tool_call), *_places_of(before))
    titles = tuple(title for title in (_text(tool_call.get("title")), _text(before.get("title"))) if title)
    names = (tool, *titles, *_mcp_names(tool_call), *_mcp_names(before), _id_prefix(tool_call))
    return RequestedCall(
        agent=agent,
        cwd=cwd,
        tool=tool,
        kind="" if kind == "execute" and _may_be_mcp(tool_call, before, tool) else kind,
        command=found.command,
        directory=found.directory,
        paths=(*found.paths, *places) if found.paths else (),
        possible_tools=tuple(name for name in names if name),
        possible_kinds=(kind,),
        possible_commands=(
            *found.possible_commands,
            *known_before.possible_commands,
            *(titles if kind == "execute" else ()),
        ),
        possible_paths=(*found.possible_paths, *known_before.possible_paths, *places),
        is_question=kind == _QUESTION_KIND or any(_normalize(name) in _QUESTIONS for name in names),
        is_escalation=found.is_escalation or known_before.is_escalation,
    )


def is_allowed_by_mode(mode: Mode, call: RequestedCall, resolve: Resolve = resolve_path) -> bool:
    """Return True if a mode allows a call without a person. Up to `accept-edits`, all its files must be in the working directory.

    `accept-edits` does not allow edits of files that make programs run commands. Only `yolo` allows a wider sandbox.
    """
    if call.is_question or not answers_without_asking(mode, call.kind):
        return False
    if is_wider(mode, "accept-edits"):
        return mode == "yolo" or not call.is_escalation
    if not call.paths or edits_protected_path(call, resolve):
        return False
    return all(is_below(path, call.cwd, call.cwd, resolve) for path in call.paths)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _kind_of(tool_call: Mapping[str, Any]) -> str:
    return _text(tool_call.get("kind"))


def _name_of(tool_call: Mapping[str, Any]) -> str:
    """Return the tool's name as the agent's own code gives it; empty if it does not."""
    claude = as_object(as_object(tool_call.get("_meta")).get("claudeCode"))
    return _text(tool_call.get("name")) or _text(claude.get("toolName"))


def _mcp_names(tool_call: Mapping[str, Any]) -> tuple[str, ...]:
    """Return names of an MCP tool, from the arguments that Codex gives: `{server, tool, arguments}`."""
    arguments = as_object(tool_call.get("rawInput"))
    server, tool = _text(arguments.get("server")), _text(arguments.get("tool"))
    return (f"mcp__{server}__{tool}", tool) if server and tool else ()


def _may_be_mcp(tool_call: Mapping[str, Any], before: Mapping[str, Any], tool: str) -> bool:
    """Return True if a call of kind `execute` may be that of an MCP tool: Codex gives those the same kind, and at first nothing else."""
    if tool:
        return tool.startswith("mcp")
    arguments = as_object(tool_call.get("rawInput")) or as_object(before.get("rawInput"))
    title = _text(tool_call.get("title")) or _text(before.get("title"))
    return ("server" in arguments and "tool" in arguments) or title.startswith("mcp.") or not (arguments or title)


def _id_prefix(tool_call: Mapping[str, Any]) -> str:
    """Return the name of the tool that Gemini's ids begin with, such as `run_shell_command__…`."""
    return _text(tool_call.get("toolCallId")).partition("__")[0]


def _normalize(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(" ", "").casefold()


def _places_of(tool_call: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of the call's locations and diffs."""
    items = [*_list(tool_call.get("locations")), *_list(tool_call.get("content"))]
    return tuple(path for path in (_text(as_object(item).get("path")) for item in items) if path)


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
