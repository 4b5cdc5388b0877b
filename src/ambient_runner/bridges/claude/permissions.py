"""Permission rules for the calls of one CLI process: they answer its permission requests, and check calls it would not ask about."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from claude_agent_sdk import HookMatcher, PermissionResultAllow, PermissionResultDeny

from ambient_runner.bridges.claude.client_tools import client_tool_name
from ambient_runner.bridges.toolkit.call_arguments import read_arguments
from ambient_runner.bridges.toolkit.command_files import edits_protected_path
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.permission_rules import RequestedCall, decide

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from claude_agent_sdk import HookContext, HookInput, HookJSONOutput, PermissionResult
    from claude_agent_sdk.types import HookEvent

    from ambient_runner.bridges.toolkit.permission_rules import Decision
    from ambient_runner.config import PermissionRule

__all__ = ["DENIED_BY_RULE", "RuleAnswers", "requested_call"]

logger = logging.getLogger(__name__)

DENIED_BY_RULE = "A rule of this server does not allow this call. Go on without it, or say why you need it."
_ASKED_BY_RULE = "A rule of this server requires a person's permission for this call."
_ASKED_FOR_FILE = "This file can make programs run commands, so a person has to allow the edit."

_KINDS = {
    "Bash": "execute",
    "Edit": "edit",
    "Glob": "search",
    "Grep": "search",
    "Monitor": "execute",
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "Read": "read",
    "WebFetch": "fetch",
    "WebSearch": "fetch",
    "Write": "edit",
}
_QUESTIONS = frozenset({"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"})
"""Tools with which Claude asks a person something."""
_EDITING_TOOLS = "|".join(tool for tool, kind in _KINDS.items() if kind in ("edit", "execute"))
"""Pattern of the tools that may edit a file."""


def requested_call(tool: str, arguments: Mapping[str, Any], *, agent: str, cwd: str) -> RequestedCall:
    """Return a call of one of the CLI's tools, or of a tool of an MCP server. `cwd` is the directory of the process."""
    kind = _KINDS.get(tool, "other")
    found = read_arguments(kind, arguments)
    return RequestedCall(
        agent=agent,
        cwd=cwd,
        tool=tool,
        kind=kind,
        command=found.command,
        directory=found.directory,
        paths=found.paths,
        possible_tools=(client_tool_name(tool),),
        possible_commands=found.possible_commands,
        possible_paths=found.possible_paths,
        is_question=tool in _QUESTIONS,
        is_escalation=found.is_escalation,
    )


@dataclass(frozen=True, slots=True)
class RuleAnswers:
    """The rules for one process. `agent` returns the name of the agent, which the process gets with its run.

    With `accepts_edits` the CLI does not ask about edits. Those of files that make programs run commands are asked about all the same,
    unless the tool is one of `allowed_tools`.
    """

    rules: Sequence[PermissionRule]
    cwd: str
    thread_id: str
    agent: Callable[[], str]
    accepts_edits: bool = False
    allowed_tools: Collection[str] = ()

    def answer(self, tool: str, arguments: dict[str, Any]) -> PermissionResult | None:
        """Return the answer to a permission request; None if a person has to give it."""
        decision = self._decide(tool, arguments)
        if decision is None or decision.behavior == "ask":
            return None
        self._log(tool, decision)
        if decision.behavior == "allow":
            return PermissionResultAllow(updated_input=arguments)
        return PermissionResultDeny(message=DENIED_BY_RULE)

    def add_hook(
        self, hooks: Mapping[HookEvent, list[HookMatcher]] | None
    ) -> dict[HookEvent, list[HookMatcher]] | None:
        """Return hooks that also apply the rules that ask or deny to calls for which the CLI needs no permission."""
        has_restrictions = any(rule.decide != "allow" for rule in self.rules)
        if not has_restrictions and not self.accepts_edits:
            return None if hooks is None else dict(hooks)
        own = HookMatcher(matcher=None if has_restrictions else _EDITING_TOOLS, hooks=[self._check_call])
        return {**(hooks or {}), "PreToolUse": [*(hooks or {}).get("PreToolUse", []), own]}

    async def _check_call(self, call: HookInput, call_id: str | None, context: HookContext) -> HookJSONOutput:
        members = as_object(call)
        tool = str(members.get("tool_name"))
        arguments = as_object(members.get("tool_input"))
        decision = self._decide(tool, arguments)
        if decision is None:
            return _hook_output("ask", _ASKED_FOR_FILE) if self._is_protected(tool, arguments) else {}
        if decision.behavior == "allow":
            return {}
        self._log(tool, decision)
        return _hook_output(decision.behavior, DENIED_BY_RULE if decision.behavior == "deny" else _ASKED_BY_RULE)

    def _decide(self, tool: str, arguments: Mapping[str, Any]) -> Decision | None:
        return decide(self.rules, self._requested_call(tool, arguments))

    def _is_protected(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Return True if the mode accepts the edit, and must not."""
        is_accepted = self.accepts_edits and tool not in self.allowed_tools
        return is_accepted and edits_protected_path(self._requested_call(tool, arguments))

    def _requested_call(self, tool: str, arguments: Mapping[str, Any]) -> RequestedCall:
        return requested_call(tool, arguments, agent=self.agent(), cwd=self.cwd)

    def _log(self, tool: str, decision: Decision) -> None:
        logger.info("Thread %s: a permission rule applies to a call of %s: %s", self.thread_id, tool, decision.rule)


def _hook_output(behavior: str, reason: str) -> HookJSONOutput:
    output = {"permissionDecision": behavior, "permissionDecisionReason": reason}
    return cast("HookJSONOutput", {"hookSpecificOutput": {"hookEventName": "PreToolUse", **output}})
