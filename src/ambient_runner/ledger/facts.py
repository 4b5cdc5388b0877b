"""Checks of facts before they are stored, and the key by which they are grouped into batches. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ambient_runner.ledger.records import RUNTIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ambient_runner.ledger.records import Fact, ThreadLabels

__all__ = ["LINE_BREAK", "batch_key", "check_facts", "check_first_facts", "check_line"]

LINE_BREAK = ord("\n")  # An int: searching bytes for one costs a tenth of searching for b"\n".


def check_facts(facts: Sequence[Fact], labels: ThreadLabels | None = None) -> None:
    """Check facts that belong to no run: they have one owner, which is not the runtime. Labels need a fact. Raises: ValueError."""
    if labels is not None and not facts:
        raise ValueError("Labels are written with the facts they follow from.")
    if any(fact.owner == RUNTIME for fact in facts):
        raise ValueError("Only a Writer can append facts of the owner `runtime`.")
    if len({fact.owner for fact in facts}) > 1:
        raise ValueError("Facts that are appended together must have one owner.")
    for fact in facts:
        check_line(fact.body)


def check_first_facts(facts: Sequence[Fact]) -> None:
    """Check the facts that a run begins with. Raises: ValueError."""
    if not facts:
        raise ValueError("A run must begin with at least one fact.")
    for fact in facts:
        check_line(fact.body)


def batch_key(fact: Fact) -> tuple[str, str]:
    """Return the key by which facts are grouped: runtime events of all types share a batch, other owners' facts have one per kind."""
    return (RUNTIME, "") if fact.owner == RUNTIME else (fact.owner, fact.kind)


def check_line(line: bytes) -> None:
    """Check that a line contains no line break: a batch joins its lines with them. Raises: ValueError."""
    if LINE_BREAK in line:
        raise ValueError("A line must not contain a line break.")
