"""Permission rules for the calls of one CLI process: they answer its permission requests, and check calls it would not ask about."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from claude_agent_sdk import HookMatcher, PermissionResultAllow, PermissionResultDeny

from ambient_runner.bridges.claude.client_tools import client_tool_name
from ambient_runner.bridges.toolkit.call_arguments import read_arguments
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.permission_rules import RequestedCall, decide

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from claude_agent_sdk import HookContext, HookInput, HookJSONOutput, PermissionResult
    from claude_agent_sdk.types import HookEvent

    from ambient_runner.bridges.toolkit.permission_rules import Decision
    from ambient_runner.config import PermissionRule

__all__ = ["DENIED_BY_RULE", "RuleAnswers", "requested_call"]

logger = logging.getLogger(__name__)

DENIED_BY_RULE = "A rule of this server does not allow this call. Go on without it, or say why you need it."
_ASKED_BY_RULE = "A rule of this server requires a person's permission for this call."

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
    """The rules for one process. `agent` returns the name of the agent, which the process gets with its run."""

    rules: Sequence[PermissionRule]
    cwd: str
    thread_id: str
    agent: Callable[[], str]

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
        if all(rule.decide == "allow" for rule in self.rules):
            return None if hooks is None else dict(hooks)
        own = HookMatcher(hooks=[self._check_call])
        return {**(hooks or {}), "PreToolUse": [*(hooks or {}).get("PreToolUse", []), own]}

    async def _check_call(self, call: HookInput, call_id: str | None, context: HookContext) -> HookJSONOutput:
        members = as_object(call)
        tool = str(members.get("tool_name"))
        decision = self._decide(tool, as_object(members.get("tool_input")))
        if decision is None or decision.behavior == "allow":
            return {}
        self._log(tool, decision)
        reason = DENIED_BY_RULE if decision.behavior == "deny" else _ASKED_BY_RULE
        output = {"permissionDecision": decision.behavior, "permissionDecisionReason": reason}
        return cast("HookJSONOutput", {"hookSpecificOutput": {"hookEventName": "PreToolUse", **output}})

    def _decide(self, tool: str, arguments: Mapping[str, Any]) -> Decision | None:
        return decide(self.rules, requested_call(tool, arguments, agent=self.agent(), cwd=self.cwd))

    def _log(self, tool: str, decision: Decision) -> None:
        logger.info("Thread %s: a permission rule applies to a call of %s: %s", self.thread_id, tool, decision.rule)
