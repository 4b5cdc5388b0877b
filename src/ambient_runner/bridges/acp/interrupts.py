"""Interrupts both ways: permission requests and elicitations of an agent as AG-UI interrupts, and answers as the agent expects them.

A request is live: a process waits for its answer, and nothing of it outlives that process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast
from uuid import uuid4

from ambient_runner.bridges.acp.elicitations import (
    ELICITATION_CANCELLED,
    answer_elicitation,
    check_form,
    form_schema,
)
from ambient_runner.bridges.toolkit.interrupts import approval_schema, check_approval, check_members, expires_at
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.errors import InvalidInput
from ambient_runner.protocol.events import Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ambient_runner.processes.json_rpc import RequestId
    from ambient_runner.protocol.events import ResumeEntry

__all__ = [
    "CANCELLED",
    "AgentRequest",
    "check_answer",
    "choose_option",
    "decline_message",
    "is_executed",
    "selected",
    "to_interrupt",
    "to_response",
]

CANCELLED: dict[str, Any] = {"outcome": {"outcome": "cancelled"}}
"""The response to a permission request that nobody answers."""
_EXPECTED_OPTION = 'Send {"optionId": "…"}, or {"approved": true} or {"approved": false}.'


Kind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


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

    @property
    def options(self) -> list[dict[str, str]]:
        """The options of a permission request that can be chosen: those with an id, a kind, and no other kind under the same id."""
        options: Any = self.params.get("options")
        found = [as_object(item) for item in cast("list[Any]", options)] if isinstance(options, list) else []
        complete = [option for option in found if _text(option.get("optionId")) and _text(option.get("kind"))]
        kinds: dict[str, set[str]] = {}
        for option in complete:
            kinds.setdefault(option["optionId"], set()).add(option["kind"])
        clear = {option["optionId"]: option for option in reversed(complete) if len(kinds[option["optionId"]]) == 1}
        return [
            {"optionId": name, "name": str(clear[name].get("name") or ""), "kind": clear[name]["kind"]}
            for name in kinds
            if name in clear
        ]

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
        url = request.params.get("url")
        return Interrupt(
            id=request.id,
            reason="input_required",
            message=_text(request.params.get("message")) or f"{agent} needs your input.",
            tool_call_id=tool_call_id,
            response_schema=form_schema(request.params),
            expires_at=expires,
            metadata={"url": url} if isinstance(url, str) else None,
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
    check_form(as_object(interrupt.response_schema), payload)


def choose_option(options: Sequence[Mapping[str, str]], payload: Any) -> str | None:
    """Return the id of the option that an answer chooses: the one it names, or the only one of the kind it means.

    None for a rejection that is not offered as an option. A missing "always" is a single approval.
    Raises: InvalidInput if the answer is malformed, or if no offered option is meant, or more than one.
    """
    members = check_members(payload, _EXPECTED_OPTION, optionId=str)
    if "editedArgs" in members:
        raise InvalidInput(
            "This agent does not take other arguments. Decline, and say with `message` what it should do."
        )
    if "optionId" in members:
        return _named_option(options, check_members(members, _EXPECTED_OPTION, approved=bool, message=str, always=bool))
    answer = check_approval(members)
    if not answer["approved"]:
        return _option_of_kind(options, "reject_once") or _option_of_kind(options, "reject_always")
    kinds: tuple[Kind, ...] = ("allow_always", "allow_once") if answer.get("always") else ("allow_once",)
    for kind in kinds:
        if option_id := _option_of_kind(options, kind):
            return option_id
    raise InvalidInput(f"No offered option allows this as you said. {_offered(options)}")


def _named_option(options: Sequence[Mapping[str, str]], answer: Mapping[str, Any]) -> str:
    chosen = next((option for option in options if option.get("optionId") == answer["optionId"]), None)
    if chosen is None:
        raise InvalidInput(f"This option was not offered. {_offered(options)}")
    if answer.get("approved", _is_allowing(chosen)) != _is_allowing(chosen):
        raise InvalidInput("`approved` contradicts the option that `optionId` names. Send one of them.")
    return chosen["optionId"]


def _option_of_kind(options: Sequence[Mapping[str, str]], kind: Kind) -> str | None:
    """Return the option of this kind; None if there is none. Raises: InvalidInput if there are several that allow something."""
    found = [option["optionId"] for option in options if option.get("kind") == kind]
    if len(found) > 1 and kind.startswith("allow"):
        raise InvalidInput(f"Several options mean this. {_offered(options)}")
    return found[0] if found else None


def _offered(options: Sequence[Mapping[str, str]]) -> str:
    if not options:
        return "The agent offers nothing that can be chosen without doubt, so it can only be declined."
    return f"Name one with `optionId`: {', '.join(str(option.get('optionId')) for option in options)}."


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
    return any(_is_allowing(option) for option in request.options if option["optionId"] == chosen)


def _is_allowing(option: Mapping[str, str]) -> bool:
    """Return True for an option of any kind that does not reject, also of one that is not known."""
    return not str(option.get("kind")).startswith("reject")


def decline_message(entry: ResumeEntry | None) -> str:
    """Return what the user said with a rejection, for the agent; empty if nothing."""
    return "" if entry is None else _text(as_object(entry.payload).get("message"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
