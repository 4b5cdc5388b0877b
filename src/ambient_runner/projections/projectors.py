"""Projectors: the owner of a fact decides what clients see of it. Pure.

A fact without a projector is never sent. `frames.py` and `safe.py` project the events of a run; every other owner has one function here,
from a stored fact to events. Products register theirs with `runs/product_facts.py`, which also isolates a projector that fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ambient_runner.errors import ConfigError
from ambient_runner.ledger.records import RUNTIME
from ambient_runner.projections.thread_view import (
    APPROVALS_OWNER,
    INTERRUPTS_CANCELLED,
    PATCHED,
    STATE_OWNER,
    THREAD_OWNER,
)
from ambient_runner.protocol.events import CUSTOM_PREFIX, Custom, StateDelta, encode_event

if TYPE_CHECKING:
    from ambient_runner.ledger.records import Batch
    from ambient_runner.protocol.events import Event

__all__ = [
    "CLONES_OWNER",
    "FEEDBACK",
    "FEEDBACK_OWNER",
    "FILES_OWNER",
    "REPOS_OWNER",
    "SETUP_OWNER",
    "WORKFLOW_OWNER",
    "Projector",
    "StoredFact",
    "add_projector",
    "built_in_owners",
    "check_product_owner",
    "event_of_fact",
    "own_events_only",
    "project_facts",
]

REPOS_OWNER, CLONES_OWNER, WORKFLOW_OWNER = "ambient.repos", "ambient.clones", "ambient.workflow"
FILES_OWNER, SETUP_OWNER, FEEDBACK_OWNER = "ambient.files", "ambient.setup", "ambient.feedback"
"""Owners of platform facts. Clients receive them as `event_of_fact` returns them; the conversation does not depend on them."""
FEEDBACK = "feedback"
"""The kind of the facts of FEEDBACK_OWNER."""

_RESERVED_PREFIX = "ambient"
_OWNER_NAME = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*")
_MAX_OWNER_LENGTH = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFact:
    """A fact of a thread, as its owner's projector gets it. `value` is its JSON value, with secrets redacted when it was stored."""

    owner: str
    kind: str
    value: Any
    seq: int
    ts: int
    """Commit time in milliseconds since 1970."""


Projector = Callable[[StoredFact], "Iterable[Event]"]
"""Returns the events that clients receive for a fact; none to keep it from them."""


def project_facts(batch: Batch) -> list[list[Event]]:
    """Return the events of each fact of a batch, as clients receive them; nothing for an owner without a projector.

    An event that has no timestamp of its own gets the commit time of the batch.
    """
    project = _PROJECTORS.get(batch.owner)
    if project is None:
        return []
    facts = (
        StoredFact(owner=batch.owner, kind=batch.kind, value=msgspec.json.decode(line), seq=seq, ts=batch.ts)
        for seq, line in enumerate(batch.lines, batch.first)
    )
    return [[_stamp_event(event, batch.ts) for event in project(fact)] for fact in facts]


def _stamp_event(event: Event, ts: int) -> Event:
    return replace(event, timestamp=ts) if ts and event.timestamp is None else event


def add_projector(owner: str, projector: Projector) -> None:
    """Add the projector of a product's owner. Raises: ConfigError if the owner is reserved or has one already."""
    check_product_owner(owner)
    if owner in _PROJECTORS:
        raise ConfigError(f"The owner {owner} has a projector already. An owner has one; register it once.")
    _PROJECTORS[owner] = projector


def check_product_owner(owner: str) -> str:
    """Return the owner if a product may use it. Raises: ConfigError."""
    if owner == RUNTIME or owner.split(".")[0] == _RESERVED_PREFIX:
        raise ConfigError(f"The owner {owner} is the server's own. Use a name of your product, such as shop.orders.")
    if not _OWNER_NAME.fullmatch(owner) or len(owner) > _MAX_OWNER_LENGTH:
        raise ConfigError(
            f"{owner!r} is not the name of an owner. Use lower-case letters, digits, _ and -, with dots between the parts, "
            f"at most {_MAX_OWNER_LENGTH} characters, such as shop.orders."
        )
    return owner


def own_events_only(owner: str, projector: Projector) -> Projector:
    """Return the projector of a product with its rules checked: only facts of its owner, only CUSTOM events, no name of ours.

    The returned projector raises ValueError or TypeError for a fact of another owner and for an event that it may not send.
    """

    def project(fact: StoredFact) -> list[Event]:
        if fact.owner != owner:
            raise ValueError(f"The projector of {owner} was given a fact of {fact.owner}.")
        return [_check_product_event(owner, event) for event in projector(fact)]

    return project


def built_in_owners() -> frozenset[str]:
    """Return the owners whose projectors are the server's."""
    return frozenset({RUNTIME, *_BUILT_IN})


def event_of_fact(kind: str, value: Any) -> Custom:
    """Return a platform fact as the CUSTOM event that clients receive, with the same name."""
    return Custom(name=f"{CUSTOM_PREFIX}{kind}", value=value)


def _check_product_event(owner: str, event: object) -> Custom:
    if not isinstance(event, Custom):
        raise TypeError(f"The projector of {owner} returned {type(event).__name__}. It may return CUSTOM events only.")
    if event.name.strip().lower().startswith(CUSTOM_PREFIX):
        raise ValueError(f"The projector of {owner} used the reserved name {event.name}.")
    encode_event(event)
    return event


def _project_state(fact: StoredFact) -> list[Event]:
    return [StateDelta(delta=fact.value["patch"])] if fact.kind == PATCHED else []


def _project_approvals(fact: StoredFact) -> list[Event]:
    return _project_platform(fact) if fact.kind == INTERRUPTS_CANCELLED else []


def _project_platform(fact: StoredFact) -> list[Event]:
    return [event_of_fact(fact.kind, fact.value)]


_BUILT_IN: dict[str, Projector] = {
    STATE_OWNER: _project_state,
    APPROVALS_OWNER: _project_approvals,
    THREAD_OWNER: _project_approvals,  # threads of earlier versions have cancelled interrupts under this owner
    REPOS_OWNER: _project_platform,
    CLONES_OWNER: _project_platform,
    WORKFLOW_OWNER: _project_platform,
    FILES_OWNER: _project_platform,
    SETUP_OWNER: _project_platform,
    FEEDBACK_OWNER: _project_platform,
}
_PROJECTORS: dict[str, Projector] = dict(_BUILT_IN)
