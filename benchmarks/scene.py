"""The description of a measurement, by which the command line, the page and the tests know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.report import Section

Form = Literal["smallest", "quick", "full"]
"""`smallest` proves that a scene works, `quick` gives a first figure, `full` is for the page."""


def find_nothing_missing() -> str:
    """Say that a scene needs nothing but the test tools."""
    return ""


@dataclass(frozen=True, kw_only=True)
class Plans:
    """The size of a scene in each form: a number of rounds, or a value of the scene's own."""

    smallest: Any
    quick: Any
    full: Any

    def choose(self, form: Form) -> Any:
        return {"smallest": self.smallest, "quick": self.quick, "full": self.full}[form]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A measurement: what it is called, how large it is, how it is made and how its section is built."""

    name: str
    title: str
    """Shown beside its progress."""
    plans: Plans
    count_steps: Callable[[Any], int]
    """Return the number of steps that `measure` reports for a plan."""
    measure: Callable[[Path, Any, Callable[[], None]], Any]
    build_section: Callable[[Any], Section]
    is_daily: bool = False
    """True if `make bench-quick` has time for it."""
    has_pauses: bool = True
    """True if `pauses` repeats it with a heartbeat: it serves runs with `ambient serve`, and no other scene does the same."""
    find_missing: Callable[[], str] = find_nothing_missing
    """Return what has to be installed before; empty if nothing."""

    def run(self, scratch: Path, form: Form, step: Callable[[], None]) -> Section:
        return self.build_section(self.measure(scratch, self.plans.choose(form), step))
