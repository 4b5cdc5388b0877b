"""Interrupts both ways: permission requests and elicitations of an agent as AG-UI interrupts, and answers as the agent expects them.

A request is live: a process waits for its answer, and nothing of it outlives that process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from ambient_runner.bridges.acp.elicitations import (
    ELICITATION_CANCELLED,
    answer_elicitation,
    answer_schema,
    check_elicitation_answer,
)
from ambient_runner.bridges.acp.permission_options import MAX_OPTIONS, choose_option, is_allowing, read_options
from ambient_runner.bridges.toolkit.interrupts import approval_schema, expires_at, read_approval
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.protocol.events import Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ambient_runner.processes.json_rpc_messages import RequestId
    from ambient_runner.protocol.events import ResumeEntry

__all__ = [
    "CANCELLED",
    "AgentRequest",
    "check_answer",
    "decline_message",
    "is_executed",
    "selected",
    "to_interrupt",
    "to_response",
]

CANCELLED: dict[str, Any] = {"outcome": {"outcome": "cancelled"}}
"""The response to a permission request that nobody answers."""


@dataclass(kw_only=True, slots=True, eq=False)
class AgentRequest:
    """A request of the agent that a person answers: for permission to make a call, or for input (an elicitation)."""

    rpc_id: RequestId
    is_elicitation: bool
    params: Mapping[str, Any]
    respond: Callable[[Any], None] = field(repr=False)
    """Sends the response. It is called once."""
    child_session: str | None = None
    """The id of the session of the subagent that asks; None for the agent itself."""
    on_resolved: Callable[[AgentRequest], None] | None = field(default=None, repr=False)
    """Called once, before the response is sent."""
    received_at: float | None = None
    """Monotonic time at which a run received it."""
    is_shown: bool = False
    """True once a run has ended with it. Only then can an answer be for it."""
    is_open: bool = True
    id: str = field(default_factory=lambda: f"acp-{uuid4()}")
    options: list[dict[str, str]] = field(init=False, repr=False)
    """The options of a permission request that can be chosen."""
    left_out_options: int = field(init=False)
    """Number of options that are not offered, because there are too many."""

    def __post_init__(self) -> None:
        options = read_options(self.params.get("options"))
        self.options, self.left_out_options = options[:MAX_OPTIONS], max(0, len(options) - MAX_OPTIONS)

    @property
    def tool_call(self) -> Mapping[str, Any]:
        """The `toolCall` of a permission request."""
        return as_object(self.params.get("toolCall"))

    @property
    def call_id(self) -> str:
        """The agent's id of the call it is about; empty if there is none."""
        source = self.params if self.is_elicitation else self.tool_call
        value = source.get("toolCallId")
        return value if isinstance(value, str) else ""

    def resolve(self, response: Any) -> None:
        """Send the response, unless it was sent or withdrawn."""
        if not self.is_open:
            return
        self.is_open = False
        if self.on_resolved is not None:
            self.on_resolved(self)
        self.respond(response)

    def cancel(self) -> None:
        self.resolve(ELICITATION_CANCELLED if self.is_elicitation else CANCELLED)


def to_interrupt(
    request: AgentRequest,
    *,
    seconds: float,
    agent: str,
    tool_call_id: str | None,
    tool: str,
    subagent_id: str | None,
    arguments: Any = None,
) -> Interrupt:
    """Return the AG-UI interrupt. `tool_call_id` and `tool` are the id of the call and the name of the tool for clients.

    `arguments` are those of the call, if they are others than clients have.
    """
    expires = expires_at(seconds)
    if request.is_elicitation:
        return Interrupt(
            id=request.id,
            reason="input_required",
            message=_text(request.params.get("message")) or f"{agent} needs your input.",
            tool_call_id=tool_call_id,
            response_schema=answer_schema(request.params),
            expires_at=expires,
            metadata={"url": request.params["url"]} if "url" in request.params else None,
            subagent_run_id=subagent_id,
        )
    return Interrupt(
        id=request.id,
        reason="tool_call",
        message=f"{agent} wants to use {tool}.",
        tool_call_id=tool_call_id,
        response_schema=_permission_schema(request.options),
        expires_at=expires,
        metadata={
            "tool": tool,
            "options": request.options,
            **({"arguments": arguments} if arguments is not None else {}),
        },
        subagent_run_id=subagent_id,
    )


def _permission_schema(options: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    schema = approval_schema(always={"type": "boolean"}, message={"type": "string"})
    if not options:
        return schema
    named = {"type": "string", "enum": [option["optionId"] for option in options]}
    either = [{"required": ["approved"]}, {"required": ["optionId"]}]
    return {"type": "object", "properties": {**schema["properties"], "optionId": named}, "anyOf": either}


def check_answer(interrupt: Interrupt, payload: Any) -> None:
    """Return if the answer fits the interrupt: it chooses an option that was offered, or fills in the form. Raises: InvalidInput."""
    if interrupt.reason == "tool_call":
        options = as_object(interrupt.metadata).get("options")
        if isinstance(options, list):  # They may have been too large to be stored.
            choose_option([as_object(option) for option in cast("list[Any]", options)], payload)
        return
    is_at_url = "url" in as_object(interrupt.metadata)
    check_elicitation_answer(as_object(interrupt.response_schema), payload, is_at_url=is_at_url)


def to_response(request: AgentRequest, entry: ResumeEntry | None) -> dict[str, Any]:
    """Return the response to the agent. Raises: InvalidInput as `choose_option`."""
    if entry is None or entry.status == "cancelled":
        return ELICITATION_CANCELLED if request.is_elicitation else _declined(request)
    if request.is_elicitation:
        return answer_elicitation(request.params, entry.payload)
    option_id = choose_option(request.options, entry.payload)
    return CANCELLED if option_id is None else selected(option_id)


def selected(option_id: str) -> dict[str, Any]:
    """Return the response to a permission request that selects an option."""
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


def _declined(request: AgentRequest) -> dict[str, Any]:
    option_id = choose_option(request.options, {"approved": False})
    return CANCELLED if option_id is None else selected(option_id)


def is_executed(request: AgentRequest, response: Mapping[str, Any]) -> bool:
    """Return True if the response lets the agent make the call."""
    chosen = as_object(response.get("outcome")).get("optionId")
    return any(is_allowing(option) for option in request.options if option["optionId"] == chosen)


def decline_message(entry: ResumeEntry | None) -> str:
    """Return what the user said with a rejection, for the agent; empty if nothing."""
    return "" if entry is None else _text(as_object(read_approval(entry.payload)).get("message"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
