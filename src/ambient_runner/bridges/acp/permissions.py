"""Permission requests that need no person: calls of the client's own tools, and what the mode or a rule decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ambient_runner.bridges.acp.interrupts import CANCELLED, AgentRequest, selected
from ambient_runner.bridges.acp.permission_calls import is_allowed_by_mode, requested_call
from ambient_runner.bridges.acp.permission_options import choose_option
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.bridges.toolkit.permission_rules import decide
from ambient_runner.errors import InvalidInput
from ambient_runner.protocol.events import Custom

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ambient_runner.bridges.acp.launch import Launch
    from ambient_runner.bridges.acp.translate import ToolCallRecord, Translator
    from ambient_runner.protocol.events import Event
    from ambient_runner.runs.run import Run

__all__ = ["LIMIT_REACHED", "PermissionDecision", "answer_event", "decide_request"]

LIMIT_REACHED = "Too many agents wait for an answer already. Answer them first, or let the operator raise `parked`."
"""Reason for the rejection of a request that nobody is asked about."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PermissionDecision:
    """A request that was answered without a person, and who answered it."""

    request: AgentRequest
    choice: Literal["allow", "reject"]
    by: Literal["client_tool", "mode", "rule", "limit"]

    def carry_out(self) -> None:
        """Answer the request."""
        self.request.resolve(self._response())

    def events(self, translator: Translator) -> list[Event]:
        """Return the event that tells the thread who decided; nothing for the client's own tools."""
        if self.by == "client_tool":
            return []
        record = translator.record_of(self.request.call_id)
        value: dict[str, Any] = {"decision": self.choice, "by": self.by}
        if self.by == "limit":
            value["message"] = LIMIT_REACHED
        if record is not None and record.is_started:
            value["toolCallId"] = record.client_id
        return [Custom(name="acp:permission", value=value)]

    def _response(self) -> dict[str, Any]:
        if self.request.is_elicitation:
            return {"action": "cancel"}
        option_id = _option_for(self.request, self.choice) or (self.by == "client_tool" and self._allowing_option())
        return selected(option_id) if option_id else CANCELLED

    def _allowing_option(self) -> str | None:
        """Return any option that allows the call."""
        allowing = (option["optionId"] for option in self.request.options if option["kind"].startswith("allow"))
        return next(allowing, None)


def _option_for(request: AgentRequest, choice: Literal["allow", "reject"]) -> str | None:
    """Return the option for a single decision; None if there is not exactly one."""
    try:
        return choose_option(request.options, {"approved": choice == "allow"})
    except InvalidInput:
        return None


def answer_event(
    response: Mapping[str, Any],
    record: ToolCallRecord | None,
    run: Run | None,
    *,
    is_allowed: bool,
    status: Literal["resolved", "cancelled"] | None,
) -> Event:
    """Return the event that tells the thread how a permission request was answered, and by whom.

    `status` is that of the answer. Without one, the interrupt has expired; cancelled is not answered either.
    """
    by = {"resolved": "person", "cancelled": "cancelled", None: "expired"}[status]
    value: dict[str, Any] = {"decision": "allow" if is_allowed else "reject", "by": by}
    if option_id := as_object(response.get("outcome")).get("optionId"):
        value["optionId"] = option_id
    if record is not None and record.is_started:
        value["toolCallId"] = record.client_id
    if run is not None and by == "person":
        value["answeredBy"] = {"tenant": run.actor.tenant, "owner": run.actor.owner}
    return Custom(name="acp:permission", value=value)


def decide_request(
    request: AgentRequest, launch: Launch, earlier: Mapping[str, Any], *, is_client_tool: bool
) -> PermissionDecision | None:
    """Return the decision on a permission request that no person has to make; None if one has to.

    `earlier` is what the agent has reported of the call before.
    """
    if is_client_tool:
        return PermissionDecision(request=request, choice="allow", by="client_tool")
    call = requested_call(request.tool_call, agent=launch.agent, cwd=launch.cwd, earlier=earlier)
    decision = decide(launch.permissions, call)
    if decision is not None and decision.behavior == "deny":
        return PermissionDecision(request=request, choice="reject", by="rule")
    is_allowed_by_rule = decision is not None and decision.behavior == "allow"
    is_allowed = is_allowed_by_rule or (decision is None and is_allowed_by_mode(launch.options.mode, call))
    if not is_allowed or _option_for(request, "allow") is None:
        return None
    return PermissionDecision(request=request, choice="allow", by="rule" if is_allowed_by_rule else "mode")
