"""Approvals of LangChain's HumanInTheLoopMiddleware, both ways: its requests in AG-UI's terms, and answers as its decisions. Pure.

The middleware asks about all calls of a turn at once (`action_requests`), or in its mode `per_call` about each one. It does not check an
answer to the former, so this package does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.langgraph.decisions import UnclearAnswer, listed_decisions, to_decision, to_rejection
from ambient_runner.bridges.langgraph.errors import InvalidAnswer
from ambient_runner.bridges.toolkit.interrupts import DECLINED, approval_schema
from ambient_runner.bridges.toolkit.json_values import as_object, to_json_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

__all__ = ["ApprovalRequest", "ReviewedCall", "parse_approval"]

_ALL_DECISIONS = ("approve", "edit", "reject")
"""Decisions that are allowed if a request does not list them."""
_SINGLE_DECISIONS = ("edit", "respond")
"""Decisions that cannot be meant for several calls at once."""
_TEXT_SCHEMA = {"type": "string"}
_MAX_SHOWN = 200
"""Characters of a client's value, and of an example, in an error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewedCall:
    """A tool call that a person reviews, and the decisions that are allowed for it."""

    name: str
    arguments: dict[str, Any]
    allowed: tuple[str, ...] = _ALL_DECISIONS
    description: str = ""
    tool_call_id: str | None = None

    def to_metadata(self) -> dict[str, Any]:
        """Return the call as clients read it in the metadata of the interrupt."""
        identified = {"toolCallId": self.tool_call_id} if self.tool_call_id else {}
        return {**identified, "name": self.name, "arguments": self.arguments, "allowedDecisions": list(self.allowed)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRequest:
    """A request to review calls. `is_batch` is True if it is answered with a list of decisions, one for each call."""

    calls: tuple[ReviewedCall, ...]
    is_batch: bool = True
    tool_names: Collection[str] = ()
    """The graph's tools, to one of which an edit may change a call; empty if they are not known."""

    @property
    def message(self) -> str:
        return "\n\n".join(call.description or f"Approve the call to {call.name}?" for call in self.calls)

    @property
    def response_schema(self) -> dict[str, Any]:
        """The JSON Schema of the answer for all calls: `approved`, and what else the decisions allow. `decisions` if none is for all."""
        kinds, more = self._shared_kinds(), dict[str, dict[str, Any]]()
        if not kinds:
            return _object_schema("decisions", _decisions_schema(len(self.calls)))
        if "edit" in kinds:
            more["editedArgs"] = {"type": "object"}
        if "reject" in kinds:
            more["message"] = {"type": "string"}
        if "respond" not in kinds:
            return approval_schema(**more)
        if kinds == {"respond"}:
            return _object_schema("response", _TEXT_SCHEMA)
        either: list[dict[str, Any]] = [{"required": ["approved"]}, {"required": ["response"]}]
        return {**approval_schema(**more, response=_TEXT_SCHEMA), "required": [], "oneOf": either}

    def with_tool_call_ids(
        self, open_calls: Iterable[tuple[str, str, Any]], client_call_id: Callable[[str], str]
    ) -> ApprovalRequest:
        """Return the request with the clients' ids of its calls. `open_calls` are the unanswered calls: id, name and arguments."""
        candidates = list(open_calls)
        if self.is_batch:
            return replace(self, calls=tuple(_identify_call(call, candidates) for call in self.calls))
        return replace(self, calls=tuple(_with_client_id(call, client_call_id) for call in self.calls))

    def to_answer(self, payload: Any) -> Any:
        """Return a client's answer as the middleware expects it. Raises: InvalidAnswer."""
        try:
            listed = listed_decisions(payload)
            decisions = self._shared_decisions(payload) if listed is None else self._listed_decisions(listed)
        except UnclearAnswer as error:
            raise self._invalid_answer(str(error)) from None
        return {"decisions": decisions} if self.is_batch else decisions[0]

    def to_cancelled(self) -> Any:
        """Return the answer for a cancelled interrupt: every call is rejected. None if one of them cannot be."""
        if "reject" not in self._shared_kinds():
            return None
        decisions = [to_rejection(DECLINED) for _ in self.calls]
        return {"decisions": decisions} if self.is_batch else decisions[0]

    def _shared_kinds(self) -> set[str]:
        """Return the decisions that one answer can make on all calls."""
        allowed = set[str].intersection(*(set(call.allowed) for call in self.calls))
        return allowed if len(self.calls) == 1 else allowed.difference(_SINGLE_DECISIONS)

    def _listed_decisions(self, answers: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the decisions of an answer with one for each call. Raises: UnclearAnswer."""
        if len(answers) != len(self.calls):
            raise UnclearAnswer(f"it has {len(answers)} decisions for {len(self.calls)} tool calls")
        return [self._check_decision(call, answer) for call, answer in zip(self.calls, answers, strict=True)]

    def _shared_decisions(self, answer: Any) -> list[dict[str, Any]]:
        """Return the decisions of an answer for all calls. Raises: UnclearAnswer."""
        decisions = [self._check_decision(call, answer) for call in self.calls]
        single = next((item["type"] for item in decisions if item["type"] in _SINGLE_DECISIONS), None)
        if len(decisions) > 1 and single:
            raise UnclearAnswer(f"a decision {single!r} is for one of the {len(decisions)} tool calls")
        return decisions

    def _check_decision(self, call: ReviewedCall, answer: Any) -> dict[str, Any]:
        """Return the decision on one call. Raises: UnclearAnswer, also if it is not allowed."""
        decision = to_decision(call, answer)
        if decision["type"] not in call.allowed:
            raise UnclearAnswer(
                f"the decision {_shorten(decision['type'])!r} is not allowed for the call to {call.name}"
            )
        name = decision.get("edited_action", {}).get("name", call.name)
        if self.tool_names and name not in {call.name, *self.tool_names}:
            raise UnclearAnswer(f"the agent has no tool {_shorten(name)!r}")
        return decision

    def _invalid_answer(self, reason: str) -> InvalidAnswer:
        return InvalidAnswer(
            f"The answer does not fit the approval: {reason}. The interrupt is still open. Send one of: "
            f"{', '.join(self._fitting_answers())}."
        )

    def _fitting_answers(self) -> list[str]:
        """Return the answers that fit."""
        kinds = self._shared_kinds()
        examples: list[dict[str, Any]] = [{"approved": True}] if "approve" in kinds else []
        if "edit" in kinds:
            examples.append({"approved": True, "editedArgs": _example_arguments(self.calls[0])})
        if "reject" in kinds:
            examples.append({"approved": False, "message": "why"})
        if "respond" in kinds:
            examples.append({"response": "text"})
        if self.is_batch:
            examples.append({"decisions": [_example_decision(call) for call in self.calls]})
        return [f"`{_shorten(to_json_text(example))}`" for example in examples]


def parse_approval(value: Any, response_schema: Any = None, tool_names: Collection[str] = ()) -> ApprovalRequest | None:
    """Return the request in the value of an interrupt; None if it is not one of the middleware."""
    members = as_object(value)
    if members.get("type") == "tool_approval" and isinstance(members.get("name"), str):
        return ApprovalRequest(calls=(_single_call(members, as_object(response_schema)),), is_batch=False)
    actions = _objects_in(members.get("action_requests"))
    if not actions or not all(isinstance(action.get("name"), str) for action in actions):
        return None
    configs = {config.get("action_name"): config for config in _objects_in(members.get("review_configs"))}
    calls = tuple(_batched_call(action, configs.get(action["name"], {})) for action in actions)
    return ApprovalRequest(calls=calls, tool_names=tool_names)


def _batched_call(action: Mapping[str, Any], config: Mapping[str, Any]) -> ReviewedCall:
    allowed = [kind for kind in config.get("allowed_decisions") or () if isinstance(kind, str)]
    return ReviewedCall(
        name=action["name"],
        arguments=as_object(action.get("args", action.get("arguments"))),
        allowed=tuple(allowed) or _ALL_DECISIONS,
        description=str(action.get("description") or config.get("description") or ""),
    )


def _single_call(request: Mapping[str, Any], response_schema: Mapping[str, Any]) -> ReviewedCall:
    branches = [response_schema, *as_object(response_schema.get("$defs")).values()]
    kinds = [as_object(as_object(as_object(branch).get("properties")).get("type")).get("const") for branch in branches]
    call_id = request.get("tool_call_id")
    return ReviewedCall(
        name=request["name"],
        arguments=as_object(request.get("args")),
        allowed=tuple(kind for kind in kinds if isinstance(kind, str)) or _ALL_DECISIONS,
        description=str(request.get("description") or ""),
        tool_call_id=call_id if isinstance(call_id, str) else None,
    )


def _identify_call(call: ReviewedCall, candidates: list[tuple[str, str, Any]]) -> ReviewedCall:
    """Return the call with the id of the first open one with its name and arguments, which is removed from `candidates`."""
    found = next((known for known in candidates if known[1:] == (call.name, call.arguments)), None)
    if found is None:
        return call
    candidates.remove(found)
    return replace(call, tool_call_id=found[0])


def _with_client_id(call: ReviewedCall, client_call_id: Callable[[str], str]) -> ReviewedCall:
    return replace(call, tool_call_id=client_call_id(call.tool_call_id)) if call.tool_call_id else call


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _example_decision(call: ReviewedCall) -> dict[str, Any]:
    """Return the first decision that is allowed, in the middleware's form."""
    match call.allowed[0]:
        case "edit":
            return {"type": "edit", "edited_action": {"name": call.name, "args": _example_arguments(call)}}
        case "respond":
            return {"type": "respond", "message": "text"}
        case kind:
            return {"type": kind}


def _example_arguments(call: ReviewedCall) -> dict[str, str]:
    """Return the names of the arguments. An error repeats no values: not everybody who answers may see them."""
    return dict.fromkeys(call.arguments, "…")


def _object_schema(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: schema}, "required": [name]}


def _decisions_schema(count: int) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object"}, "minItems": count, "maxItems": count}


def _objects_in(value: Any) -> list[dict[str, Any]]:
    return [as_object(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []
