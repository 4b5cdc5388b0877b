"""Answers to an approval as decisions of LangChain's HumanInTheLoopMiddleware. Pure.

An answer runs a call only if it says so and nothing else: one that contradicts itself, or has a member of the wrong type, is refused.
`approvals.py` checks what the request allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ambient_runner.bridges.toolkit.json_values import as_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ambient_runner.bridges.langgraph.approvals import ReviewedCall

__all__ = ["UnclearAnswer", "listed_decisions", "to_decision", "to_rejection"]

_DECISION_NAMES = ("approve", "edit", "reject")
"""Decisions that an answer may name without an object."""
_FORM_KEYS = ("approved", "type", "response", "decisions")
"""The forms of an answer by the key that each is recognized by."""
_EDIT_KEYS = ("editedArgs", "edited_args", "args", "arguments")
_ACTION_KEY = "edited_action"
_MESSAGE_KEYS = ("message", "reason", "feedback")


class UnclearAnswer(Exception):
    """The answer is no decision, or may be meant as several. The message is the reason."""


def listed_decisions(answer: Any) -> Sequence[Any] | None:
    """Return the answers for each call, if the answer is or has a list of them. Raises: UnclearAnswer."""
    if isinstance(answer, list):
        return cast("list[Any]", answer)
    members = _given_members(answer)
    if _form_of(members) != "decisions":
        return None
    listed = members["decisions"]
    if not isinstance(listed, list):
        raise UnclearAnswer("`decisions` is not a list")
    _refuse_edits(members, "`decisions`")
    return cast("list[Any]", listed)


def to_decision(call: ReviewedCall, answer: Any) -> dict[str, Any]:
    """Return the middleware's decision for an answer on one call. Raises: UnclearAnswer."""
    members = _given_members(answer)
    if isinstance(answer, bool):
        members = {"approved": answer}
    elif isinstance(answer, str) and answer in _DECISION_NAMES:
        members = {"type": answer}
    match _form_of(members):
        case "approved":
            return _from_approval(call, members)
        case "type":
            return _from_own_form(members)
        case "response":
            _refuse_edits(members, "`response`")
            return {"type": "respond", "message": _text_member(members, "response")}
        case _:
            raise UnclearAnswer(f"it does not decide on the call to {call.name}")


def to_rejection(message: str) -> dict[str, Any]:
    """Return the decision that rejects a call."""
    return {"type": "reject", **({"message": message} if message else {})}


def _given_members(answer: Any) -> dict[str, Any]:
    """Return the members of an answer. One that is null is not given."""
    return {name: item for name, item in as_object(answer).items() if item is not None}


def _form_of(members: Mapping[str, Any]) -> str | None:
    """Return the key of the answer's form; None if it has none. Raises: UnclearAnswer if it has several: they may contradict each other."""
    forms = [key for key in _FORM_KEYS if key in members]
    if len(forms) > 1:
        raise UnclearAnswer(f"it has both `{forms[0]}` and `{forms[1]}`")
    return forms[0] if forms else None


def _from_approval(call: ReviewedCall, members: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(members["approved"], bool):
        raise UnclearAnswer("`approved` is neither true nor false")
    message, edited = _message_in(members), _edited_arguments(members)
    if not members["approved"]:
        return to_rejection(message)
    if edited is None or (edited == call.arguments and "approve" in call.allowed):
        return {"type": "approve"}
    return {"type": "edit", _ACTION_KEY: {"name": call.name, "args": edited}}


def _edited_arguments(members: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments in an answer with `approved`; None if it does not edit them. Raises: UnclearAnswer."""
    if _ACTION_KEY in members:
        raise UnclearAnswer(f"it has both `approved` and `{_ACTION_KEY}`")
    given = [key for key in _EDIT_KEYS if key in members]
    if len(given) > 1:
        raise UnclearAnswer(f"it has both `{given[0]}` and `{given[1]}`")
    if given and not isinstance(members[given[0]], dict):
        raise UnclearAnswer(f"`{given[0]}` is not an object")
    return members[given[0]] if given else None


def _from_own_form(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return a decision in the middleware's own form, without members that it does not have. Raises: UnclearAnswer."""
    kind = _text_member(members, "type")
    action = _edited_action(members) if kind == "edit" else None
    _refuse_edits({name: item for name, item in members.items() if action is None or name != _ACTION_KEY}, "`type`")
    if kind == "respond":
        return {"type": kind, "message": _text_member(members, "message")}
    if kind == "reject":
        return to_rejection(_message_in(members))
    return {"type": kind, **({_ACTION_KEY: action} if action else {})}


def _edited_action(members: Mapping[str, Any]) -> dict[str, Any]:
    action = as_object(members.get(_ACTION_KEY))
    if not isinstance(action.get("name"), str) or not isinstance(action.get("args"), dict):
        raise UnclearAnswer("the edited call has no `name` and `args`")
    return {"name": action["name"], "args": action["args"]}


def _refuse_edits(members: Mapping[str, Any], form: str) -> None:
    """Raises: UnclearAnswer if an answer of this form, which does not edit the call, also has new arguments for it."""
    given = next((key for key in (*_EDIT_KEYS, _ACTION_KEY) if key in members), None)
    if given is not None:
        raise UnclearAnswer(f"it has both {form} and `{given}`")


def _message_in(members: Mapping[str, Any]) -> str:
    return next((_text_member(members, key) for key in _MESSAGE_KEYS if key in members), "")


def _text_member(members: Mapping[str, Any], name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        raise UnclearAnswer(f"`{name}` is not a text")
    return value
