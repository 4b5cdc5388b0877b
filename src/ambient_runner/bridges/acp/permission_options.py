"""Options of a permission request: those of an agent that can be chosen, and the one that an answer chooses. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from ambient_runner.bridges.toolkit.interrupts import check_approval, check_members, join_names, read_approval
from ambient_runner.bridges.toolkit.json_values import as_object
from ambient_runner.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MAX_OPTIONS", "choose_option", "is_allowing", "read_options"]

MAX_OPTIONS = 32
"""Number of options that are offered to a person."""
_MAX_ID_LENGTH = 500
_MAX_NAME_LENGTH = 500
_EXPECTED = 'Send {"optionId": "…"}, or {"approved": true} or {"approved": false}.'

Kind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


def read_options(value: Any) -> list[dict[str, str]]:
    """Return the `options` of a request that can be chosen: those with an id, a kind, and no other kind under the same id.

    There may be more than are offered. An id that is too long to be one is left out.
    """
    found = [as_object(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []
    kinds: dict[str, set[str]] = {}
    names: dict[str, str] = {}
    for option in found:
        option_id, kind, name = option.get("optionId"), option.get("kind"), option.get("name")
        if isinstance(option_id, str) and isinstance(kind, str) and option_id and kind:
            kinds.setdefault(option_id, set()).add(kind)
            names.setdefault(option_id, name if isinstance(name, str) else "")
    return [
        {"optionId": option_id, "name": names[option_id][:_MAX_NAME_LENGTH], "kind": next(iter(meant))}
        for option_id, meant in kinds.items()
        if len(meant) == 1 and len(option_id) <= _MAX_ID_LENGTH
    ]


def choose_option(options: Sequence[Mapping[str, str]], payload: Any) -> str | None:
    """Return the id of the option that an answer chooses: the one it names, or the only one of the kind it means.

    None for a rejection that is not offered as an option. A missing "always" is a single approval.
    Raises: InvalidInput if the answer is malformed, or if no offered option is meant, or more than one.
    """
    members = check_members(read_approval(payload), _EXPECTED, optionId=str)
    if "editedArgs" in members:
        raise InvalidInput(
            "This agent does not take other arguments. Decline, and say with `message` what it should do."
        )
    if "optionId" in members:
        return _named_option(options, check_members(members, _EXPECTED, approved=bool, message=str, always=bool))
    answer = check_approval(members)
    if not answer["approved"]:
        return _option_of_kind(options, "reject_once") or _option_of_kind(options, "reject_always")
    kinds: tuple[Kind, ...] = ("allow_always", "allow_once") if answer.get("always") else ("allow_once",)
    for kind in kinds:
        if option_id := _option_of_kind(options, kind):
            return option_id
    raise InvalidInput(f"No offered option allows this as you said. {_offered(options)}")


def is_allowing(option: Mapping[str, str]) -> bool:
    """Return True for an option of any kind that does not reject, also of one that is not known."""
    return not str(option.get("kind")).startswith("reject")


def _named_option(options: Sequence[Mapping[str, str]], answer: Mapping[str, Any]) -> str:
    chosen = next((option for option in options if option.get("optionId") == answer["optionId"]), None)
    if chosen is None:
        raise InvalidInput(f"This option was not offered. {_offered(options)}")
    if answer.get("approved", is_allowing(chosen)) != is_allowing(chosen):
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
    return f"Name one with `optionId`: {join_names([str(option.get('optionId')) for option in options])}."
